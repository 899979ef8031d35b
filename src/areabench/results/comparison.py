"""Two runs of one experiment against each other: pure functions on arrays, and `compare_runs`, which applies them.

The first run is the reference: differences are second minus first, in per cent of the first. docs/comparing.md has the
formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.arrivals import Order, Shift, arrivals, order_of, shift_of, time_shifts
from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.reading import Run
from areabench.schema import State
from areabench.tables.words import flatten

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Keys that change what is kept, how long a second lasts or where modules lie, not what happens.
_FREE = ("name", "record.", "clock.", "module_folders")
_COMPARED = (State.DONE, State.TARGET, State.DIVERGED)

# ---------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class Pair:
    """A number of both runs, and by how much per cent of the first the second differs."""

    first: float
    second: float
    difference_percent: float


@dataclass(frozen=True)
class Trajectory:
    """A quality over time in both runs."""

    final: Pair
    largest: float  # absolute distance over the common times; NaN where there are none
    largest_at_s: float
    times: int  # how many times are common


@dataclass(frozen=True)
class RunComparison:
    """Everything that is compared."""

    updates: Pair
    client: int  # the one whose updates differ most
    client_updates: Pair
    server_steps: Pair
    mean_staleness: Pair
    staleness_distance: float  # server steps
    order: Order | None  # None where a run has no event log
    shift: Shift | None
    loss: Trajectory
    accuracy: Trajectory


# ---------------------------------------------------------------------------------------------------- two runs


def compare_runs(first: Run, second: Run) -> RunComparison:
    """Compare two runs; a UserError unless they are of one experiment and have ended."""
    check_same_experiment(first, second)
    client = most_different(first.served, second.served)
    logged = all(run.experiment.record.events for run in (first, second))
    sequences = (arrivals(first.events_array), arrivals(second.events_array)) if logged else None
    return RunComparison(
        updates=pair(first.status.updates, second.status.updates),
        client=client,
        client_updates=pair(int(first.served[client]), int(second.served[client])),
        server_steps=pair(first.status.server_steps, second.status.server_steps),
        mean_staleness=pair(mean_of_counts(first.staleness), mean_of_counts(second.staleness)),
        staleness_distance=histogram_distance(first.staleness, second.staleness),
        order=order_of(*sequences) if sequences else None,
        shift=shift_of(*time_shifts(*sequences)) if sequences else None,
        loss=_trajectory(first, second, "train_loss"),
        accuracy=_trajectory(first, second, "test_accuracy"),
    )


def check_same_experiment(first: Run, second: Run) -> None:
    """A UserError that names the keys in which two runs differ, or the run that did not end."""
    for run in (first, second):
        if run.status.state not in _COMPARED:
            raise UserError(f"{run.path}: is {run.status.state.text} ({run.status.reason}); compare runs that ended")
    if keys := differing_keys(first.experiment, second.experiment):
        values = [dict(flatten(run.experiment)) for run in (first, second)]
        words = ", ".join(f"{key} ({values[0].get(key, 'none')} and {values[1].get(key, 'none')})" for key in keys)
        raise UserError(f"{first.path} and {second.path}: differ in {words}; compare two runs of one experiment")


def differing_keys(first: Experiment, second: Experiment) -> list[str]:
    """The keys that matter and have two values: all but `name`, `record`, `clock` and where modules lie."""
    flat = [dict(flatten(experiment)) for experiment in (first, second)]
    keys = dict.fromkeys([*flat[0], *flat[1]])
    missing = object()
    return [key for key in keys if not key.startswith(_FREE) and flat[0].get(key, missing) != flat[1].get(key, missing)]


def pair(first: float, second: float) -> Pair:
    """Both, and the difference in per cent of the first; 0 where they are equal."""
    if first == second:
        return Pair(first, second, 0.0)
    percent = 100.0 * (second - first) / abs(first) if first else math.copysign(math.inf, second)
    return Pair(first, second, percent)


def is_within(pair: Pair, percent: float) -> bool:
    """Whether the second differs by at most so many per cent; no where a value is not known."""
    return abs(pair.difference_percent) <= percent


# ---------------------------------------------------------------------------------------------------- counts


def most_different(first: Integers, second: Integers) -> int:
    """The client whose number of updates differs most; shapes (clients,)."""
    return int(np.argmax(np.abs(second - first)))


def mean_of_counts(counts: Integers) -> float:
    """Mean of a histogram over 0, 1, 2, ...; NaN where it is empty."""
    return float(np.arange(len(counts)) @ counts / counts.sum()) if counts.any() else math.nan


def histogram_distance(first: Integers, second: Integers) -> float:
    """Wasserstein-1 distance of two histograms over 0, 1, 2, ...: the area between their cumulative shares."""
    if not first.any() or not second.any():
        return math.nan
    shares = np.zeros((2, max(len(first), len(second))))
    for share, counts in zip(shares, (first, second), strict=True):
        share[: len(counts)] = counts / counts.sum()
    return float(np.abs(np.cumsum(shares[0] - shares[1])).sum())


# ---------------------------------------------------------------------------------------------------- trajectories


@dataclass(frozen=True)
class Curve:
    """A quality over time, where it was measured."""

    time_s: Floats
    values: Floats


def curve_of(run: Run, column: Literal["train_loss", "test_accuracy"]) -> Curve:
    """A column of the metrics at the snapshots that have a finite one."""
    values = run.metrics_array[column]
    there = np.isfinite(values)  # not so where a run diverged, or the loss was asked for on few snapshots only
    return Curve(run.snapshot_index["time_s"][: len(values)][there], values[there])


def _trajectory(first: Run, second: Run, column: Literal["train_loss", "test_accuracy"]) -> Trajectory:
    last = [run.metrics_array[column][-1] if len(run.metrics_array) else math.nan for run in (first, second)]
    return trajectory(curve_of(first, column), curve_of(second, column), pair(float(last[0]), float(last[1])))


def trajectory(first: Curve, second: Curve, final: Pair) -> Trajectory:
    """The largest distance at the times of the first curve that the second spans; between its times it is linear."""
    spanned = (first.time_s >= second.time_s.min(initial=math.inf)) & (first.time_s <= second.time_s.max(initial=-1.0))
    if not spanned.any():
        return Trajectory(final, math.nan, math.nan, 0)
    time_s = first.time_s[spanned]
    distance = np.abs(np.interp(time_s, second.time_s, second.values) - first.values[spanned])
    worst = int(np.argmax(distance))
    return Trajectory(final, float(distance[worst]), float(time_s[worst]), len(time_s))
