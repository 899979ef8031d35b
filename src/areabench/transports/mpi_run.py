"""One run in real time on the ranks of a launch: what all ranks do together, and what a worker's rank does.

Worker ranks load this module, so it loads nothing that only the server needs; `server_rank` has rank 0's part.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from areabench.engine.client import Placement, place_clients
from areabench.engine.events import Status
from areabench.engine.messages import check_limits
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import ServerGone, UserError
from areabench.experiment.experiment import Experiment
from areabench.host import Meter, process_began_at
from areabench.kernels import Kernels, check_bits, kernels_in_force, of_all
from areabench.plugins.call import check_parts, exit_failure
from areabench.plugins.trust import trusted_folders
from areabench.privacy.keys import KeyPair
from areabench.privacy.masks import MaskKeeper, Secrecy, covering
from areabench.threads import limited_threads
from areabench.transports.clock import RealClock, sharpen_sleep
from areabench.transports.mpi_server import MpiHelperLink
from areabench.transports.mpi_worker import MpiWorkerLink, keep_masks, receive_memories
from areabench.transports.options import RunOptions
from areabench.transports.signals import LISTENING, STOP_SIGNALS, CheckpointTriggers
from areabench.transports.worker_loop import ClientRoundFailure, HostedClient, Worker
from areabench.transports.world import World

if TYPE_CHECKING:
    from areabench.engine.diagnosis import Diagnosis

_HELPER = -1  # in place of a client


@dataclass(frozen=True)
class MpiResult:
    """How a run on MPI ended: the same on all ranks, but rank 0 alone has the diagnosis of a run that has ended."""

    status: Status
    output: Path
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class RankContext:
    """One run as a rank sees it."""

    world: World
    scenario: Scenario
    options: RunOptions
    placement: Placement
    hosts: Sequence[str]  # one per rank
    kernels: Kernels  # of all nodes, on rank 0
    began_at: float  # Unix time at which the launch began
    triggers: CheckpointTriggers
    helper: MpiHelperLink | None = None  # on rank 0, with secure aggregation
    keeper: MaskKeeper | None = None  # on the helper's rank

    @property
    def survives_losses(self) -> bool:
        """Whether the ranks continue without lost ones; a sweep ends with the run that loses a client."""
        return self.options.checkpoint_s is not None


@dataclass(frozen=True)
class ResumePoint:
    """Where the clients of a resumed run continue."""

    time_s: float
    rounds: Mapping[int, int]  # that each client has ended
    local_steps: Mapping[int, int]  # that these took of its samples
    since_s: Mapping[int, float]  # when the delay of each order in flight began
    remembering: frozenset[int]  # clients that get their memories back


@limited_threads()
def run_on_mpi(
    load: Callable[[], Experiment],
    options: RunOptions,
    world: World,
    began_at: float | None = None,
    *,
    resumes: bool = False,
    folders: Sequence[str] | None = None,
) -> MpiResult:
    """One run on the ranks of this world; the experiment is loaded on rank 0 only.

    `began_at` (Unix time) is when this run of several began; None: when the process did. Modules are looked for in
    `folders`; None: where the experiment, which is the user's own, says.
    """
    with CheckpointTriggers(options.checkpoint_s if world.rank == 0 else None) as triggers:
        if world.rank == 0:
            world.report(LISTENING)
        elif options.checkpoint_s is not None:
            # Launchers and schedulers send the signals that stop a run to every rank; rank 0 acts on them for all.
            for each in STOP_SIGNALS:
                signal.signal(each, signal.SIG_IGN)
        experiment = _share_experiment(load, world)
        folders = experiment.module_folders or () if folders is None else folders
        world.together(lambda: check_parts(experiment, folders))
        if experiment.data is not None:
            data = experiment.data
            world.together(lambda: data.prepare(options.cache) if world.first_on_node else None)
        scenario = world.together(lambda: build_scenario(experiment, options.cache, folders, prepared=True))
        world.together(lambda: check_limits(scenario.shapes))  # whether this MPI can carry its models
        world.together(lambda: check_bits(experiment.bits))
        context = RankContext(
            world=world,
            scenario=scenario,
            options=options,
            placement=place_clients(experiment, world.size),
            hosts=world.gather_hosts(),
            kernels=of_all(list(filter(None, world.gather(kernels_in_force() if world.first_on_node else None)))),
            began_at=process_began_at() if began_at is None else began_at,
            triggers=triggers,
        )
        context = _agree_on_keys(context)
        if context.keeper is not None:
            return _run_helper(context, context.keeper, resumes=resumes)
        if world.rank:
            return _run_worker(context, resumes=resumes)
        return run_server(context, resumes=resumes)


def resume_on_mpi(path: Path, options: RunOptions, world: World, trusted: Sequence[str] = ()) -> MpiResult:
    """Continue a run from its checkpoint."""

    def load() -> Experiment:
        from areabench.plugins.trust import check_trusted
        from areabench.runfile.read import open_run
        from areabench.transports.session import resumable  # with HDF5, which no other rank needs

        with open_run(path) as run:
            resumable(run)
            check_trusted(run.experiment, path, trusted)
            if run.provenance.transport != "mpi":
                raise UserError(f"{path}: was simulated; resume it without mpirun: areabench resume {path}")
            return run.experiment

    folders = trusted_folders(trusted)
    return run_on_mpi(load, replace(options, output=path), world, resumes=True, folders=folders)


def _share_experiment(load: Callable[[], Experiment], world: World) -> Experiment:
    """The experiment on all ranks: rank 0 loads it and sends it to the others."""

    def load_on_server() -> Experiment | None:
        if world.rank:
            return None
        experiment = load()
        place_clients(experiment, world.size)  # a UserError here comes before the data are loaded
        if experiment.faults.lost:
            raise UserError("faults.lost: is for the simulator only; on MPI leave it out, and end ranks instead")
        return experiment

    experiment = world.from_server(load_on_server)
    assert experiment is not None
    return experiment


def _agree_on_keys(context: RankContext) -> RankContext:
    """What this rank has of secure aggregation: new keys, of which the public ones travel through the server."""
    world = context.world
    scenario = context.scenario
    placement = context.placement
    privacy = scenario.experiment.privacy
    helper = placement.helper
    if privacy is None or helper is None:
        return context
    own = (_HELPER,) if world.rank == helper else tuple(placement.hosted(world.rank))
    pairs = {number: KeyPair() for number in own}
    # The server passes public keys on, and learns no mask: a mask needs one of the private keys.
    gathered = world.gather({number: pair.public for number, pair in pairs.items()})
    public = world.from_server(lambda: {number: key for part in gathered for number, key in part.items()})
    like = scenario.shapes.payload
    if world.rank == helper:
        keeper = MaskKeeper(
            lambda client: pairs[_HELPER].agree(public[client], client), placement.clients, like, privacy.threshold
        )
        return replace(context, keeper=keeper)
    if world.rank:
        return replace(context, scenario=replace(scenario, secrecy=covering(pairs, public[_HELPER], like)))
    link = MpiHelperLink(world, helper, like)
    return replace(context, scenario=replace(scenario, secrecy=Secrecy(unmask=link.total)), helper=link)


def run_server(context: RankContext, *, resumes: bool) -> MpiResult:
    """Rank 0's part of the run."""
    from areabench.transports.server_rank import prepare_server  # with HDF5, evaluation and diagnosis

    server = prepare_server(context, resumes=resumes)
    status = context.world.from_server(server.serve)
    return MpiResult(status, server.output, server.diagnosis)


