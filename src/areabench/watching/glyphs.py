"""Bars and little charts made of characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """Characters for bars and charts."""

    full: str
    empty: str
    heights: str  # from least to most


PLAIN = Glyphs("#", ".", " .:-=+*#")
BLOCKS = Glyphs("█", "░", "▁▂▃▄▅▆▇█")


def filled(share: float, length: int) -> int:
    """How many characters of a bar a share from 0 to 1 fills; 0 where it is not known."""
    return 0 if math.isnan(share) else round(length * min(max(share, 0.0), 1.0))


def sparkline(counts: Sequence[int], width: int, glyphs: Glyphs) -> str:
    """Counts as heights, at most `width` characters: neighbours are added up where there are more."""
    step = -(-len(counts) // width) if counts else 1
    sums = [sum(counts[first : first + step]) for first in range(0, len(counts), step)]
    most = max(sums, default=0)
    return "".join(_height(value, most, glyphs.heights) for value in sums)


def _height(value: int, most: int, heights: str) -> str:
    """Nothing is the lowest, and whatever there is of something is higher than nothing."""
    return heights[0] if value == 0 else heights[max(1, math.ceil(value / most * (len(heights) - 1)))]
