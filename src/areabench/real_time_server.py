"""The server's rank in a run in real time: it writes the run file, serves, stops the clients and judges the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from areabench.diagnosis import Observed, diagnose
from areabench.evaluation import BackgroundWatch, NoTarget
from areabench.execute import open_recorder, progress_line, record_run, solve_ahead
from areabench.footprint import Footprint, Meter
from areabench.onlookers import TargetWatch
from areabench.placement import Placement
from areabench.progress import ProgressLine
from areabench.provenance import gather_provenance
from areabench.recording import Recorder
from areabench.scenario import Scenario
from areabench.schema import Status
from areabench.stage import Stage, gather_footprints
from areabench.surroundings import Surroundings
from areabench.transports.mpi import MpiServerLink
from areabench.transports.serve import RealTimeServer, Watchers
from areabench.transports.waiting import sharpen_sleep
from areabench.transports.world import Unshareable, World


def prepare(scenario: Scenario, stage: Stage, around: Surroundings) -> Callable[[], Status]:
    """Solve what must be solved ahead and open the run file; returns what plays the run."""
    experiment, world = scenario.experiment, stage.world
    progress = progress_line(experiment, around)
    solve_ahead(scenario, progress)
    hosts = list(stage.hosts)
    provenance = gather_provenance("mpi", around.command, around.threads, experiment.seed, world.library, hosts)
    recorder = open_recorder(scenario, around)
    recorder.begin(provenance, scenario.client_table(stage.placement, hosts))
    return lambda: _serve(scenario, stage, recorder, progress)


def _serve(scenario: Scenario, stage: Stage, recorder: Recorder, progress: ProgressLine) -> Status:
    """Rank 0: serve, stop the clients whatever happens, and say how well it went."""
    problem, stop, world = scenario.problem, scenario.experiment.stop, stage.world
    sharpen_sleep()

    def run() -> Status:
        watch = BackgroundWatch(stop, problem) if stop.has_target else NoTarget()
        watchers = Watchers(watch, progress)

        def build() -> tuple[MpiServerLink, RealTimeServer]:
            link = MpiServerLink(world, stage.placement, problem.dimension, problem.dtype)
            return link, RealTimeServer(scenario, link, recorder, watchers, spare_cores=world.cores.spare)

        link, server = world.together(build)
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
    return gather_footprints(world, meter)


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


def _close_watch(watch: TargetWatch) -> None:
    if isinstance(watch, BackgroundWatch):
        watch.close()
