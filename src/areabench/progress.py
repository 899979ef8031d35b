"""A live progress line on a terminal; silence elsewhere.

mpirun holds text back until its line ends, so a rank cannot write over its own line. Under `areabench launch` rank 0
writes whole lines with a mark, and the launching process turns them into one live line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from enum import Enum

_REFRESH_S = 0.2
_MARK = "areabench progress: "
_WIDTH = 78
_BAR = 24  # characters


class Style(Enum):
    """How progress is shown."""

    NONE = "none"
    LIVE = "live"  # a line that is written over itself
    MARKED = "marked"  # marked lines, for the launching process


class ProgressLine:
    """Where a run stands, at most five times a second."""

    def __init__(self, label: str, horizon_s: float | None, style: Style) -> None:
        self._label = label
        self._of = f" / {horizon_s:g}" if horizon_s is not None else ""
        self._show: Callable[[str], None] | None = {Style.LIVE: write_live, Style.MARKED: _write_marked}.get(style)
        self._next_s = 0.0

    def __call__(self, time_s: float, updates: int) -> None:
        """Show the run's time and count, if it is time to."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            rate = updates / max(time_s, 1e-9)
            self._show(f"{self._label:<12} {time_s:7.1f}{self._of} s  {updates:>9,} updates  {rate:>8,.0f}/s")

    def close(self, remark: str = "") -> None:
        """Take the line away, or leave a remark on what comes next."""
        if self._show is not None:
            self._show(remark)


class SweepProgress:
    """Where a sweep stands: runs done, runs a second, time left, failures; at most five times a second.

    The time left comes from the cost of what this sweep has done and of what is not, so runs of unequal length do
    not mislead it.
    """

    def __init__(self, runs: int, cost: float, style: Style) -> None:
        self._runs, self._cost = runs, cost
        self._done = self._failed = 0
        self._done_cost = 0.0
        self._show: Callable[[str], None] | None = {Style.LIVE: write_live, Style.MARKED: _write_marked}.get(style)
        self.refresh_s = _REFRESH_S if self._show is not None else None  # None: there is nothing to show
        self._begun_s = time.perf_counter()
        self._next_s = 0.0

    def add(self, done: int, failed: int, cost: float) -> None:
        """Count runs that ended."""
        self._done, self._failed, self._done_cost = self._done + done, self._failed + failed, self._done_cost + cost
        self.show()

    def show(self) -> None:
        """Show the line, if it is time to."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            self._show(self.line(now_s - self._begun_s))

    def line(self, elapsed_s: float) -> str:
        """The line after so many seconds."""
        ended = self._done + self._failed
        filled = int(_BAR * ended / max(self._runs, 1))
        words = [f"[{'#' * filled}{'.' * (_BAR - filled)}] {ended:,}/{self._runs:,} runs"]
        if self._done_cost:
            left_s = elapsed_s * (self._cost - self._done_cost) / self._done_cost
            words += [f"{ended / max(elapsed_s, 1e-9):.3g}/s", f"{duration(left_s)} left"]
        return "  ".join(words + ([f"{self._failed:,} failed"] if self._failed else []))

    def close(self) -> None:
        """Take the line away."""
        if self._show is not None:
            self._show("")


def duration(seconds: float) -> str:
    """A time in words: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def write_live(text: str) -> None:
    """Write over the current line of the terminal; an empty text clears it."""
    sys.stderr.write(f"\r{text:<{_WIDTH}}" + ("" if text else "\r"))
    sys.stderr.flush()


def relay(lines: Iterable[str]) -> None:
    """Show the marked lines of a launched run as a live line and pass the others on."""
    for line in lines:
        if line.startswith(_MARK):
            write_live(line.removeprefix(_MARK).rstrip("\n"))
        else:
            write_live("")
            sys.stderr.write(line)
            sys.stderr.flush()
    write_live("")


def _write_marked(text: str) -> None:
    sys.stderr.write(f"{_MARK}{text}\n")
    sys.stderr.flush()
