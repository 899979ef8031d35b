"""Words that know how they look: on a terminal in colour, elsewhere as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line; its look is a name of `LOOKS`, `state:NAME`, or a colour."""

    text: str
    look: str = ""


Line = tuple[Span, ...]


class Size(NamedTuple):
    """Of a page, or of what is left of it, in characters."""

    columns: int
    rows: int


def plain_text(line: Iterable[Span]) -> str:
    """The words alone."""
    return "".join(span.text for span in line)
