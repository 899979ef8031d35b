"""What all views show of several trials: how sure means and differences are, curves over time, times to a target."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.sweeps.result import Result

DECIMALS = 2  # as the paper prints its tables
Floats = NDArray[np.float64]
Quantity = Literal["test_accuracy", "train_loss"]
SpreadName = Literal["interval", "range"]  # of the mean, 95 %; or smallest to largest value, as in the paper
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Spread:
    """Mean, smallest and largest value of a number over trials, and the interval of the mean."""

    mean: float
    minimum: float
    maximum: float
    low: float = math.nan  # 95 % interval of the mean; NaN for a single trial
    high: float = math.nan

    def ends(self, spread: SpreadName) -> tuple[float, float]:
        """Where the interval or the range begins and ends; the mean itself for the interval of a single trial."""
        if spread == "range":
            return self.minimum, self.maximum
        if math.isnan(self.low):
            return self.mean, self.mean
        return self.low, self.high


def spread_of(values: Sequence[float], quantity: Quantity | None = None) -> Spread | None:
    """The spread of the finite values, of a quantity that may have bounds; None where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    low, high = bounded_interval(np.array(finite), quantity)
    return Spread(statistics.fmean(finite), min(finite), max(finite), float(low), float(high))


# ---------------------------------------------------------------------------------------------------- uncertainty

_RESAMPLES = 1999  # 2.5 % of one more is a whole number, so quantiles need no interpolation
_FEWEST_RESAMPLED = 5  # of fewer trials, too many resamples have no spread
_EXACT_TRIALS = 12  # up to here all signs are tried
_RANDOM_FLIPS = 9999


