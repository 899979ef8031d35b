"""What runs are expected to cost: gradient steps, time on MPI, and the walltime of a job, on the safe side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment

SET_UP_S = 120.0  # modules, environment and Python from a shared file system, once per job
RANK_S = 0.5  # more set-up per rank
DRAIN_S = 30.0  # split, barrier, the last updates and the writing, once per run
SNAPSHOT_S = 0.2  # evaluating one: several times what it takes on MNIST
STEP_S = 0.5e-3  # a simulated gradient step: several times what it takes on MNIST
_STEPS_PER_SNAPSHOT = 100  # evaluating a snapshot on MNIST takes as long as about this many gradient steps


def updates_per_second(experiment: Experiment) -> float:
    """Expected updates of all clients together."""
    rate = experiment.rates.mean_rate
    if experiment.delays.per == "step":
        rate /= experiment.clients.local_steps
    drawn = experiment.method.drawn_per_round
    if drawn is None:  # of others that choose clients, an upper bound
        return experiment.clients.count * rate
    # A round ends with its slowest client.
    waits = sum(1 / number for number in range(1, drawn + 1))  # the slowest of several exponentials
    return drawn * rate / waits


def expected_steps(experiment: Experiment) -> float:
    """Gradient steps that a run is expected to compute unless a target or a divergence ends it."""
    stop = experiment.stop
    updates = math.inf
    if stop.horizon_s is not None:
        updates = updates_per_second(experiment) * stop.horizon_s
    if stop.iterations is not None:
        updates = min(updates, stop.iterations)
    return updates * experiment.clients.local_steps


def expected_cost(experiment: Experiment) -> float:
    """Expected time of a run, evaluation included, in units of a gradient step."""
    record = experiment.record
    snapshots = 0.0
    if record.snapshots == "grid" and experiment.problem.takes_data:
        snapshots = (experiment.stop.horizon_s or 0.0) / record.interval_s
    return expected_steps(experiment) + _STEPS_PER_SNAPSHOT * snapshots


def expected_duration_s(experiment: Experiment) -> float:
    """Real time that a run is expected to take on MPI, at most."""
    stop = experiment.stop
    duration_s = math.inf
    if stop.horizon_s is not None:
        duration_s = stop.horizon_s
    if stop.iterations is not None:
        duration_s = min(duration_s, stop.iterations / updates_per_second(experiment))
    return duration_s * experiment.clock.stretch


# ---------------------------------------------------------------------------------------------------- jobs


class Walltime(NamedTuple):
    """An estimate for a job that makes runs one after the other, and how it comes about."""

    seconds: float
    sum: str


def walltime_on_mpi(runs: Sequence[Experiment], ranks: int) -> Walltime:
    """Of runs in real time."""
    clock_s = sum(run.clock.stretch * _longest_s(run) for run in runs)
    snapshots = sum(_snapshots(run) for run in runs)
    return Walltime(
        SET_UP_S + RANK_S * ranks + clock_s + DRAIN_S * len(runs) + SNAPSHOT_S * snapshots,
        f"{SET_UP_S:g} s set-up + {RANK_S:g} s x {ranks} ranks + {_counted(runs)} of {clock_s:,.0f} s in all (horizon "
        f"x stretch of the clock) + {DRAIN_S:g} s per run to start and drain + {SNAPSHOT_S:g} s x {snapshots:,.0f} "
        "snapshots to evaluate",
    )


def walltime_in_simulator(runs: Sequence[Experiment], cores: int) -> Walltime:
    """Of runs in virtual time."""
    steps = sum(expected_cost(run) for run in runs)
    return Walltime(
        SET_UP_S + STEP_S * steps / cores,
        f"{SET_UP_S:g} s set-up + {STEP_S * 1e3:g} ms x {steps:,.0f} gradient steps (evaluation included) of "
        f"{_counted(runs)} on {cores} core{'s' * (cores != 1)}",
    )


def _counted(runs: Sequence[Experiment]) -> str:
    return f"{len(runs):,} run{'s' * (len(runs) != 1)}"


def _longest_s(run: Experiment) -> float:
    """How long the run's clock goes, at most, or as expected where only the iterations are given."""
    if run.stop.horizon_s is not None:
        return run.stop.horizon_s
    assert run.stop.iterations is not None
    if not run.delays.follows_rates:
        whose = "a trace" if run.delays.source is not None else run.delays.name
        raise UserError(f"the delays are those of {whose}, and there is no stop.horizon_s; give a --walltime")
    return run.stop.iterations / updates_per_second(run)


def _snapshots(run: Experiment) -> float:
    """About how many models are evaluated after the run."""
    record = run.record
    aggregation = run.aggregation
    if not run.problem.takes_data or record.snapshots == "none":
        return 1
    if record.snapshots == "grid":
        return _longest_s(run) / record.interval_s + 1
    if aggregation.delta is None:
        assert aggregation.mean_period_s is not None
        return _longest_s(run) / aggregation.mean_period_s + 1
    return _longest_s(run) * updates_per_second(run) / aggregation.delta + 1
