"""Mean, smallest and largest value of some trials."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DECIMALS = 2  # as the paper prints its tables
_LAST_DIGIT = 0.01


@dataclass(frozen=True)
class Spread:
    """What a table shows of a number over trials."""

    mean: float
    minimum: float
    maximum: float

    @property
    def half_range(self) -> float:
        """Half the distance from the smallest to the largest value; half a printed digit where they print the same."""
        return max((self.maximum - self.minimum) / 2, _LAST_DIGIT / 2)

    def holds(self, value: float) -> bool:
        """Whether a value, rounded like this spread to two decimals, lies in its range."""
        return round(self.minimum, DECIMALS) <= round(value, DECIMALS) <= round(self.maximum, DECIMALS)

    def overlaps(self, other: Spread) -> bool:
        """Whether two ranges, rounded to two decimals, have a value in common."""
        low, high = max(self.minimum, other.minimum), min(self.maximum, other.maximum)
        return round(low, DECIMALS) <= round(high, DECIMALS)


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    return Spread(statistics.fmean(values), min(values), max(values))
