"""The server's rank in a run in real time: it writes the run file, serves, stops the clients and judges the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from areabench.engine.conductor import TargetWatch
from areabench.engine.diagnosis import Observed, diagnose
from areabench.engine.evaluation import BackgroundWatch, NoTarget
from areabench.engine.events import State, Status
from areabench.engine.plugins.modules import loaded, to_text
from areabench.engine.scenario import Scenario
from areabench.engine.state import RunState
from areabench.errors import ClientsLost, RunFailure
from areabench.host import Footprint, Meter
from areabench.progress import ProgressLine
from areabench.runfile.checkpoint import Checkpoint
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import open_run
from areabench.runfile.record import Recorder
from areabench.transports.clock import sharpen_sleep
from areabench.transports.mpi_server import MpiServerLink
from areabench.transports.options import RunOptions
from areabench.transports.server_loop import RealTimeServer, Watchers
from areabench.transports.session import (
    checkpoint_of,
    continue_recorder,
    open_recorder,
    progress_line,
    record_run,
    solve_ahead,
)
from areabench.transports.world import Resumption, Stage, Unshareable, World, gather_footprints


def read_checkpoint_of(scenario: Scenario, path: Path) -> Checkpoint:
    """Where a run stands that is resumed."""
    with open_run(path) as run:
        return checkpoint_of(run, scenario)


def resumption_of(checkpoint: Checkpoint) -> Resumption:
    """What the workers must know of it."""
    run_state = checkpoint.run_state
    since_s = {open_order.order.client: open_order.since_s for open_order in run_state.open_orders}
    return Resumption(run_state.time_s, run_state.rounds, since_s, frozenset(checkpoint.memories))


def prepare(scenario: Scenario, stage: Stage, around: RunOptions) -> Callable[[], Status]:
    """Solve what must be solved ahead and open the run file; returns what plays the run."""
    experiment, world, hosts = scenario.experiment, stage.world, list(stage.hosts)
    progress = progress_line(experiment, around)
    solve_ahead(scenario, progress, around.cache)
    seed, modules = experiment.seed, to_text(loaded(experiment))
    origin = gather_provenance("mpi", around.command, around.threads, seed, world.library, hosts, modules)
    recorder = open_recorder(scenario, around)
    recorder.begin(origin, scenario.client_table(stage.placement, hosts))
    return lambda: _serve(Run(scenario, stage, recorder, progress))


def prepare_again(scenario: Scenario, stage: Stage, around: RunOptions, checkpoint: Checkpoint) -> Callable[[], Status]:
    """The same for a run that is resumed."""
    experiment, hosts = scenario.experiment, list(stage.hosts)
    progress = progress_line(experiment, around)
    solve_ahead(scenario, progress, around.cache)
    with open_run(around.output_for(experiment)) as run:
        recorder = continue_recorder(run, checkpoint, scenario.client_table(stage.placement, hosts))
    return lambda: _serve(Run(scenario, stage, recorder, progress, checkpoint.run_state))


@dataclass(frozen=True)
class Run:
    """What rank 0 has to do with in a run; where it is resumed, from where it goes on."""

    scenario: Scenario
    stage: Stage
    recorder: Recorder
    progress: ProgressLine
    run_state: RunState | None = None


def _serve(its: Run) -> Status:
    """Rank 0: serve, stop the clients whatever happens, and say how well it went."""
    left_behind: list[str] = []
    try:
        status = record_run(its.recorder, its.scenario, its.progress, lambda: _play(its, left_behind))
    except ClientsLost as error:
        raise Unshareable(f"{error}; all ranks are ended") from error
    if left_behind:
        raise Unshareable(left_behind[0])
    return status


def _play(its: Run, left_behind: list[str]) -> Status:
    """The run itself; says in `left_behind` where ranks have not left in time after a signal."""
    scenario, world, stop = its.scenario, its.stage.world, its.scenario.experiment.stop
    problem = scenario.problem
    sharpen_sleep()
    watch = BackgroundWatch(stop, problem) if stop.has_target else NoTarget()
    watchers = Watchers(watch, its.progress, its.stage.breaks, _gone(its.stage), not world.fault_tolerant)

    def build() -> tuple[MpiServerLink, RealTimeServer]:
        link = MpiServerLink(world, its.stage.placement, problem.dimension, problem.dtype)
        spare = world.cores.spare
        return link, RealTimeServer(scenario, link, its.recorder, watchers, spare_cores=spare, run_state=its.run_state)

    link, server = world.together(build)
    world.barrier()
    world.go_on_without = its.stage.breaks.enabled  # a sweep ends with the run that loses a client
    start_up_s, meter = time.time() - its.stage.began_at, Meter()
    try:
        status = _to_the_end(server)
    except ClientsLost:
        raise
    except Exception as error:
        if server.alone:
            raise
        raise Unshareable(f"{error}; all ranks are ended") from error
    finally:
        footprints = _see_off(server, link, world, meter)
        _close_watch(watch)
    if not server.alone:
        left_behind.append(f"{status.state.text} ({status.reason}), and clients that did not leave are ended")
    elif status.state not in (State.STOPPED, State.FAILED):
        seen = replace(_observed(its, server, status.end_s), footprints=footprints, start_up_s=start_up_s)
        its.recorder.diagnosis(diagnose(seen))
    return status


def _gone(stage: Stage) -> Callable[[], list[int]]:
    """Which clients are gone, by the processes of this machine; a fault-tolerant MPI knows most by itself."""
    world, placement = stage.world, stage.placement

    def gone() -> list[int]:
        ranks = set(world.unnoticed() if world.fault_tolerant else world.liveness.gone())
        return [client for client in range(placement.clients) if placement.rank(client) in ranks] if ranks else []

    return gone


def _see_off(server: RealTimeServer, link: MpiServerLink, world: World, meter: Meter) -> tuple[Footprint, ...]:
    """When all clients have said farewell: close the link, and hear from every rank what it took."""
    if not server.alone:
        return ()
    link.close()
    if link.shrunk:
        world.shrink()
    return gather_footprints(world, meter)


def _observed(its: Run, server: RealTimeServer, end_s: float) -> Observed:
    """What the server knows of a run that has ended; where it was resumed, of the time since then."""
    placement, run_state = its.stage.placement, its.run_state
    served, began_s = its.recorder.tally.served(placement.clients), 0.0
    if run_state is not None:
        served, began_s = served - run_state.tally.served(placement.clients), run_state.time_s
    return Observed(
        experiment=its.scenario.experiment,
        virtual=False,
        duration_s=max(end_s - began_s, 1e-9),  # a target may be reached at once
        clients=its.scenario.client_table(placement, [""] * (placement.workers + 1)),
        served=served,
        rows=server.timings.rows,
        overruns=server.timings.overruns,
        compute_s=server.timings.compute_s,
        idle_s=server.idle_s,
        lost=server.lost,
    )


def _to_the_end(server: RealTimeServer) -> Status:
    try:
        return server.run()
    except ClientsLost:  # they say no farewell, and the launcher will not wait
        raise
    except Exception:
        with suppress(RunFailure):  # what went wrong first is what to tell
            server.dismiss()
        raise


def _close_watch(watch: TargetWatch) -> None:
    if isinstance(watch, BackgroundWatch):
        watch.close()
