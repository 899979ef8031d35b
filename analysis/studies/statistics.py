"""Means over trials with their intervals, by resampling the trials, and slopes on logarithmic axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_RESAMPLES = 2000  # of the trials


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """With three decimals."""
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Band:
    """A mean over trials and its 95 % interval at each point, shape (points,)."""

    mean: Floats
    low: Floats
    high: Floats


def resampled_means(values: Floats) -> Floats:
    """Means over trials drawn again with replacement, shape (resamples, points); values of shape (trials, points)."""
    generator = np.random.default_rng(0)
    weights = generator.multinomial(len(values), np.full(len(values), 1 / len(values)), _RESAMPLES) / len(values)
    return np.asarray(weights @ values)


def band(values: Floats) -> Band:
    """The mean over trials; values of shape (trials, points)."""
    low, high = np.percentile(resampled_means(values), (2.5, 97.5), axis=0)
    return Band(values.mean(axis=0), low, high)


def fit_slope(across: Floats, values: Floats) -> Interval:
    """The slope of log(mean over trials) over log(across); the interval by resampling trials."""
    slopes = _slopes(across, resampled_means(values))
    low, high = np.percentile(slopes, (2.5, 97.5))
    return Interval(float(_slopes(across, values.mean(axis=0, keepdims=True))[0]), float(low), float(high))


def _slopes(across: Floats, means: Floats) -> Floats:
    """Least squares on logarithms; means of shape (curves, points), result of shape (curves,)."""
    offsets = np.log(across) - np.log(across).mean()
    return np.asarray(np.log(means) @ offsets / (offsets @ offsets))


def spaced(across: Floats, count: int) -> NDArray[np.int64]:
    """Positions of about `count` points that are evenly spaced in the logarithm; across is increasing and positive."""
    wanted = np.geomspace(across[0], across[-1], count)
    return np.unique(np.searchsorted(across, wanted).clip(0, len(across) - 1))


def spread(values: Floats) -> str:
    """The mean over trials and its interval; values of shape (trials,)."""
    shown = band(values[:, None])
    return f"{shown.mean[0]:.2e} ({shown.low[0]:.1e} to {shown.high[0]:.1e})"
