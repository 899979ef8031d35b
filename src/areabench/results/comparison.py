"""Comparison of two runs of one experiment: pure functions on arrays, and `compare_runs`, which applies them.

The first run is the reference: differences are second minus first, in per cent of the first. docs/comparing.md has the
formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import Kind, State
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import flatten
from areabench.runfile.read import Run

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[Any]  # of the event log


@dataclass(frozen=True)
class Quantiles:
    """Percentiles of a distribution; NaN where it is empty."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class ArrivalOrder:
    """How far apart the orders of arrivals are."""

    common: int  # arrivals, identified by (client, round), that both runs have
    only_first: int
    only_second: int
    distance: float  # share of the pairs of common arrivals that come in the other order: 0 same, 1/2 random
    places_moved: Quantiles  # positions by which a common arrival is earlier or later in the second order
    differs_at: int | None  # position, from 0, of the first arrival that differs; None: equal sequences
    differs_at_s: float  # its time in the first run, or the end of that run's arrivals; NaN for equal sequences


@dataclass(frozen=True)
class Shift:
    """How much later the common arrivals are in the second run."""

    seconds: Quantiles
    offset_s: float  # of the line that fits the shifts over time best: how late the second run begins
    drift_percent: float  # its slope: how much slower the second run's clients are


def arrivals(events: NDArray[Any]) -> Rows:
    """The updates among the events of a run file: those that the server used, in its order."""
    used: Rows = events[events["kind"] == Kind.UPDATE]
    return used


def order_of(first: Rows, second: Rows) -> ArrivalOrder:
    """How far apart two orders of arrivals are; O(N log N)."""
    keys_first, keys_second = _keys(first, second)
    at_first, at_second = _common(first, second)
    permutation = np.argsort(np.argsort(at_second))
    moved = np.abs(permutation - np.arange(len(permutation)))
    shorter = min(len(keys_first), len(keys_second))
    differ = np.flatnonzero(keys_first[:shorter] != keys_second[:shorter])
    differs_at = None
    if len(differ):
        differs_at = int(differ[0])
    elif len(keys_first) != len(keys_second):
        differs_at = shorter
    # where the first is the beginning of the second, they differ at its end
    ends_s = np.append(first["time_s"], first["time_s"][-1:])
    return ArrivalOrder(
        common=len(at_first),
        only_first=len(keys_first) - len(at_first),
        only_second=len(keys_second) - len(at_first),
        distance=discordance(permutation),
        places_moved=quantiles(moved),
        differs_at=differs_at,
        differs_at_s=math.nan if differs_at is None or not len(ends_s) else float(ends_s[differs_at]),
    )


def discordance(permutation: Integers) -> float:
    """Share of all pairs in the wrong order: (1 - Kendall's tau)/2; 0 for fewer than two entries."""
    from scipy.stats import kendalltau  # slow to import

    count = len(permutation)
    if count < 2:
        return 0.0
    pairs = count * (count - 1) // 2
    tau = float(kendalltau(np.arange(count), permutation).statistic)
    return round((1 - tau) / 2 * pairs) / pairs  # a whole number of pairs: no rounding is left


def _keys(first: Rows, second: Rows) -> list[Integers]:
    """A number for each (client, round)."""
    rounds = 1 + max(int(one["round"].max(initial=0)) for one in (first, second))
    return [one["client"].astype(np.int64) * rounds + one["round"] for one in (first, second)]


def _common(first: Rows, second: Rows) -> tuple[Integers, Integers]:
    """The positions of the common arrivals in both, in the order of the first."""
    # An arrival is the same in both runs if it is the same round of the same client.
    keys_first, keys_second = _keys(first, second)
    _, at_first, at_second = np.intersect1d(keys_first, keys_second, assume_unique=True, return_indices=True)
    by_first = np.argsort(at_first)
    return at_first[by_first], at_second[by_first]


# ---------------------------------------------------------------------------------------------------- time


def time_shifts(first: Rows, second: Rows) -> tuple[Floats, Floats]:
    """For each common arrival its time in the first run, and how much later it is in the second, in seconds."""
    at_first, at_second = _common(first, second)
    time_s = first["time_s"][at_first]
    return time_s, second["time_s"][at_second] - time_s


def shift_of(time_s: Floats, shift_s: Floats) -> Shift:
    """Quantiles, and the straight line that fits best; NaN where all arrivals are at one time."""
    if not len(time_s) or not time_s.var():
        return Shift(quantiles(shift_s), math.nan, math.nan)
    slope = float(((time_s - time_s.mean()) * shift_s).mean() / time_s.var())
    return Shift(quantiles(shift_s), float(shift_s.mean() - slope * time_s.mean()), 100.0 * slope)


def quantiles(values: NDArray[Any]) -> Quantiles:
    """The three percentiles; NaN without values."""
    if not len(values):
        return Quantiles(math.nan, math.nan, math.nan)
    return Quantiles(*np.percentile(values, (50, 95, 99)).tolist())


# Keys that change what is kept, how long a second lasts or where modules are, not what happens.
_FREE = ("name", "record.", "clock.", "module_folders")
_COMPARED = (State.DONE, State.TARGET, State.DIVERGED)

# ---------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class Pair:
    """A number of both runs, and their difference in per cent of the first."""

    first: float
    second: float
    difference_percent: float


@dataclass(frozen=True)
class Trajectory:
    """A quality over time in both runs."""

    final: Pair
    largest: float  # absolute distance over the common times; NaN where there are none
    largest_at_s: float
    times: int  # number of common times


@dataclass(frozen=True)
class DataComparison:
    """The SHA-256 of the data of both runs, and whether they are equal; None where a run recorded none."""

    first: str
    second: str
    equal: bool | None


