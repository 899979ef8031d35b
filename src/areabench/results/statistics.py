"""What tables, figures and reports show of several trials: spread at the end, curves over time, time to a target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.sweeps.read import Result

DECIMALS = 2  # as the paper prints its tables
_LAST_DIGIT = 0.01
Floats = NDArray[np.float64]
Quantity = Literal["test_accuracy", "train_loss"]


@dataclass(frozen=True)
class Spread:
    """Mean, smallest and largest value of a number over trials."""

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


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of the finite values; None where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return Spread(statistics.fmean(finite), min(finite), max(finite)) if finite else None


# ---------------------------------------------------------------------------------------------------- time to a target


@dataclass(frozen=True)
class Reach:
    """When trials reached a test accuracy, censored on the right."""

    times_s: tuple[float, ...]  # infinite for a trial that did not reach it, or diverged before
    unknown: int  # further trials of which it is not known, see `Result.knows_time_to`
    horizon_s: float | None

    @property
    def trials(self) -> int:
        """All trials."""
        return len(self.times_s) + self.unknown

    @property
    def reached(self) -> int:
        """The trials that are known to have reached it."""
        return sum(map(math.isfinite, self.times_s))

    @property
    def is_complete(self) -> bool:
        """Whether every trial reached it."""
        return 0 < self.trials == self.reached

    @property
    def mean_s(self) -> float:
        """Mean over the trials that reached it; NaN where none did."""
        reached_s = [time_s for time_s in self.times_s if math.isfinite(time_s)]
        return statistics.fmean(reached_s) if reached_s else math.nan

    @property
    def median_s(self) -> float:
        """Median over the trials of which it is known; infinite where half of them or more did not reach it.

        NaN where it is known of none.
        """
        return statistics.median(self.times_s) if self.times_s else math.nan

    @property
    def rho(self) -> float:
        """`mean_s` / horizon; infinite where half or more did not reach it; NaN where it is not known of a trial."""
        if not self.trials or self.unknown or self.horizon_s is None:
            return math.nan
        return math.inf if 2 * self.reached <= self.trials else self.mean_s / self.horizon_s


def reach_of(results: Sequence[Result], percent: float) -> Reach:
    """When trials with the same horizon reached a test accuracy in percent."""
    known = tuple(result.time_to_accuracy(percent) for result in results if result.knows_time_to(percent))
    horizon_s = results[0].experiment.stop.horizon_s if results else None
    return Reach(known, len(results) - len(known), horizon_s)


# ---------------------------------------------------------------------------------------------------- over time


@dataclass(frozen=True)
class Band:
    """Several trials over time: mean, smallest and largest value at each time."""

    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats


def band(results: Sequence[Result], quantity: Quantity) -> Band:
    """Mean and range over trials, at the times of the trial that ends first; empty where nothing was measured.

    Snapshots without a value are left out. Trials of a sweep share their time grid; where one does not, its values
    are interpolated linearly.
    """
    curves = [curve for result in results if len((curve := _measured(result, quantity))[0])]
    if not curves:
        return Band(*np.empty((4, 0)))
    start_s = max(time_s[0] for time_s, _ in curves)
    first_to_end = min(curves, key=lambda curve: float(curve[0][-1]))[0]
    grid = first_to_end[first_to_end >= start_s]
    values = np.stack([np.interp(grid, time_s, value) for time_s, value in curves])
    return Band(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _measured(result: Result, quantity: Quantity) -> tuple[Floats, Floats]:
    """Times and values of the snapshots that have one."""
    values: Floats = getattr(result, quantity)
    there = np.isfinite(values)
    return result.time_s[there], values[there]


def mean_and_p95(shares: Floats) -> tuple[float, int]:
    """Mean and 95th percentile of a histogram over 0, 1, 2, ... that is in percent."""
    mean = float(np.arange(len(shares)) @ shares) / 100
    return mean, int(np.searchsorted(np.cumsum(shares), 95.0 - 1e-9))


def staleness_shares(results: Sequence[Result]) -> Floats:
    """Mean over trials of the share of updates that were 0, 1, 2, ... server steps old; empty where there are none."""
    counts = [result.staleness for result in results if result.staleness.sum() > 0]
    return np.trim_zeros(shares_of(counts).mean(axis=0), "b") if counts else np.empty(0)


def shares_of(histograms: Sequence[NDArray[np.int64]]) -> Floats:
    """Histograms over 0, 1, 2, ... as shares, one row each, all as long as the longest; none may be empty."""
    shares = np.zeros((len(histograms), max(map(len, histograms))))
    for share, counts in zip(shares, histograms, strict=True):
        share[: len(counts)] = counts / counts.sum()
    return shares
