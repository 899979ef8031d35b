"""A live progress line on a terminal, in colour where it has colours, or a bar in a notebook; nothing elsewhere.

mpirun forwards text only in whole lines, so a rank cannot write over its own line. Under `areabench launch` rank 0
writes marked lines, and the launching process shows them as one live line. It has only their text, so that the colours
are chosen from the text.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from enum import Enum
from html import escape
from importlib import import_module
from typing import IO, Any

_REFRESH_S = 0.2
_MARK = "areabench progress: "
_WIDTH = 78
_BAR, _SHORT_BAR = 24, 16  # characters, of a sweep and of a run


class Style(Enum):
    """How progress is shown."""

    NONE = "none"
    LIVE = "live"  # a line that is overwritten
    COLOURED = "coloured"  # the same in colour
    MARKED = "marked"  # marked lines, for the launching process
    NOTEBOOK = "notebook"  # a bar below the cell


SHOWN_LIVE = (Style.LIVE, Style.COLOURED, Style.NOTEBOOK)  # a launching process shows the lines of its ranks so


class ProgressLine:
    """The progress of a run, at most five times per second."""

    def __init__(self, label: str, horizon_s: float | None, style: Style) -> None:
        self._label, self._horizon_s = label, horizon_s
        self._show = writer_of(style)
        self._next_s = 0.0
        self._first: tuple[float, float] | None = None  # of the first call: on the real clock, and on the run's

    def __call__(self, time_s: float, updates: int) -> None:
        """Show the run's time and updates, unless they were shown a moment ago."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            self._first = self._first or (now_s, time_s)
            self._show(self.line(time_s, updates, now_s - self._first[0]))

    def line(self, time_s: float, updates: int, elapsed_s: float) -> str:
        """The line, `elapsed_s` after the first one."""
        counts = f"{updates:,} updates  {updates / max(time_s, 1e-9):,.0f}/s"
        if not self._horizon_s:
            return f"{self._label:<10} {time_s:.1f} s  {counts}"
        line = f"{self._label:<10} {bar(time_s / self._horizon_s, _SHORT_BAR)} {time_s:.1f} / {self._horizon_s:g} s"
        done_s = time_s - self._first[1] if self._first is not None else 0.0
        left = f"  {duration(elapsed_s * (self._horizon_s - time_s) / done_s)} left" if done_s > 0 else ""
        return f"{line}  {counts}{left}"

    def close(self, remark: str = "") -> None:
        """Remove the line, or replace it by a remark."""
        if self._show is not None:
            self._show(remark)


class SweepProgress:
    """The progress of a sweep: runs done, runs per second, time left, failures; at most five times per second.

    The time left is estimated from the costs of finished and unfinished runs, so runs of unequal length do not
    distort it.
    """

    def __init__(self, runs: int, cost: float, style: Style) -> None:
        self._runs, self._cost = runs, cost
        self._done = self._failed = 0
        self._done_cost = 0.0
        self._show = writer_of(style)
        self.refresh_s = _REFRESH_S if self._show is not None else None  # None: nothing is shown
        self._begun_s = time.perf_counter()
        self._next_s = 0.0

    def add(self, done: int, failed: int, cost: float) -> None:
        """Count runs that have ended."""
        self._done, self._failed, self._done_cost = self._done + done, self._failed + failed, self._done_cost + cost
        self.show()

    def show(self) -> None:
        """Show the line, unless it was shown a moment ago."""
        if self._show is not None and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            self._show(self.line(now_s - self._begun_s))

    def line(self, elapsed_s: float) -> str:
        """The line, `elapsed_s` after the start."""
        ended = self._done + self._failed
        words = [f"{bar(ended / max(self._runs, 1), _BAR)} {ended:,}/{self._runs:,} runs"]
        if self._done_cost:
            left_s = elapsed_s * (self._cost - self._done_cost) / self._done_cost
            words += [f"{ended / max(elapsed_s, 1e-9):.3g}/s", f"{duration(left_s)} left"]
        return "  ".join(words + ([f"{self._failed:,} failed"] if self._failed else []))

    def close(self) -> None:
        """Remove the line."""
        if self._show is not None:
            self._show("")


