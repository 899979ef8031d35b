"""Progress: a live bar on a terminal, a bar in a notebook, marked lines for a launching process; nothing elsewhere.

mpirun forwards text only in whole lines, so a rank cannot write over its own line. Under `areabench launch` rank 0
writes marked lines, which the launching process shows as one bar.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from enum import Enum
from html import escape
from importlib import import_module
from typing import Any

_REFRESH_S = 0.2
_MARK = "areabench progress: "
_UNKNOWN = "-"  # in a marked line: no share is known
_BAR = 24  # characters

Show = Callable[[float | None, str], None]  # a share from 0 to 1, None where no end is known, and words; "": clear


class Style(Enum):
    """How progress is shown."""

    NONE = "none"
    LIVE = "live"  # a bar on the terminal, in colour where it has colours
    MARKED = "marked"  # marked lines, for the launching process
    NOTEBOOK = "notebook"  # a bar below the cell


SHOWN_LIVE = (Style.LIVE, Style.NOTEBOOK)  # a launching process shows the lines of its ranks so


class ProgressLine:
    """The progress of a run, at most five times per second."""

    def __init__(self, label: str, horizon_s: float | None, style: Style) -> None:
        self._label = label
        self._horizon_s = horizon_s
        self._show = shower_of(style)
        self._next_s = 0.0
        self._first: tuple[float, float] | None = None  # of the first call: on the real clock, and on the run's

    def __call__(self, time_s: float, updates: int) -> None:
        """Show the run's time and updates, unless they were shown a moment ago."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            self._first = self._first or (now_s, time_s)
            share = None
            if self._horizon_s:
                share = time_s / self._horizon_s
            self._show(share, self.words(time_s, updates, now_s - self._first[0]))

    def words(self, time_s: float, updates: int, elapsed_s: float) -> str:
        """The words beside the bar, `elapsed_s` after the first ones."""
        counts = f"{updates:,} updates  {updates / max(time_s, 1e-9):,.0f}/s"
        if not self._horizon_s:
            return f"{self._label}  {time_s:.1f} s  {counts}"
        words = f"{self._label}  {time_s:.1f} / {self._horizon_s:g} s  {counts}"
        if self._first is not None and time_s > self._first[1]:
            left_s = elapsed_s * (self._horizon_s - time_s) / (time_s - self._first[1])
            words += f"  {duration(left_s)} left"
        return words

    def close(self, remark: str = "") -> None:
        """Remove the bar, or replace it by a remark."""
        if self._show is not None:
            self._show(None, remark)


class SweepProgress:
    """The progress of a sweep: runs done, runs per second, time left, failures; at most five times per second.

    The time left is estimated from the costs of finished and unfinished runs, so runs of unequal length do not
    distort it.
    """

    def __init__(self, runs: int, cost: float, style: Style) -> None:
        self._runs = runs
        self._cost = cost
        self._done = 0
        self._failed = 0
        self._done_cost = 0.0
        self._show = shower_of(style)
        self.refresh_s = _REFRESH_S if self._show is not None else None  # None: nothing is shown
        self._begun_s = time.perf_counter()
        self._next_s = 0.0

    def add(self, done: int, failed: int, cost: float) -> None:
        """Count runs that have ended."""
        self._done += done
        self._failed += failed
        self._done_cost += cost
        self.show()

    def show(self) -> None:
        """Show the bar, unless it was shown a moment ago."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            self._show((self._done + self._failed) / max(self._runs, 1), self.words(now_s - self._begun_s))

    def words(self, elapsed_s: float) -> str:
        """The words beside the bar, `elapsed_s` after the start."""
        ended = self._done + self._failed
        words = [f"{ended:,}/{self._runs:,} runs"]
        if self._done_cost:
            left_s = elapsed_s * (self._cost - self._done_cost) / self._done_cost
            words += [f"{ended / max(elapsed_s, 1e-9):.3g}/s", f"{duration(left_s)} left"]
        if self._failed:
            words.append(f"{self._failed:,} failed")
        return "  ".join(words)

    def close(self) -> None:
        """Remove the bar."""
        if self._show is not None:
            self._show(None, "")


def duration(seconds: float) -> str:
    """A time in words: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


# ---------------------------------------------------------------------------------------------------- where it is shown


def shower_of(style: Style) -> Show | None:
    """The function that shows progress in a style; None where nothing is shown."""
    match style:
        case Style.LIVE:
            return terminal_bar()
        case Style.NOTEBOOK:
            return NotebookBar()
        case Style.MARKED:
            return _write_marked
        case Style.NONE:
            return None


def terminal_bar() -> Show:
    """A bar and words on the last line of the terminal behind stderr."""
    from rich.console import Console  # only a terminal needs rich
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    terminal = Console(stderr=True, force_terminal=True)
    live = Live(console=terminal, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(share: float | None, words: str) -> None:
        if not words:
            live.stop()
            return
        text = Text(words, no_wrap=True, overflow="ellipsis")
        text.highlight_regex(r"\d\S* failed", "bold red")
        line = Table.grid(padding=(0, 1))
        if share is None:
            line.add_row(text)
        else:
            bar = ProgressBar(1.0, share, _BAR, style="bright_black", complete_style="green", finished_style="green")
            line.add_row(bar, text)
        if not live.is_started:
            live.start()
            terminal.show_cursor()  # a process that is killed must not leave the terminal without one
        live.update(line, refresh=True)

    return show


def _write_marked(share: float | None, words: str) -> None:
    known = _UNKNOWN
    if share is not None:
        known = f"{share:.3f}"
    sys.stderr.write(f"{_MARK}{known} {words}\n")
    sys.stderr.flush()


def relay(lines: Iterable[str], show: Show) -> None:
    """Show the marked lines of a launched run as a bar, and print the others."""
    for line in lines:
        if line.startswith(_MARK):
            share, _, words = line.removeprefix(_MARK).rstrip("\n").partition(" ")
            show(None if share == _UNKNOWN else float(share), words)
        else:
            show(None, "")
            sys.stderr.write(line)
            sys.stderr.flush()
    show(None, "")


# ---------------------------------------------------------------------------------------------------- notebook


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; loads nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


class NotebookBar:
    """A bar that the browser draws below a cell, and words."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display")
        self._handle: Any = None

    def __call__(self, share: float | None, words: str) -> None:
        """Show this in place of what was shown before; without words nothing of it is left."""
        html = ""
        if words:
            html = escape(words)
            if share is not None:
                html = f'<progress value="{share:.3f}"></progress> {html}'
            html = f"<code>{html}</code>"
        shown = self._display.HTML(html)
        if self._handle is not None:
            self._handle.update(shown)
        elif words:
            self._handle = self._display.display(shown, display_id=True)
