"""What the numerical studies share: sweeps read point by point, means with intervals, slopes, and pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import areabench
from areabench.errors import UserError
from areabench.experiment import Experiment, Theorem2Schedule
from areabench.problems.base import Problem
from areabench.scenario import build_scenario
from areabench.schema import State
from areabench.theorems import event_probabilities, is_lipschitz, lipschitz_constants
from areabench.theory.lipschitz import lipschitz_bound
from areabench.trust import check_trusted

Floats = NDArray[np.float64]
_RESAMPLES = 2000  # of the trials, for intervals
_NO_DATA = Path()  # the studies' problems draw their own


@dataclass(frozen=True)
class Trace:
    """One run: iterations K of its snapshots, and what they have reached; models where they are kept."""

    experiment: Experiment
    iterations: NDArray[np.int64]
    squared_distance: Floats
    average_loss: Floats
    models: Floats


@dataclass(frozen=True)
class Point:
    """One point of a sweep's grid with all its trials."""

    experiment: Experiment  # with the seed of the first trial
    traces: tuple[Trace, ...]

    @property
    def rates(self) -> Floats:
        """Updates a second of each client, shape (clients,); the studies draw none."""
        return build_scenario(self.experiment, _NO_DATA).rates

    def problem(self, trial: int = 0) -> Problem:
        """The problem of a trial."""
        return build_scenario(self.traces[trial].experiment, _NO_DATA).problem


def read_points(folder: Path) -> list[Point]:
    """All points of a sweep that has been run to its end, in the order of its grid."""
    sweep = areabench.open_sweep(folder)
    if sweep.missing:
        raise UserError(f"{folder}: {len(sweep.missing)} runs are missing; run `areabench sweep` on its file again")
    points: dict[Experiment, list[Trace]] = {}
    for result in sweep.results:
        points.setdefault(replace(result.experiment, seed=0), []).append(_read(result.path))
    return [Point(traces[0].experiment, tuple(traces)) for traces in points.values()]


def _read(path: Path) -> Trace:
    with areabench.open_run(path) as run:
        check_trusted(run.experiment, path)
        if run.status.state != State.DONE:
            raise UserError(
                f"{path}: is {run.status.state.text}, and a mean over trials needs all of them; look into it"
            )
        index, metrics = run.snapshot_index, run.metrics_array
        distance, loss = metrics["squared_distance"], metrics["average_loss"]
        return Trace(run.experiment, index["event"], distance, loss, np.asarray(run.models, dtype=np.float64))


@dataclass(frozen=True)
class Gaps:
    """f(average) - f* at the end of each trial, and Theorem 2's bound of it, shape (trials,)."""

    measured: Floats
    bounds: Floats


def gaps_and_bounds(point: Point) -> Gaps:
    """The gaps of one point; each trial has a problem, and so a bound, of its own."""
    gaps, bounds = [], []
    events, M = event_probabilities(point.experiment, point.rates), point.experiment.clients.local_steps
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        assert is_lipschitz(problem)
        known = lipschitz_constants(Theorem2Schedule(), problem)
        gaps.append(float(trace.average_loss[-1]) - problem.optimum.minimum)
        bounds.append(lipschitz_bound(known, events, M, int(trace.iterations[-1])))
    return Gaps(np.array(gaps), np.array(bounds))


# ---------------------------------------------------------------------------------------------------- statistics


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


# ---------------------------------------------------------------------------------------------------- pages


def spread(values: Floats) -> str:
    """The mean over trials and its interval; values of shape (trials,)."""
    shown = band(values[:, None])
    return f"{shown.mean[0]:.2e} ({shown.low[0]:.1e} to {shown.high[0]:.1e})"


def rates_in_words(point: Point) -> str:
    """Even or uneven."""
    ratio = point.rates.max() / point.rates.min()
    return "equal rates" if ratio == 1 else f"rates 1 : {ratio:g}"
