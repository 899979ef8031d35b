"""One run in real time on the ranks of a launch: the server's rank writes the run file, the others host the clients."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from areabench import datasets
from areabench.conductor import TargetWatch
from areabench.config import parse_experiment, to_toml
from areabench.evaluation import BackgroundWatch, NoTarget
from areabench.execute import open_recorder, progress_line, record_run, solve_ahead
from areabench.experiment import Experiment
from areabench.messages import check_limits
from areabench.placement import Placement, place
from areabench.progress import ProgressLine
from areabench.provenance import gather_provenance
from areabench.recording import Recorder
from areabench.scenario import Scenario, build_scenario
from areabench.schema import Status
from areabench.surroundings import Surroundings
from areabench.transports.mpi import MpiServerLink, MpiWorkerLink, Unshareable, World
from areabench.transports.serve import RealTimeServer, Watchers
from areabench.transports.waiting import Clock, sharpen_sleep
from areabench.transports.work import HostedFailure, Seat, Worker


def run_on_mpi(load: Callable[[], Experiment], around: Surroundings, world: World) -> tuple[Status, Path]:
    """One run on the ranks of this world; the experiment is read on rank 0 only. Returns the same on all ranks."""
    experiment = parse_experiment(world.of_server(lambda: to_toml(_fitting(load(), world)) if world.rank == 0 else ""))
    placement = place(experiment.clients.count, world.size)
    if experiment.data is not None:
        data = experiment.data
        world.together(lambda: datasets.prepare(data, around.cache) if world.first_on_node else None)
    scenario = world.together(lambda: _set_up(experiment, around.cache, world))
    seats = world.together(lambda: _seats(scenario, placement.hosted(world.rank)))
    hosts, progress = world.gather_hosts(), progress_line(experiment, around)
    world.together(lambda: solve_ahead(scenario, progress) if world.rank == 0 else None)
    recorder = world.together(lambda: open_recorder(scenario, around) if world.rank == 0 else None)
    if recorder is not None:
        recorder.provenance(
            gather_provenance("mpi", around.command, around.threads, experiment.seed, world.library, hosts)
        )
        recorder.clients(scenario.client_table(placement, hosts))

    def play() -> Status | None:
        if recorder is not None:
            return _serve(scenario, placement, recorder, progress, world)
        _work(scenario, seats, world)
        return None

    status = world.of_server(play)
    assert status is not None
    return status, around.output_for(experiment)


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


def _serve(
    scenario: Scenario, placement: Placement, recorder: Recorder, progress: ProgressLine, world: World
) -> Status:
    """Rank 0: serve, and stop the clients whatever happens."""
    problem, stop = scenario.problem, scenario.experiment.stop
    sharpen_sleep()

    def run() -> Status:
        watch = BackgroundWatch(stop, problem) if stop.has_target else NoTarget()
        link = world.together(lambda: MpiServerLink(world, placement, problem.dimension, problem.dtype))
        server = RealTimeServer(scenario, link, recorder, Watchers(watch, progress))
        world.barrier()
        try:
            return _to_the_end(server)
        except Exception as error:
            if server.alone:
                raise
            raise Unshareable(f"{error}; all ranks are ended") from error
        finally:
            if server.alone:
                link.close()
            _close_watch(watch)

    return record_run(recorder, scenario, progress, run)


def _to_the_end(server: RealTimeServer) -> Status:
    try:
        return server.run()
    except Exception:
        server.dismiss()
        raise


def _work(scenario: Scenario, seats: dict[int, Seat], world: World) -> None:
    """A worker's rank: host clients, and tell the server when that fails."""
    dimension, dtype = scenario.problem.dimension, scenario.problem.dtype
    link = world.together(lambda: MpiWorkerLink(world, list(seats), dimension, dtype))
    sharpen_sleep()
    clock = Clock(scenario.experiment.clock.stretch)
    world.barrier()
    clock.start()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told by its status
            Worker(link, seats, clock).work()
    except HostedFailure as failure:
        link.fail(failure.client, str(failure))
    except Exception:  # whatever it is, the server must hear of it
        link.fail(next(iter(seats)), traceback.format_exc())
    link.depart()


def _close_watch(watch: TargetWatch) -> None:
    if isinstance(watch, BackgroundWatch):
        watch.close()