def _run_worker(context: RankContext, *, resumes: bool) -> MpiResult:
    """A worker's part of the run, in step with `prepare_server`."""
    world = context.world
    starts_at_s = 0.0
    # Before the server opens the run file: where a client cannot be made, no file is left.
    hosted = world.together(lambda: _host_clients(context))
    if resumes:
        point: ResumePoint | None = world.from_server(lambda: None)
        assert point is not None
        world.together(lambda: _restore_clients(context, hosted, point))
        starts_at_s = point.time_s
    world.together(lambda: None)  # the server opens the run file
    status: Status | None = world.from_server(lambda: _work(context, hosted, starts_at_s))
    assert status is not None
    return MpiResult(status, context.options.output_for(context.scenario.experiment))


def _run_helper(context: RankContext, keeper: MaskKeeper, *, resumes: bool) -> MpiResult:
    """The helper's part of the run, in step with `prepare_server`: it takes none in what comes before the start."""
    world = context.world
    world.together(lambda: None)
    if resumes:
        world.from_server(lambda: None)
        world.together(lambda: None)
    world.together(lambda: None)  # the server opens the run file
    status: Status | None = world.from_server(lambda: _keep_masks(context, keeper))
    assert status is not None
    return MpiResult(status, context.options.output_for(context.scenario.experiment))


