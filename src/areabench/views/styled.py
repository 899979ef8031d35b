"""Text that has colours on a terminal: styled parts, the styles, numbers, and the one aligner of all text tables.

`terminal` gives a styled text to rich where a terminal shows colours. It is not built with rich's Text and Table: to
load them makes `areabench show` 16 % slower where nothing is coloured, and a Table has no heading over several columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from areabench.experiment.labels import method_colour
from areabench.methods import METHODS

LABEL = "cyan"
HEADING = "bold"
TABLE_HEADING = "bold cyan"
FAINT = "dim"
BEST = "bold"
GOOD = "green"
DOUBTFUL = "yellow"
BAD = "bold red"
UNDER_WAY = "cyan"
STATE_STYLES = {
    "done": GOOD, "target reached": GOOD, "running": UNDER_WAY, "waiting": UNDER_WAY, "diverged": DOUBTFUL,
    "stopped": DOUBTFUL, "failed": BAD, "killed": BAD,
}  # fmt: skip
_GAP = "  "  # between the columns of a table


class Styled(str):
    """A text made of parts, each with a style of rich or none. As a string it is the plain text.

    A part is a string, a pair of string and style, or another Styled. Of the methods of str, only `join` keeps styles.
    """

    parts: tuple[tuple[str, str], ...]  # what rich's Text.assemble takes

    def __new__(cls, *parts: str | tuple[str, str]) -> Styled:
        """Join parts."""
        pieces: list[tuple[str, str]] = []
        for part in parts:
            if isinstance(part, Styled):
                pieces += part.parts
            else:
                pieces.append((part, "") if isinstance(part, str) else part)
        styled = super().__new__(cls, "".join(text for text, _ in pieces))
        styled.parts = tuple(pieces)
        return styled

    def join(self, parts: Iterable[str], /) -> Styled:
        """Join parts with this text between them."""
        return Styled(*[piece for part in parts for piece in (self, part)][1:])


def method_word(name: str) -> Styled:
    """The name or label of a method in its colour; a variant ("AREA, gamma = 2") has the colour of its method."""
    method, comma, variant = name.partition(",")
    return Styled((method, _method_style(method)), comma + variant)


@cache
def _method_style(word: str) -> str:
    """The colour of the method that has this name or label; empty where none has."""
    if word in METHODS:
        return method_colour(word)
    return next((record.colour for record in METHODS.values() if record.label == word), "")


def state_word(state: str) -> Styled:
    """The state of a run in its colour."""
    return Styled((state, STATE_STYLES.get(state, "")))


def joined(lines: Iterable[str]) -> Styled:
    """Lines as one text, each with its line break."""
    return Styled("\n").join([*lines, ""])


def text_section(title: str, lines: Iterable[str]) -> Styled:
    """A heading and the lines below it, each indented; empty lines stay empty."""
    return joined([Styled((title, HEADING)), *(Styled("  ", line) if line else line for line in lines)])


def labelled(rows: Iterable[tuple[str, str]], width: int) -> list[Styled]:
    """Lines of a label and a text; an empty label continues the line above."""
    return [Styled((label, LABEL), " " * (width - len(label)), text) for label, text in rows]


def number(value: float, digits: int, form: str = ",") -> str:
    """A number for a table: a dash for NaN, an exponent where it is huge. `form` has a sign (+) or separator (,)."""
    if math.isnan(value):
        return "-"
    if abs(value) < 1e5:
        return f"{value:{form}.{digits}f}"
    return f"{value:{form}.2e}"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 run`, `2,000 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ---------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Heading:
    """A heading over several columns of a table."""

    text: str
    columns: int


RULE: tuple[()] = ()  # a row that is a line of dashes


def align(
    rows: Sequence[Sequence[str]], headings: Sequence[Heading] = (), flush_left: Collection[int] = (0,)
) -> list[Styled]:
    """The lines of a table: the first column, or those of `flush_left`, are flush left, the others flush right.

    The first row names the columns; `headings`, if any, are above it and together as wide as the table. A row of
    one cell is not aligned, and may be as long as it likes.
    """
    widths = [max(map(len, column)) for column in zip(*(row for row in rows if len(row) > 1), strict=True)]
    words = []
    end = 0
    for heading in headings:  # each in the middle of its columns, of which the last one is as wide as it needs
        start = end
        end += heading.columns
        widths[end - 1] += max(0, len(heading.text) - _across(widths[start:end]))
        words.append(heading.text.center(_across(widths[start:end])))
    lines = []
    if headings:
        lines.append(Styled((_GAP.join(words).rstrip(), TABLE_HEADING)))
    for row in rows:
        if not row:
            lines.append(Styled(("-" * _across(widths), FAINT)))
        elif len(row) == 1:
            lines.append(Styled((row[0], HEADING)))
        else:
            cells: list[str] = []
            for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
                padding = " " * (width - len(cell))
                if column in flush_left:
                    cells += [cell, padding, _GAP]
                else:
                    cells += [padding, cell, _GAP]
            # A line ends without spaces, so that it can be compared and pasted.
            while not cells[-1].strip():  # no spaces at the end of a line
                cells.pop()
            if row is rows[0]:
                cells = [Styled(("".join(cells), TABLE_HEADING))]
            lines.append(Styled(*cells))
    return lines


def _across(widths: Sequence[int]) -> int:
    """Characters that columns take together."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)
