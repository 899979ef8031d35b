"""One run in real time on the ranks of a launch: the server's rank writes the run file, the others host the clients."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from areabench import datasets
from areabench.conductor import TargetWatch
from areabench.config import parse_experiment, to_toml
from areabench.diagnosis import Observed, diagnose
from areabench.evaluation import BackgroundWatch, NoTarget
from areabench.execute import Surroundings, open_recorder, progress_line, record_run, solve_ahead
from areabench.experiment import Experiment
from areabench.footprint import Footprint, Meter, process_began_at
from areabench.placement import Placement, place
from areabench.progress import ProgressLine
from areabench.provenance import gather_provenance
from areabench.recording import Recorder
from areabench.scenario import Scenario, build_scenario
from areabench.schema import Status
from areabench.transports.mpi import MpiServerLink, MpiWorkerLink, Unshareable, World
from areabench.transports.serve import RealTimeServer, Watchers
from areabench.transports.waiting import Clock, sharpen_sleep
from areabench.transports.work import HostedFailure, Seat, Worker


@dataclass(frozen=True)
class Stage:
    """Where a run takes place: its ranks, who is on which, and when the launch began (Unix time)."""

    world: World
    placement: Placement
    began_at: float


def run_on_mpi(
    load: Callable[[], Experiment], around: Surroundings, world: World, began_at: float | None = None
) -> tuple[Status, Path]:
    """One run on the ranks of this world; the experiment is read on rank 0 only. Returns the same on all ranks.

    A launch of several runs says when this one began; else that is when the process did.
    """
    experiment = parse_experiment(world.of_server(lambda: to_toml(_fitting(load(), world)) if world.rank == 0 else ""))
    placement = place(experiment.clients.count, world.size)
    stage = Stage(world, placement, process_began_at() if began_at is None else began_at)
    if experiment.data is not None:
        data = experiment.data
        world.together(lambda: datasets.prepare(data, around.cache) if world.first_on_node else None)
    scenario = world.together(lambda: build_scenario(experiment, around.cache))
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
            return _serve(scenario, stage, recorder, progress)
        _work(scenario, seats, world)
        return None

    status = world.of_server(play)
    assert status is not None
    return status, around.output_for(experiment)


def _fitting(experiment: Experiment, world: World) -> Experiment:
    """The experiment, if it fits the number of ranks."""
    place(experiment.clients.count, world.size)
    return experiment


def _seats(scenario: Scenario, clients: range) -> dict[int, Seat]:
    """The clients that a rank hosts, each with its own delays."""
    delays = scenario.delays()
    return {number: Seat(scenario.client(number), partial(delays.next_s, number)) for number in clients}


def _serve(scenario: Scenario, stage: Stage, recorder: Recorder, progress: ProgressLine) -> Status:
    """Rank 0: serve, stop the clients whatever happens, and say how well it went."""
    problem, stop, world = scenario.problem, scenario.experiment.stop, stage.world
    sharpen_sleep()

    def run() -> Status:
        watch = BackgroundWatch(stop, problem) if stop.has_target else NoTarget()
        link = world.together(lambda: MpiServerLink(world, stage.placement, problem.dimension, problem.dtype))
        server = RealTimeServer(scenario, link, recorder, Watchers(watch, progress))
        world.barrier()
        start_up_s, meter = time.time() - stage.began_at, Meter()
        try:
            status = _to_the_end(server)
        except Exception as error:
            if server.alone:
                raise
            raise Unshareable(f"{error}; all ranks are ended") from error
        finally:
            footprints = _see_off(server, link, world, meter)
            _close_watch(watch)
        seen = _observed(scenario, stage.placement, server, recorder, status.end_s)
        recorder.diagnosis(diagnose(replace(seen, footprints=footprints, start_up_s=start_up_s)))
        return status

    return record_run(recorder, scenario, progress, run)


def _see_off(server: RealTimeServer, link: MpiServerLink, world: World, meter: Meter) -> tuple[Footprint, ...]:
    """When all clients have said farewell: close the link, and hear from every rank what it took."""
    if not server.alone:
        return ()
    link.close()
    return _gather_footprints(world, meter)


def _gather_footprints(world: World, meter: Meter) -> tuple[Footprint, ...]:
    """What each rank took of its machine, on rank 0; called on all ranks, before anything is evaluated."""
    return tuple(world.comm.gather(meter.read(world.host)) or ())


def _observed(
    scenario: Scenario, placement: Placement, server: RealTimeServer, recorder: Recorder, end_s: float
) -> Observed:
    """What the server knows of a run that has ended."""
    return Observed(
        experiment=scenario.experiment,
        virtual=False,
        duration_s=max(end_s, 1e-9),  # a target may be reached at once
        clients=scenario.client_table(placement, [""] * (placement.workers + 1)),
        served=recorder.tally.served(placement.clients),
        rows=server.timings.rows,
        overruns=server.timings.overruns,
        compute_s=server.timings.compute_s,
        idle_s=server.idle_s,
    )


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
    world.barrier()
    meter = Meter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told by its status
            Worker(link, seats, Clock(scenario.experiment.clock.stretch)).work()
    except HostedFailure as failure:
        link.fail(failure.client, str(failure))
    except Exception:  # whatever it is, the server must hear of it
        link.fail(next(iter(seats)), traceback.format_exc())
    link.depart()
    _gather_footprints(world, meter)


def _close_watch(watch: TargetWatch) -> None:
    if isinstance(watch, BackgroundWatch):
        watch.close()