def _keep_masks(context: RankContext, keeper: MaskKeeper) -> None:
    """Give sums of masks until the run is over."""
    world = context.world
    world.together(lambda: None)
    world.barrier()
    world.survives_losses = context.survives_losses
    meter = Meter()
    if keep_masks(world, keeper, context.scenario.shapes.payload):
        world.shrink()
    world.gather(meter.read(world.host))


def _host_clients(context: RankContext) -> dict[int, HostedClient]:
    """The clients of this rank, each with its own delays."""
    scenario = context.scenario
    delays = context.scenario.delays()
    if context.survives_losses:
        scenario.check_secret()
    numbers = context.placement.hosted(context.world.rank)
    begin = partial(scenario.begin_round, delays)
    return {number: HostedClient(scenario.client(number), begin, scenario.stepwise) for number in numbers}


def _restore_clients(context: RankContext, hosted: Mapping[int, HostedClient], point: ResumePoint) -> None:
    """Bring the clients of this rank to where they were when the run stopped."""
    # Delays continue where they were, so each client draws from a stream that has skipped its rounds.
    delays = context.scenario.delays()
    remembering = [number for number in hosted if number in point.remembering]
    memories = receive_memories(context.world, remembering, context.scenario.shapes.memory)
    for number, each in hosted.items():
        if rounds := point.rounds.get(number, 0):
            steps = point.local_steps[number]
            each.client.resume(rounds, steps, memories.get(number))
            delays.skip_rounds(number, rounds, steps)
        each.begin_round = partial(context.scenario.begin_round, delays)
        each.sent_s = point.since_s.get(number, 0.0)


def _work(context: RankContext, hosted: Mapping[int, HostedClient], starts_at_s: float) -> None:
    """Host clients until the server stops them, and report a failure to it."""
    world = context.world
    experiment = context.scenario.experiment
    shapes = context.scenario.shapes
    link = world.together(lambda: MpiWorkerLink(world, list(hosted), shapes))
    sharpen_sleep()
    clock = RealClock(experiment.clock.stretch, starts_at_s)
    server_gone = world.liveness.server_gone
    world.barrier()
    world.survives_losses = context.survives_losses
    clock.start()
    meter = Meter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # the status reports a run that diverges
            Worker(link, hosted, clock, world.cores, server_gone).work()
    except ServerGone:
        raise
    except ClientRoundFailure as failure:
        ended = failure.__cause__
        told = exit_failure(ended, experiment) if isinstance(ended, SystemExit) else failure
        link.fail(failure.client, str(told))
    except SystemExit as ended:
        link.fail(next(iter(hosted)), str(exit_failure(ended, experiment)))
    except Exception:  # any: the server must be told
        link.fail(next(iter(hosted)), traceback.format_exc())
    link.leave(server_gone)
    if link.shrunk:
        world.shrink()
    world.gather(meter.read(world.host))
