"""One run in real time on the ranks of a launch: what every rank does, and what a worker's rank does.

Worker ranks load this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from areabench import datasets
from areabench.config import parse_experiment, to_toml
from areabench.experiment import Experiment
from areabench.footprint import Meter, process_began_at
from areabench.messages import check_limits
from areabench.placement import place
from areabench.scenario import Scenario, build_scenario
from areabench.schema import Status
from areabench.stage import Stage, gather_footprints
from areabench.surroundings import Surroundings
from areabench.transports.mpi_worker import MpiWorkerLink
from areabench.transports.waiting import Clock, sharpen_sleep
from areabench.transports.work import HostedFailure, Seat, Worker
from areabench.transports.world import World


def run_on_mpi(
    load: Callable[[], Experiment], around: Surroundings, world: World, began_at: float | None = None
) -> tuple[Status, Path]:
    """One run on the ranks of this world; the experiment is read on rank 0 only. Returns the same on all ranks.

    A launch of several runs says when this one began; else that is when the process did.
    """
    experiment = parse_experiment(world.of_server(lambda: to_toml(_fitting(load(), world)) if world.rank == 0 else ""))
    placement = place(experiment.clients.count, world.size)
    if experiment.data is not None:
        data = experiment.data
        world.together(lambda: datasets.prepare(data, around.cache) if world.first_on_node else None)
    scenario = world.together(lambda: _set_up(experiment, around.cache, world))
    seats = world.together(lambda: _seats(scenario, placement.hosted(world.rank)))
    stage = Stage(world, placement, world.gather_hosts(), process_began_at() if began_at is None else began_at)
    if world.rank == 0:
        play = world.together(lambda: _server(scenario, stage, around))
    else:
        play = world.together(lambda: partial(_work, scenario, seats, world))
    status = world.of_server(play)
    assert status is not None
    return status, around.output_for(experiment)


def _server(scenario: Scenario, stage: Stage, around: Surroundings) -> Callable[[], Status | None]:
    """What rank 0 does in the run; the run file is open from here on."""
    from areabench.real_time_server import prepare  # with HDF5, evaluation and diagnosis, which no other rank needs

    return prepare(scenario, stage, around)


def _fitting(experiment: Experiment, world: World) -> Experiment:
    """The experiment, if it fits the number of ranks."""
    place(experiment.clients.count, world.size)
    return experiment


def _set_up(experiment: Experiment, cache: Path, world: World) -> Scenario:
    """The parts of the run, if this MPI can carry its models."""
    scenario = build_scenario(experiment, cache)
    check_limits(experiment.clients.count, scenario.problem.dimension, scenario.problem.dtype, world.highest_tag)
    return scenario


def _seats(scenario: Scenario, clients: range) -> dict[int, Seat]:
    """The clients that a rank hosts, each with its own delays."""
    delays = scenario.delays()
    return {number: Seat(scenario.client(number), partial(delays.next_s, number)) for number in clients}


def _work(scenario: Scenario, seats: dict[int, Seat], world: World) -> None:
    """A worker's rank: host clients, and tell the server when that fails."""
    dimension, dtype = scenario.problem.dimension, scenario.problem.dtype
    link = world.together(lambda: MpiWorkerLink(world, list(seats), dimension, dtype))
    sharpen_sleep()
    clock = Clock(scenario.experiment.clock.stretch)
    world.barrier()
    clock.start()
    meter = Meter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told by its status
            Worker(link, seats, clock, world.cores).work()
    except HostedFailure as failure:
        link.fail(failure.client, str(failure))
    except Exception:  # whatever it is, the server must hear of it
        link.fail(next(iter(seats)), traceback.format_exc())
    link.depart()
    gather_footprints(world, meter)
