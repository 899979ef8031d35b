"""What a sweep has to compute: pending runs, grouped into passes that one process simulates at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.experiment import Experiment, ListedRates, LognormalRates, NormalRates, RateSettings, SFedAvg
from areabench.problem_settings import DrawnSettings

_STEPS_A_SNAPSHOT = 100  # evaluating a snapshot on MNIST takes as long as about so many gradient steps


@dataclass(frozen=True)
class Task:
    """One run to compute, and the run file to leave."""

    experiment: Experiment
    output: Path


@dataclass(frozen=True)
class Pass:
    """Runs that are simulated together."""

    tasks: tuple[Task, ...]

    @property
    def steps(self) -> float:
        """Gradient steps that all of them are expected to compute."""
        return sum(expected_steps(task.experiment) for task in self.tasks)

    @property
    def cost(self) -> float:
        """Expected time to compute all of them, in units of a gradient step."""
        return sum(expected_cost(task.experiment) for task in self.tasks)


def group_passes(tasks: Sequence[Task]) -> list[Pass]:
    """The tasks in passes, the longest first: a long one at the end would leave the other cores idle."""
    from areabench.lanes import group_lanes  # loads the engine; reading a sweep does not need it

    groups = group_lanes([task.experiment for task in tasks])
    passes = [Pass(tuple(tasks[number] for number in group)) for group in groups]
    return sorted(passes, key=lambda each: each.cost, reverse=True)


def expected_cost(experiment: Experiment) -> float:
    """Expected time of a run, evaluation included, in units of a gradient step."""
    stop, record = experiment.stop, experiment.record
    evaluated = record.snapshots == "grid" and not isinstance(experiment.problem, DrawnSettings)
    snapshots = (stop.horizon_s or 0.0) / record.interval_s if evaluated else 0.0
    return expected_steps(experiment) + _STEPS_A_SNAPSHOT * snapshots


def expected_duration_s(experiment: Experiment) -> float:
    """Real time that a run is expected to take on MPI, at most."""
    stop, horizon_s = experiment.stop, math.inf if experiment.stop.horizon_s is None else experiment.stop.horizon_s
    if stop.iterations is not None:
        horizon_s = min(horizon_s, stop.iterations / updates_a_second(experiment))
    return horizon_s * experiment.clock.stretch


def expected_steps(experiment: Experiment) -> float:
    """Gradient steps that a run is expected to compute unless a target or a divergence ends it."""
    updates, stop = math.inf, experiment.stop
    if stop.horizon_s is not None:
        updates = updates_a_second(experiment) * stop.horizon_s
    if stop.iterations is not None:
        updates = min(updates, stop.iterations)
    return updates * experiment.clients.local_steps


def updates_a_second(experiment: Experiment) -> float:
    """Expected updates of all clients together."""
    rate, method = _mean_rate(experiment.rates), experiment.method
    if not isinstance(method, SFedAvg):
        return experiment.clients.count * rate
    waits = sum(1 / number for number in range(1, method.clients_per_round + 1))  # the slowest of several exponentials
    return method.clients_per_round * rate / waits


def _mean_rate(rates: RateSettings) -> float:
    """Mean updates a second of a client."""
    match rates:
        case NormalRates():
            return rates.mean
        case LognormalRates():
            return rates.median * math.exp(min(rates.sigma**2 / 2, 50.0))  # a bound: sigma may be large
        case ListedRates():
            return sum(rates.values) / len(rates.values)
        case _:
            return rates.rate
