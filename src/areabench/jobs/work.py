"""What a job has to do: the runs of its file, their ranks, and how long they may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from areabench.config import load_experiment
from areabench.errors import UserError
from areabench.experiment import EveryPeriod, Experiment, PoissonAggregation, TraceDelays
from areabench.jobs.request import Request
from areabench.outside_settings import OutsidePart, slug
from areabench.problem_settings import DrawnSettings
from areabench.sweeps.passes import expected_cost, updates_a_second
from areabench.sweeps.reading import load_sweep
from areabench.sweeps.run import MPI
from areabench.sweeps.share import Share
from areabench.toml_reading import read_text, read_toml
from areabench.trust import trust_options

SET_UP_S = 120.0  # modules, environment and Python from a shared file system, once a job
RANK_S = 0.5  # more set-up a rank
DRAIN_S = 30.0  # split, barrier, the last updates and the writing, once a run
SNAPSHOT_S = 0.2  # evaluating one: several times what it takes on MNIST
STEP_S = 0.5e-3  # a simulated gradient step: several times what it takes on MNIST


@dataclass(frozen=True)
class Work:
    """The runs of a job."""

    name: str
    sweep: bool
    output: Path  # run file, or folder of a sweep
    runs: int
    ranks: int  # 0 in the simulator
    walltime_s: float  # of the longest task
    formula: str  # of the walltime
    trust: str = ""  # options with which a single run is resumed that calls code of the user's own


def work_of(request: Request) -> Work:
    """Read the file of a request."""
    table = read_toml(read_text(request.file), str(request.file))
    if "sweep" in table or "extends" in table:
        return _sweep(request)
    if request.trials is not None or request.array is not None:
        option = "--trials" if request.trials is not None else "--array"
        raise UserError(f"{option}: {request.file} is one run; add a section [sweep] to it, or leave {option} out")
    experiment = load_experiment(request.file, request.overrides)
    name = f"{experiment.name}-{slug(experiment.method.name)}-{experiment.seed}"
    work = _work(request, name, Path(f"{name}{_ending(request)}.h5"), [[experiment]], sweep=False)
    return replace(work, trust=trust_options(experiment))


def _sweep(request: Request) -> Work:
    plan, tasks = load_sweep(request.file, request.overrides, request.trials), request.array or 1
    if tasks > len(plan.members):
        raise UserError(f"--array {tasks}: the sweep has {len(plan.members)} runs; use that many tasks or fewer")
    shares = [Share(number, tasks).taken_from(plan).members for number in range(1, tasks + 1)]
    runs = [[each.experiment for each in share if each.experiment is not None] for share in shares]
    return _work(request, plan.name, Path(f"{plan.name}{_ending(request)}"), runs, sweep=True)


def _ending(request: Request) -> str:
    return "-mpi" if request.transport == MPI else ""


def _work(request: Request, name: str, output: Path, tasks: Sequence[Sequence[Experiment]], *, sweep: bool) -> Work:
    runs, on_mpi = [run for task in tasks for run in task], request.transport == MPI
    ranks = _ranks(runs, request.clients_per_rank) if on_mpi else 0
    if request.nodes > max(ranks, 1):
        raise UserError(f"--nodes {request.nodes}: there are only {ranks} ranks; use that many nodes or fewer")
    if request.walltime is not None:
        walltime_s, formula = 0.0, "as asked for"
    elif on_mpi:
        walltime_s, formula = max(_real_time(task, ranks) for task in tasks)
    else:
        walltime_s, formula = max(_virtual_time(task, request.cores) for task in tasks)
    return Work(name, sweep, request.runs or Path("runs") / output, len(runs), ranks, walltime_s, formula)


def _ranks(runs: Sequence[Experiment], clients_per_rank: int) -> int:
    """The server's rank, and so many more that none has more clients; a run of fewer clients leaves some idle."""
    clients = max(run.clients.count for run in runs)
    if clients_per_rank > clients:
        raise UserError(
            f"--clients-per-rank {clients_per_rank}: there are {clients} clients; use a number from 1 to {clients}"
        )
    return 1 + math.ceil(clients / clients_per_rank)


# ---------------------------------------------------------------------------------------------------- walltime


def _real_time(runs: Sequence[Experiment], ranks: int) -> tuple[float, str]:
    """Walltime of runs one after the other on MPI, in seconds, and how it comes about."""
    clock_s = sum(run.clock.stretch * _duration_s(run) for run in runs)
    snapshots = sum(_snapshots(run) for run in runs)
    formula = (
        f"{SET_UP_S:g} s set-up + {RANK_S:g} s x {ranks} ranks + {len(runs)} run{'s' * (len(runs) != 1)} of "
        f"{clock_s:,.0f} s in all (horizon x stretch of the clock) + {DRAIN_S:g} s a run to start and drain "
        f"+ {SNAPSHOT_S:g} s x {snapshots:,.0f} snapshots to evaluate"
    )
    return SET_UP_S + RANK_S * ranks + clock_s + DRAIN_S * len(runs) + SNAPSHOT_S * snapshots, formula


def _virtual_time(runs: Sequence[Experiment], cores: int) -> tuple[float, str]:
    """Walltime of runs in the simulator, in seconds, and how it comes about."""
    steps = sum(expected_cost(run) for run in runs)
    formula = (
        f"{SET_UP_S:g} s set-up + {STEP_S * 1e3:g} ms x {steps:,.0f} gradient steps (evaluation included) of "
        f"{len(runs)} run{'s' * (len(runs) != 1)} on {cores} cores"
    )
    return SET_UP_S + STEP_S * steps / cores, formula


def _duration_s(run: Experiment) -> float:
    """How long the run's clock goes, at most, or as expected where only the iterations are given."""
    stop = run.stop
    if stop.horizon_s is not None:
        return stop.horizon_s
    assert stop.iterations is not None
    if isinstance(run.delays, TraceDelays | OutsidePart):
        whose = "a trace" if isinstance(run.delays, TraceDelays) else run.delays.name
        raise UserError(f"the delays are those of {whose}, and there is no stop.horizon_s; give a --walltime")
    return stop.iterations / updates_a_second(run)


def _snapshots(run: Experiment) -> float:
    """Models that are evaluated after the run, about."""
    record, aggregation, duration_s = run.record, run.aggregation, _duration_s(run)
    if isinstance(run.problem, DrawnSettings) or record.snapshots == "none":
        return 1
    if record.snapshots == "grid":
        return duration_s / record.interval_s + 1
    match aggregation:
        case EveryPeriod():
            return duration_s / aggregation.period_s + 1
        case PoissonAggregation():
            return duration_s * aggregation.rate + 1
        case _:
            return duration_s * updates_a_second(run) / aggregation.updates + 1