def duration(seconds: float) -> str:
    """A time in words: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def bar(share: float, length: int) -> str:
    """A share from 0 to 1 as a bar of `length` characters, in brackets."""
    filled = int(length * min(max(share, 0.0), 1.0))
    return f"[{'#' * filled}{'.' * (length - filled)}]"


# ---------------------------------------------------------------------------------------------------- terminal


def write_live(text: str) -> None:
    """Write over the current line of the terminal; an empty text clears it."""
    width = _width()
    sys.stderr.write(f"\r{text[:width]:<{width}}" + ("" if text else "\r"))
    sys.stderr.flush()


def write_coloured(text: str) -> None:
    """Write over the current line of the terminal, in colour; an empty text clears it."""
    width = _width()
    sys.stderr.write(f"\r{painted_line(f'{text[:width]:<{width}}')}" + ("" if text else "\r"))
    sys.stderr.flush()


def relay(lines: Iterable[str], write: Callable[[str], None] = write_live) -> None:
    """Show the marked lines of a launched run as a live line, and print the others."""
    for line in lines:
        if line.startswith(_MARK):
            write(line.removeprefix(_MARK).rstrip("\n"))
        else:
            write("")
            sys.stderr.write(line)
            sys.stderr.flush()
    write("")


def _write_marked(text: str) -> None:
    sys.stderr.write(f"{_MARK}{text}\n")
    sys.stderr.flush()


def writer_of(style: Style) -> Callable[[str], None] | None:
    """The function that shows a line in a style; None where nothing is shown."""
    if style == Style.NOTEBOOK:
        return NotebookLine()
    writers = {Style.LIVE: write_live, Style.COLOURED: write_coloured, Style.MARKED: _write_marked}
    return writers.get(style)


def _width() -> int:
    """Number of characters that fit on one line of the terminal."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # no terminal
        columns = 0
    return columns - 1 if columns > 1 else _WIDTH


def has_blocks(stream: IO[str]) -> bool:
    """Whether the stream can show block characters."""
    return str(getattr(stream, "encoding", "")).lower().replace("-", "") == "utf8"


def painted_line(text: str) -> str:
    """A progress line with its bar in colour, for stderr."""
    from rich.console import Console  # only a terminal needs rich
    from rich.text import Text

    terminal = Console(
        file=sys.stderr, force_terminal=True, color_system="standard", legacy_windows=False, no_color=False, width=1000
    )
    shown = Text(text)
    if found := re.search(r"\[(#*)(\.*)\]", text):
        filled, empty = ("━", "━") if has_blocks(sys.stderr) else ("#", ".")
        line = Text.assemble((filled * len(found[1]), "green"), (empty * len(found[2]), "bright_black"))
        shown = Text.assemble(text[: found.start()], " ", line, " ", text[found.end() :])
    for found in re.finditer(r"\d\S* failed", shown.plain):
        shown.stylize("bold red", *found.span())
    with terminal.capture() as captured:
        terminal.print(shown, end="", soft_wrap=True)
    return captured.get()


# ---------------------------------------------------------------------------------------------------- notebook


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; loads nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


class NotebookLine:
    """A progress line below a cell, with a bar that the browser draws; an empty text leaves nothing of it."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display")
        self._handle: Any = None

    def __call__(self, text: str) -> None:
        """Show a line in place of the one before."""
        shown = self._display.HTML(as_html(text))
        if self._handle is not None:
            self._handle.update(shown)
        elif text:
            self._handle = self._display.display(shown, display_id=True)


def as_html(text: str) -> str:
    """A progress line as HTML: its bar as an element that browsers draw."""
    line = escape(re.sub(" {3,}", "  ", text))  # what aligns lines below each other on a terminal
    if found := re.search(r"\[(#*)(\.*)\]", line):
        done, length = len(found[1]), len(found[1]) + len(found[2])
        element = f'<progress value="{done}" max="{length}"></progress>'
        line = f"{line[: found.start()]}{element}{line[found.end() :]}"
    return f"<code>{line}</code>" if text else ""
