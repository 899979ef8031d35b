"""One run in real time on the ranks of a launch: what every rank does, and what a worker's rank does.

Worker ranks load this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from areabench.engine.client import place
from areabench.engine.data import prepare_data
from areabench.engine.events import Status
from areabench.engine.messages import check_limits
from areabench.engine.plugins.load import check_parts
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import ServerGone, UserError
from areabench.experiment.module_paths import trusted_folders
from areabench.experiment.parse import parse_experiment, to_toml
from areabench.experiment.records import Experiment
from areabench.host import Meter, process_began_at
from areabench.transports.clock import Clock, sharpen_sleep
from areabench.transports.mpi_worker import MpiWorkerLink, receive_memories
from areabench.transports.options import RunOptions
from areabench.transports.signals import STOPPING, Breaks
from areabench.transports.worker_loop import HostedFailure, Seat, Worker
from areabench.transports.world import Resumption, ServerLost, Stage, World, gather_footprints


def run_on_mpi(
    load: Callable[[], Experiment],
    around: RunOptions,
    world: World,
    began_at: float | None = None,
    *,
    resumes: bool = False,
    folders: Sequence[str] | None = None,
) -> tuple[Status, Path]:
    """One run on the ranks of this world; the experiment is read on rank 0 only. Returns the same on all ranks.

    A launch of several runs says when this one began; else that is when the process did. `folders` are where modules
    are looked for; None: where the experiment, which is the user's own, says.
    """
    with Breaks(around.checkpoint_s if world.rank == 0 else None) as breaks:
        _leave_signals_to_the_server(world, around)
        text = world.of_server(lambda: to_toml(_fitting(load(), world)) if world.rank == 0 else "")
        experiment = parse_experiment(text)
        folders = experiment.module_folders or () if folders is None else folders
        world.together(lambda: check_parts(experiment, folders))
        if experiment.data is not None:
            data = experiment.data
            world.together(lambda: prepare_data(data, around.cache) if world.first_on_node else None)
        scenario = world.together(lambda: _set_up(experiment, around.cache, world, folders))
        began_at = process_began_at() if began_at is None else began_at
        placement = place(experiment.clients.count, world.size)
        stage = Stage(world, placement, world.gather_hosts(), began_at, breaks)
        play = _play_resumed(scenario, stage, around) if resumes else _play_anew(scenario, stage, around)
        status = world.of_server(play)
    assert status is not None
    return status, around.output_for(experiment)


def resume_on_mpi(path: Path, around: RunOptions, world: World, trusted: Sequence[str] = ()) -> tuple[Status, Path]:
    """Go on with a run from its checkpoint."""

    def load() -> Experiment:
        from areabench.engine.plugins.trust import check_trusted
        from areabench.runfile.read import open_run
        from areabench.transports.session import resumable  # with HDF5, which no other rank needs

        with open_run(path) as run:
            resumable(run)
            check_trusted(run.experiment, path, trusted)
            if run.provenance.transport != "mpi":
                raise UserError(f"{path}: was simulated; resume it without mpirun: areabench resume {path}")
            return run.experiment

    vouched = trusted_folders(trusted)
    return run_on_mpi(load, replace(around, output=path), world, resumes=True, folders=vouched)


def _leave_signals_to_the_server(world: World, around: RunOptions) -> None:
    """Launchers and schedulers send every rank the signals that stop a run; the server heeds them for all."""
    if world.rank and around.checkpoint_s is not None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)


def _play_anew(scenario: Scenario, stage: Stage, around: RunOptions) -> Callable[[], Status | None]:
    """What this rank does in a run from the start; on rank 0 the run file is open from here on."""
    world, mine = stage.world, stage.placement.hosted(stage.world.rank)
    seats = world.together(lambda: _seats(scenario, mine))
    if world.rank == 0:
        return world.together(lambda: _server(scenario, stage, around))
    return world.together(lambda: partial(_work, scenario, seats, world, 0.0, goes_on=around.checkpoint_s is not None))


def _play_resumed(scenario: Scenario, stage: Stage, around: RunOptions) -> Callable[[], Status | None]:
    """The same in a run that goes on; rank 0 tells where it stands, and what each client remembers."""
    world, mine = stage.world, stage.placement.hosted(stage.world.rank)
    seats = world.together(lambda: _seats(scenario, mine))
    if world.rank == 0:
        return _resumed_server(scenario, stage, around)
    resumption: Resumption | None = world.of_server(lambda: None)
    assert resumption is not None
    world.together(lambda: _take_seats(scenario, world, seats, resumption))
    return world.together(lambda: partial(_work, scenario, seats, world, resumption.time_s, goes_on=True))


def _resumed_server(scenario: Scenario, stage: Stage, around: RunOptions) -> Callable[[], Status | None]:
    """Rank 0's part of it, in step with the others."""
    from areabench.transports.mpi_serve import prepare_again, read_checkpoint_of, resumption_of
    from areabench.transports.mpi_server import send_memories

    found = []

    def read() -> Resumption:
        assert around.output is not None
        found.append(read_checkpoint_of(scenario, around.output))
        return resumption_of(found[0])

    stage.world.of_server(read)
    stage.world.together(lambda: send_memories(stage.world, stage.placement, found[0].memories))
    return stage.world.together(lambda: prepare_again(scenario, stage, around, found[0]))