@dataclass(frozen=True)
class RunComparison:
    """Everything that is compared."""

    data: DataComparison | None  # None where the problem has no data
    updates: Pair
    client: int  # the one whose updates differ most
    client_updates: Pair
    server_steps: Pair
    mean_staleness: Pair
    staleness_distance: float  # server steps
    order: ArrivalOrder | None  # None where a run has no event log
    shift: Shift | None
    loss: Trajectory
    accuracy: Trajectory


# ---------------------------------------------------------------------------------------------------- two runs


def compare_runs(first: Run, second: Run) -> RunComparison:
    """Compare two runs; raises UserError unless they are of one experiment and have ended."""
    check_same_experiment(first, second)
    client = int(np.argmax(np.abs(second.served - first.served)))
    data = None
    if first.experiment.data is not None:
        digests = [run.provenance.data_digest for run in (first, second)]
        data = DataComparison(digests[0], digests[1], digests[0] == digests[1] if all(digests) else None)
    # Without an event log it is not known which update came when.
    order = shift = None
    if first.experiment.record.events and second.experiment.record.events:
        arrived = [arrivals(run.events_array) for run in (first, second)]
        order = order_of(arrived[0], arrived[1])
        shift = shift_of(*time_shifts(arrived[0], arrived[1]))
    return RunComparison(
        data=data,
        updates=pair(first.status.updates, second.status.updates),
        client=client,
        client_updates=pair(int(first.served[client]), int(second.served[client])),
        server_steps=pair(first.status.server_steps, second.status.server_steps),
        mean_staleness=pair(mean_of_counts(first.staleness), mean_of_counts(second.staleness)),
        staleness_distance=histogram_distance(first.staleness, second.staleness),
        order=order,
        shift=shift,
        loss=_compared(first, second, "train_loss"),
        accuracy=_compared(first, second, "test_accuracy"),
    )


def check_same_experiment(first: Run, second: Run) -> None:
    """Raises UserError with the keys in which two runs differ, or the run that did not end."""
    for run in (first, second):
        if run.status.state not in _COMPARED:
            raise UserError(f"{run.path}: is {run.status.state.text} ({run.status.reason}); compare runs that ended")
    if keys := differing_keys(first.experiment, second.experiment):
        flat = [dict(flatten(run.experiment)) for run in (first, second)]
        words = []
        for key in keys:
            values = ["not set" if each.get(key) is None else str(each[key]) for each in flat]
            words.append(f"{key} ({' and '.join(values)})")
        raise UserError(
            f"{first.path} and {second.path}: differ in {', '.join(words)}; compare two runs of one experiment"
        )


def differing_keys(first: Experiment, second: Experiment) -> list[str]:
    """The keys that matter and differ: all but `name`, `record`, `clock` and where modules are."""
    flat = [dict(flatten(experiment)) for experiment in (first, second)]
    keys = dict.fromkeys([*flat[0], *flat[1]])
    return [key for key in keys if not key.startswith(_FREE) and flat[0].get(key) != flat[1].get(key)]


def pair(first: float, second: float) -> Pair:
    """Both, and the difference in per cent of the first; 0 where they are equal."""
    if first == second:
        return Pair(first, second, 0.0)
    if not first:
        return Pair(first, second, math.copysign(math.inf, second))
    return Pair(first, second, 100.0 * (second - first) / abs(first))


def is_within(pair: Pair, percent: float) -> bool:
    """Whether the second differs by at most `percent` per cent; False where a value is not known."""
    return abs(pair.difference_percent) <= percent


# ---------------------------------------------------------------------------------------------------- counts


def mean_of_counts(counts: Integers) -> float:
    """Mean of a histogram over 0, 1, 2, ...; NaN where it is empty."""
    if not counts.any():
        return math.nan
    return float(np.arange(len(counts)) @ counts / counts.sum())


def histogram_distance(first: Integers, second: Integers) -> float:
    """Wasserstein-1 distance of two histograms over 0, 1, 2, ...; NaN where one is empty."""
    from scipy.stats import wasserstein_distance  # slow to import

    if not first.any() or not second.any():
        return math.nan
    return float(wasserstein_distance(np.arange(len(first)), np.arange(len(second)), first, second))


# ---------------------------------------------------------------------------------------------------- trajectories


@dataclass(frozen=True)
class Curve:
    """A quality over time, at the times where it was measured."""

    time_s: Floats
    values: Floats


def curve_of(run: Run, column: Literal["train_loss", "test_accuracy"]) -> Curve:
    """A column of the metrics at the snapshots that have a finite one."""
    values = run.metrics_array[column]
    there = np.isfinite(values)  # not where a run diverged, or where the loss was not computed
    return Curve(run.snapshot_index["time_s"][: len(values)][there], values[there])


def _compared(first: Run, second: Run, column: Literal["train_loss", "test_accuracy"]) -> Trajectory:
    last = [float(run.metrics_array[column][-1]) if len(run.metrics_array) else math.nan for run in (first, second)]
    return trajectory(curve_of(first, column), curve_of(second, column), pair(*last))


def trajectory(first: Curve, second: Curve, final: Pair) -> Trajectory:
    """The largest distance at the times of the first curve that the second spans, linear between its points."""
    spanned = (first.time_s >= second.time_s.min(initial=math.inf)) & (first.time_s <= second.time_s.max(initial=-1.0))
    if not spanned.any():
        return Trajectory(final, math.nan, math.nan, 0)
    time_s = first.time_s[spanned]
    distance = np.abs(np.interp(time_s, second.time_s, second.values) - first.values[spanned])
    worst = int(np.argmax(distance))
    return Trajectory(final, float(distance[worst]), float(time_s[worst]), len(time_s))