def mean_interval(values: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval of the mean over the first axis: a studentised bootstrap (bootstrap-t).

    Of the usual bootstraps it alone holds its level with ten trials, also where they are skewed: percentile and BCa
    intervals are too short. Where resamples have no spread (fewer than five trials, or most of them equal) it is
    Student's interval; NaN for one trial. The resamples are always the same, so equal numbers have equal intervals.
    """
    count = len(values)
    mean = values.mean(axis=0)
    if count < 2:
        return np.full_like(mean, math.nan), np.full_like(mean, math.nan)
    # Deviations instead of values, so that a large mean costs the variances no digits.
    centred = values - mean
    error = np.sqrt((centred**2).sum(axis=0) / (count - 1) / count)
    from scipy.special import stdtrit  # slow to import

    most = np.full(mean.shape, float(stdtrit(count - 1, 0.975)))
    least = -most
    if count >= _FEWEST_RESAMPLED:
        below, above = _studentised(centred)
        usable = np.isfinite(below) & np.isfinite(above)
        least = np.where(usable, below, least)
        most = np.where(usable, above, most)
    return mean - most * error, mean - least * error


def bounded_interval(values: Floats, quantity: Quantity | None) -> tuple[Floats, Floats]:
    """The same, of an accuracy within 0 and 100 %."""
    low, high = mean_interval(values)
    if quantity == "test_accuracy":
        return np.maximum(low, 0.0), np.minimum(high, 100.0)
    return low, high


def _studentised(centred: Floats) -> tuple[Floats, Floats]:
    """Quantiles at 2.5 and 97.5 % of (mean - true mean)/error over resamples; infinite where too many have no error."""
    weights = _resamples(len(centred))
    means = np.tensordot(weights, centred, 1)
    variances = np.maximum(np.tensordot(weights, centred**2, 1) - means**2, 0.0)
    # A resample of one value several times has no spread, and a ratio of nothing.
    flat = variances <= 1e-12 * (centred**2).mean(axis=0)  # rounding leaves more than zero
    errors = np.sqrt(np.where(flat, 1.0, variances) / (len(centred) - 1))
    ratios = np.where(flat, np.copysign(math.inf, means), means / errors)
    place = (_RESAMPLES + 1) // 40 - 1
    ordered = np.partition(ratios, (place, _RESAMPLES - 1 - place), axis=0)
    return ordered[place], ordered[_RESAMPLES - 1 - place]


@lru_cache(maxsize=8)
def _resamples(count: int) -> Floats:
    """How often each trial is in each resample, as a share."""
    drawn: Floats = np.random.default_rng(count).multinomial(count, [1 / count] * count, size=_RESAMPLES) / count
    return drawn


@dataclass(frozen=True)
class PairedDifference:
    """The mean of paired differences, its 95 % interval, and the chance of one as large if there were none."""

    mean: float
    low: float
    high: float
    p: float
    pairs: int


def paired_difference(first: Floats, second: Floats) -> PairedDifference:
    """First minus second, trial by trial with the same seed; p is not corrected for several comparisons."""
    apart = first - second
    low, high = mean_interval(apart)
    return PairedDifference(float(apart.mean()), float(low), float(high), sign_flip_p(apart), len(apart))


def sign_flip_p(differences: Floats) -> float:
    """Two-sided p value of a permutation test that the mean of paired differences is zero; NaN for one pair.

    If two methods were alike, each difference could as well have the other sign. All signs are tried up to twelve
    pairs, random ones beyond.
    """
    count = len(differences)
    if count < 2:
        return math.nan
    if count <= _EXACT_TRIALS:
        signs = 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
    else:
        signs = np.random.default_rng(count).choice((-1, 1), size=(_RANDOM_FLIPS + 1, count))
        signs[0] = 1
    sums = np.abs(signs @ differences)
    return float(np.mean(sums >= sums[0] - 1e-9 * np.abs(differences).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected by Holm's method for being several."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def fewest_trials(rivals: int) -> int:
    """With fewer trials than this no difference from several rivals can be significant."""
    return math.ceil(math.log2(2 * max(rivals, 1) / SIGNIFICANCE))


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
        if 2 * self.reached <= self.trials:
            return math.inf
        return self.mean_s / self.horizon_s


def reach_of(results: Sequence[Result], percent: float) -> Reach:
    """When trials with the same horizon reached a test accuracy in percent."""
    known = tuple(result.time_to_accuracy(percent) for result in results if result.knows_time_to(percent))
    if not results:
        return Reach((), 0, None)
    return Reach(known, len(results) - len(known), results[0].experiment.stop.horizon_s)


@dataclass(frozen=True, eq=False)
class ReachCurve:
    """The share of trials that have reached a target at each time (Kaplan and Meier), with its 95 % interval.

    The first entry is at time 0; the share stays the same until the next one, and after the last until `end_s`.
    """

    time_s: Floats
    share: Floats
    low: Floats
    high: Floats
    censored_s: Floats  # when trials ended that had not reached it
    end_s: float


def reach_curve(results: Sequence[Result], percent: float) -> ReachCurve | None:
    """When trials reached a test accuracy in percent; None where it was measured over time in none.

    A trial that ends before its horizon without having reached it is watched until then. One that diverged never
    reaches it, so it is watched until the horizon: to end it earlier would flatter a method that diverges.
    """
    measured = [
        one for one in results if one.experiment.record.snapshots != "none" and np.isfinite(one.test_accuracy).any()
    ]
    if not measured:
        return None
    reached_s = np.array([one.time_to_accuracy(percent) for one in measured])
    last_s = max(one.experiment.stop.horizon_s or one.status.end_s for one in measured)
    ended_s = np.array([last_s if one.has_diverged else one.status.end_s for one in measured])
    is_reached = np.isfinite(reached_s)
    return kaplan_meier(np.where(is_reached, reached_s, ended_s), is_reached, last_s)


def kaplan_meier(seen_until_s: Floats, is_reached: NDArray[np.bool_], end_s: float) -> ReachCurve:
    """The share reached, from how long each trial was watched and whether it had reached the target then.

    The interval is that of log(-log(1 - share)) with Greenwood's variance; NaN where nothing or everything is reached.
    """
    from scipy.stats import CensoredData, ecdf  # slow to import

    times_s = np.unique(seen_until_s[is_reached])
    left = ecdf(CensoredData.right_censored(seen_until_s, ~is_reached)).sf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where everything is reached
        interval = left.confidence_interval(method="log-log")
    return ReachCurve(
        time_s=np.append(0.0, times_s),
        share=np.append(0.0, 1 - left.evaluate(times_s)),
        low=np.append(math.nan, 1 - interval.high.evaluate(times_s)),
        high=np.append(math.nan, 1 - interval.low.evaluate(times_s)),
        censored_s=np.sort(seen_until_s[~is_reached]),
        end_s=end_s,
    )


@dataclass(frozen=True, eq=False)
class Profile:
    """In which share of settings a method's time is at most a factor times the best one; factors ascend from 1."""

    factor: Floats
    share: Floats


def performance_profiles(times_s: Floats) -> list[Profile]:
    """The profiles (Dolan and Moré) of methods, from times of shape (settings, methods); infinite: not reached.

    A method that was not run in a setting (NaN) is judged on the others. A setting that no method solves counts as
    not solved.
    """
    # A setting that no method solves has no best time; every ratio in it is infinite.
    best = np.nanmin(np.where(np.isnan(times_s), math.inf, times_s), axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isinf(best), math.inf, times_s / np.where(best > 0, best, 1.0))
    ratios = np.where((best == 0) & (times_s == 0), 1.0, ratios)
    profiles = []
    for column, given in zip(ratios.T, times_s.T, strict=True):
        there = column[~np.isnan(given)]
        factors = np.unique(np.append(1.0, there[np.isfinite(there)]))
        share = [np.count_nonzero(there <= factor * (1 + 1e-12)) / max(len(there), 1) for factor in factors]
        profiles.append(Profile(factors, np.array(share)))
    return profiles


# ---------------------------------------------------------------------------------------------------- over time


@dataclass(frozen=True)
class Band:
    """Several trials over time: mean and spread at each time."""

    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats


def band(results: Sequence[Result], quantity: Quantity, spread: SpreadName = "interval") -> Band:
    """Mean and spread over trials, at the times of the trial that ends first; empty where nothing was measured.

    Snapshots without a value are left out. Trials of a sweep share their time grid; where one does not, its values
    are interpolated linearly.
    """
    curves: list[tuple[Floats, Floats]] = []  # times and values of the snapshots that have one
    for result in results:
        values: Floats = getattr(result, quantity)
        there = np.isfinite(values)
        if there.any():
            curves.append((result.time_s[there], values[there]))
    if not curves:
        return Band(*np.empty((4, 0)))
    # Beyond its ends a curve would be made up.
    start_s = max(time_s[0] for time_s, _ in curves)
    first_to_end = min(curves, key=lambda curve: float(curve[0][-1]))[0]
    grid = first_to_end[first_to_end >= start_s]
    trials = np.stack([np.interp(grid, time_s, value) for time_s, value in curves])
    if spread == "range":
        return Band(grid, trials.mean(axis=0), trials.min(axis=0), trials.max(axis=0))
    return Band(grid, trials.mean(axis=0), *bounded_interval(trials, quantity))


def mean_and_p95(shares: Floats) -> tuple[float, int]:
    """Mean and 95th percentile of a histogram over 0, 1, 2, ... that is in percent."""
    mean = float(np.arange(len(shares)) @ shares) / 100
    return mean, int(np.searchsorted(np.cumsum(shares), 95.0 - 1e-9))


def staleness_shares(results: Sequence[Result]) -> Floats:
    """Mean over trials of the share of updates that were 0, 1, 2, ... server steps old; empty where there are none."""
    histograms = [result.staleness for result in results if result.staleness.sum() > 0]
    if not histograms:
        return np.empty(0)
    shares = np.zeros((len(histograms), max(map(len, histograms))))
    for share, counts in zip(shares, histograms, strict=True):
        share[: len(counts)] = counts / counts.sum()
    return np.trim_zeros(shares.mean(axis=0), "b")