def _server(scenario: Scenario, stage: Stage, around: RunOptions) -> Callable[[], Status | None]:
    """What rank 0 does in the run; the run file is open from here on."""
    from areabench.transports.mpi_serve import prepare  # with HDF5, evaluation and diagnosis, which no other rank needs

    return prepare(scenario, stage, around)


def _fitting(experiment: Experiment, world: World) -> Experiment:
    """The experiment, if it fits the number of ranks."""
    place(experiment.clients.count, world.size)
    if experiment.faults.lost:
        raise UserError("faults.lost: is for the simulator only; on MPI leave it out, and end ranks instead")
    return experiment


def _set_up(experiment: Experiment, cache: Path, world: World, folders: Sequence[str]) -> Scenario:
    """The parts of the run, if this MPI can carry its models."""
    scenario = build_scenario(experiment, cache, folders)
    check_limits(experiment.clients.count, scenario.problem.dimension, scenario.problem.dtype, world.highest_tag)
    return scenario


def _seats(scenario: Scenario, clients: range) -> dict[int, Seat]:
    """The clients that a rank hosts, each with its own delays."""
    delays = scenario.delays()
    return {number: Seat(scenario.client(number), partial(delays.next_s, number)) for number in clients}


def _take_seats(scenario: Scenario, world: World, seats: dict[int, Seat], resumption: Resumption) -> None:
    """Bring a rank's clients to where they were when the run stopped."""
    problem, delays = scenario.problem, scenario.delays()
    remembering = [number for number in seats if number in resumption.remembering]
    memories = receive_memories(world, remembering, problem.dimension, problem.dtype)
    for number, seat in seats.items():
        if rounds := resumption.rounds.get(number, 0):
            seat.client.resume(rounds, memories.get(number))
            delays.skip(number, rounds)
            seat.next_delay_s = partial(delays.next_s, number)
        seat.sent_s = resumption.since_s.get(number, 0.0)


def _work(scenario: Scenario, seats: dict[int, Seat], world: World, starts_at_s: float, *, goes_on: bool) -> None:
    """A worker's rank: host clients, and tell the server when that fails."""
    dimension, dtype = scenario.problem.dimension, scenario.problem.dtype
    link = world.together(lambda: MpiWorkerLink(world, list(seats), dimension, dtype))
    sharpen_sleep()
    clock, server_gone = Clock(scenario.experiment.clock.stretch, starts_at_s), world.liveness.server_gone
    world.barrier()
    world.go_on_without = goes_on
    clock.start()
    meter = Meter()
    try:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told by its status
                Worker(link, seats, clock, world.cores, server_gone).work()
        except ServerGone:
            raise
        except HostedFailure as failure:
            link.fail(failure.client, str(failure))
        except Exception:  # whatever it is, the server must hear of it
            link.fail(next(iter(seats)), traceback.format_exc())
        link.depart(server_gone)
    except ServerGone as gone:
        raise ServerLost(str(gone)) from gone
    if link.shrunk:
        world.shrink()
    gather_footprints(world, meter)
