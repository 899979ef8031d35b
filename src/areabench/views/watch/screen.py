"""A page that is written over itself on a terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.live import Live
from rich.text import Text

from areabench.errors import harmless
from areabench.hearing import give_back, take_over
from areabench.output import Colours
from areabench.painting import BAD, DOUBTFUL, GOOD, STATE_LOOKS, console, has_blocks
from areabench.watching.frame import Frame
from areabench.watching.glyphs import BLOCKS, PLAIN
from areabench.watching.spans import Line, Size, Span
from areabench.watching.words import Form, page

LOOKS = {
    "good": GOOD,
    "bad": BAD,
    "doubtful": DOUBTFUL,
    "label": "bold cyan",
    "dim": "bright_black",
    "chart": "magenta",
}


class Screen:
    """Shows frames on the whole terminal, and leaves the last one on it."""

    def __init__(self, colours: Colours | None) -> None:
        self._console = console(colours)
        self._glyphs = BLOCKS if has_blocks(self._console.file) else PLAIN
        self._live = Live(console=self._console, screen=True, auto_refresh=False, vertical_overflow="crop")
        self._last: Frame | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the terminal over, and give it back, also when a signal ends us."""
        before = take_over((signal.SIGTERM, signal.SIGHUP), _end)
        try:
            with self._live:
                yield
        finally:
            give_back(before)
            if self._last is not None:
                self.leave(self._last)

    def show(self, frame: Frame) -> None:
        """Show a frame in the size that the terminal has now."""
        self._last = frame
        self._live.update(self._text(frame, 1), refresh=True)

    def leave(self, frame: Frame) -> None:
        """Print a frame to stay."""
        self._console.print(self._text(frame, 3), soft_wrap=True)

    def _text(self, frame: Frame, spare: int) -> Text:
        """A frame with so many lines of the terminal left free, for the cursor or for what the shell writes next."""
        size = Size(self._console.width, self._console.height - spare)
        return painted_lines(page(frame, Form(size, self._glyphs)), size.columns)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def painted_lines(lines: Sequence[Line], columns: int) -> Text:
    """Lines in their colours, none longer than the terminal is wide."""
    shown = [Text.assemble(*(_painted(span) for span in line)) for line in lines]
    for line in shown:
        line.truncate(columns, overflow="ellipsis")
    return Text("\n").join(shown)


def _painted(span: Span) -> tuple[str, str]:
    kind, _, state = span.look.partition(":")
    return harmless(span.text), STATE_LOOKS.get(state, "") if kind == "state" else LOOKS.get(span.look, span.look)
