"""Rank 0 in a run on MPI: it writes the run file, serves, stops the clients and judges the run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress

from areabench.engine.conductor import TargetWatch
from areabench.engine.diagnosis import Diagnosis, RunObservations, diagnose
from areabench.engine.evaluation import BackgroundWatch, NoTarget
from areabench.engine.events import State, Status
from areabench.engine.state import RunState
from areabench.errors import ClientsLost, RunFailure
from areabench.experiment.files import file_digests
from areabench.host import Footprint, Meter
from areabench.plugins.modules import loaded, to_text
from areabench.progress import ProgressLine
from areabench.runfile.checkpoint import Checkpoint
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import Run, open_run
from areabench.runfile.record import Recorder
from areabench.threads import threads_in_force
from areabench.transports.clock import sharpen_sleep
from areabench.transports.mpi_run import RankContext, ResumePoint
from areabench.transports.mpi_server import MpiServerLink, send_memories
from areabench.transports.server_loop import RealTimeServer, RunMonitors
from areabench.transports.session import (
    checkpoint_of,
    continue_recorder,
    open_recorder,
    progress_line,
    record_run,
    solve_ahead,
)
from areabench.transports.signals import BEGUN
from areabench.transports.world import AbortRequired


def prepare_server(context: RankContext, *, resumes: bool) -> ServerRun:
    """Solve what must be solved ahead and open the run file; every step is in step with the workers."""
    world = context.world
    world.together(context.scenario.delays)  # a trace may be missing
    if not resumes:
        return world.together(lambda: _new_run(context))
    found: list[tuple[Run, Checkpoint]] = []
    with ExitStack() as files:

        def read_resume_point() -> ResumePoint:
            run = files.enter_context(open_run(context.options.output_for(context.scenario.experiment)))
            checkpoint = checkpoint_of(run, context.scenario)
            found.append((run, checkpoint))
            run_state = checkpoint.run_state
            since_s = {open_order.order.client: open_order.since_s for open_order in run_state.open_orders}
            remembering = frozenset(checkpoint.memories)
            return ResumePoint(run_state.time_s, run_state.rounds, run_state.local_steps, since_s, remembering)

        world.from_server(read_resume_point)
        ((run, checkpoint),) = found
        world.together(lambda: send_memories(world, context.placement, checkpoint.memories))
        return world.together(lambda: _resumed_run(context, run, checkpoint))


def _new_run(context: RankContext) -> ServerRun:
    scenario = context.scenario
    options = context.options
    hosts = list(context.hosts)
    experiment = scenario.experiment
    progress = progress_line(experiment, options)
    solve_ahead(scenario, progress, options.cache)
    modules = to_text(loaded(experiment))
    provenance = gather_provenance(
        "mpi", options.command, threads_in_force(os.environ), experiment.seed, context.world.library, hosts, modules,
        scenario.data_digest, context.kernels, file_digests(experiment),
    )  # fmt: skip
    recorder = open_recorder(scenario, options, live=False)
    recorder.begin(provenance, scenario.client_table(context.placement, hosts))
    return ServerRun(context, recorder, progress)


def _resumed_run(context: RankContext, run: Run, checkpoint: Checkpoint) -> ServerRun:
    scenario = context.scenario
    options = context.options
    progress = progress_line(scenario.experiment, options)
    solve_ahead(scenario, progress, options.cache)
    clients = scenario.client_table(context.placement, list(context.hosts))
    recorder = continue_recorder(run, checkpoint, clients, scenario, options, context.kernels, live=False)
    run_state = checkpoint.run_state
    forgotten: set[int] = set()  # have worked, and the checkpoint does not have their memories; lost ones need none
    if scenario.shapes.memory is not None:
        forgotten = run_state.rounds.keys() - checkpoint.memories.keys() - set(run_state.lost)
    return ServerRun(context, recorder, progress, run_state, forgotten)


class ServerRun:
    """The server's part of one run, whose run file is open.

    `run_state` is where a resumed run continues, without the clients that are `forgotten`.
    """

    def __init__(
        self,
        context: RankContext,
        recorder: Recorder,
        progress: ProgressLine,
        run_state: RunState | None = None,
        forgotten: Collection[int] = (),
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._progress = progress
        self._run_state = run_state
        self._forgotten = forgotten
        self.output = recorder.path
        self.diagnosis: Diagnosis | None = None  # of a run that has ended
        self._left_behind = ""  # how the run ended, where clients did not leave

    def serve(self) -> Status:
        """Run to the end and evaluate; raises AbortRequired where ranks are left that no longer listen."""
        try:
            remarks = self._context.options.remarks
            status = record_run(self._recorder, self._context.scenario, self._progress, self._play, remarks=remarks)
        except ClientsLost as error:
            raise AbortRequired(f"{error}; all ranks are ended") from error
        if self._left_behind:
            raise AbortRequired(self._left_behind)
        return status

    def _play(self) -> Status:
        """Serve, stop the clients whatever happens, and judge how well the run kept its delays."""
        context = self._context
        world = self._context.world
        problem = self._context.scenario.problem
        sharpen_sleep()
        stop = context.scenario.experiment.stop
        target: TargetWatch = NoTarget()
        if stop.has_target:
            target = BackgroundWatch(stop, problem)
        monitors = RunMonitors(
            target, self._progress, context.triggers, self._ended_clients, not world.fault_tolerant, self._warn
        )

        def build() -> tuple[MpiServerLink, RealTimeServer]:
            link = MpiServerLink(world, context.placement, context.scenario.shapes, context.helper)
            return link, RealTimeServer(
                context.scenario, link, self._recorder, monitors,
                spare_cores=world.cores.spare, run_state=self._run_state, forgotten=self._forgotten,
            )  # fmt: skip

        link, server = world.together(build)
        # From here on all clocks run; a rank that is lost before this point ends the launch.
        world.barrier()
        world.survives_losses = context.survives_losses
        world.report(BEGUN)
        start_up_s = time.time() - context.began_at
        meter = Meter()
        try:
            status = _run_to_end(server)
        except ClientsLost:
            raise
        except (Exception, SystemExit) as error:
            if server.all_left:
                raise
            raise AbortRequired(f"{error}; all ranks are ended") from error
        finally:
            footprints = self._close(server, link, meter)
            if isinstance(target, BackgroundWatch):
                target.close()
        # Ranks that no longer listen are ended by an abort, once the file is complete.
        if not server.all_left:
            self._left_behind = f"{status.state.text} ({status.reason}), and clients that did not leave are ended"
        elif status.state not in (State.STOPPED, State.FAILED):
            self.diagnosis = diagnose(self._observed(server, status.end_s, footprints, start_up_s))
            self._recorder.diagnosis(self.diagnosis)
        return status

    def _warn(self, text: str) -> None:
        """Say something on a line of its own."""
        self._progress.close()
        print(f"areabench: {text}", file=sys.stderr, flush=True)

    def _ended_clients(self) -> list[int]:
        """The clients whose processes on this machine have ended; a fault-tolerant MPI knows most by itself."""
        world = self._context.world
        placement = self._context.placement
        ranks = world.ended_unnoticed() if world.fault_tolerant else world.liveness.gone()
        return sorted(client for rank in ranks for client in placement.hosted(rank))

    def _close(self, server: RealTimeServer, link: MpiServerLink, meter: Meter) -> tuple[Footprint, ...]:
        """Close the link once all clients have left, and gather what every rank took of its machine."""
        world = self._context.world
        if not server.all_left:
            return ()
        link.close()
        helper = self._context.helper
        if helper is not None:
            helper.stop(shrunk=link.shrunk)
        if link.shrunk:
            world.shrink()
        footprints = tuple(world.gather(meter.read(world.host)))
        if helper is not None and helper.alive:
            return footprints[:-1]
        return footprints

    def _observed(
        self, server: RealTimeServer, end_s: float, footprints: tuple[Footprint, ...], start_up_s: float
    ) -> RunObservations:
        """What the server knows of a run that has ended; of a resumed run, of the time since then."""
        placement = self._context.placement
        run_state = self._run_state
        served = self._recorder.tally.served(placement.clients)
        began_s = 0.0
        if run_state is not None:
            served = served - run_state.tally.served(placement.clients)
            began_s = run_state.time_s
        return RunObservations(
            experiment=self._context.scenario.experiment,
            virtual=False,
            duration_s=max(end_s - began_s, 1e-9),  # a target may be reached at once
            clients=self._context.scenario.client_table(placement, [""] * (placement.workers + 1)),
            served=served,
            rows=server.timings.rows,
            overruns=server.timings.overruns,
            compute_s=server.timings.compute_s,
            idle_s=server.idle_s,
            serving_s=server.serving_s,
            footprints=footprints,
            start_up_s=start_up_s,
            lost=server.lost,
        )


def _run_to_end(server: RealTimeServer) -> Status:
    """Serve; where that fails, stop the clients."""
    try:
        return server.run()
    except ClientsLost:  # lost clients send no last message, and the launcher does not wait
        raise
    except (Exception, SystemExit):  # a part of the user's may call sys.exit
        with suppress(RunFailure):  # the first failure is the one to report
            server.stop_clients()
        raise
