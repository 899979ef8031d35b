"""One run with everything around it: scenario, run file, transport, evaluation, status."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from areabench import datasets
from areabench.client import Client
from areabench.conductor import TargetWatch
from areabench.config import parse_experiment, to_toml
from areabench.errors import RunFailure, UserError, one_line
from areabench.evaluation import BackgroundWatch, NoTarget, evaluate_models, loss_wanted
from areabench.experiment import Experiment, Theorem1Schedule, Theorem2Schedule
from areabench.lane_recorder import evaluate_lanes, play_lanes
from areabench.lanes import lane_scenario
from areabench.problem_settings import Logistic, Median, Robust
from areabench.problems.base import Metrics, Problem, Vector
from areabench.progress import ProgressLine, Style
from areabench.provenance import gather_provenance
from areabench.recording import Recorder
from areabench.scenario import Scenario, build_scenario
from areabench.schema import State, Status
from areabench.transports.simulator import Simulator
from areabench.transports.waiting import sharpen_sleep

if TYPE_CHECKING:
    from areabench.transports.mpi import World
    from areabench.transports.serve import RealTimeServer


@dataclass(frozen=True)
class Surroundings:
    """What a run needs besides its experiment; the command line fills it in."""

    output: Path | None
    cache: Path
    command: str
    threads: str
    force: bool
    progress: Style

    def output_for(self, experiment: Experiment) -> Path:
        """The run file: the one asked for, or one named after the experiment."""
        return self.output or Path("runs") / f"{experiment.name}-{experiment.method.name}-{experiment.seed}.h5"


def simulate(experiment: Experiment, around: Surroundings) -> Status:
    """One run in the simulator."""
    scenario, progress = build_scenario(experiment, around.cache), _progress(experiment, around)
    _solve_ahead(scenario, progress)
    recorder = _open_recorder(scenario, around)
    recorder.provenance(gather_provenance("simulator", around.command, around.threads, experiment.seed))
    recorder.clients(scenario.client_table())
    return _record(recorder, scenario, progress, lambda: Simulator(scenario, recorder, progress).run())


def simulate_together(experiments: Sequence[Experiment], outputs: Sequence[Path], around: Surroundings) -> list[Status]:
    """One pass over experiments that `group_lanes` put together, a run file each; one alone is run as by `simulate`."""
    if len(experiments) == 1:
        return [simulate(experiments[0], replace(around, output=outputs[0]))]
    scenario = build_scenario(experiments[0], around.cache)
    provenance = gather_provenance("simulator", around.command, around.threads, experiments[0].seed)
    progress = _progress(experiments[0], around)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = play_lanes(lane_scenario(scenario, experiments), progress)
        progress.close("evaluating the snapshots")
        metrics = evaluate_lanes(scenario.problem, ends, experiments[0].record.loss_every)
    progress.close()
    for lane, end in enumerate(ends):
        own = replace(scenario, experiment=experiments[lane])
        recorder = _open_recorder(own, replace(around, output=outputs[lane]))
        recorder.provenance(replace(provenance, lanes=len(ends), lane=lane))
        recorder.clients(scenario.client_table())
        end.write(recorder, metrics[lane])
    return [end.status for end in ends]


def run_on_mpi(load: Callable[[], Experiment], around: Surroundings, world: World) -> tuple[Status, Path]:
    """One run on the ranks of this launch; the experiment is read on rank 0 only. Returns the same on all ranks."""
    experiment = parse_experiment(
        world.of_server(lambda: to_toml(_fitting(load(), world.size)) if world.rank == 0 else "")
    )
    if experiment.data is not None:
        data = experiment.data
        world.together(lambda: datasets.prepare(data, around.cache) if world.first_on_node else None)
    scenario = world.together(lambda: build_scenario(experiment, around.cache))
    client = world.together(lambda: scenario.client(world.rank - 1) if world.rank > 0 else None)
    hosts = world.gather_hosts()
    progress = _progress(experiment, around)
    world.together(lambda: _solve_ahead(scenario, progress) if world.rank == 0 else None)
    recorder = world.together(lambda: _open_recorder(scenario, around) if world.rank == 0 else None)
    if recorder is not None:
        recorder.provenance(
            gather_provenance("mpi", around.command, around.threads, experiment.seed, world.library, hosts)
        )
        recorder.clients(scenario.client_table(hosts))

    def play() -> Status | None:
        if recorder is not None:
            return _serve(scenario, recorder, progress, world)
        assert client is not None
        _work(scenario, client, world)
        return None

    status = world.of_server(play)
    assert status is not None
    return status, around.output_for(experiment)


def _fitting(experiment: Experiment, ranks: int) -> Experiment:
    """The experiment, if it fits the number of ranks."""
    needed = experiment.clients.count + 1
    if ranks != needed:
        raise UserError(
            f"{ranks} rank{'s' * (ranks != 1)} for clients.count = {experiment.clients.count}: one server and "
            f"{experiment.clients.count} clients need {needed} ranks; type `mpirun -n {needed} areabench run ...`, "
            "or `areabench launch ...`, which does it for you, or `areabench simulate ...`, which needs no MPI"
        )
    return experiment


def _serve(scenario: Scenario, recorder: Recorder, progress: ProgressLine, world: World) -> Status:
    """Rank 0: serve, and stop the clients whatever happens."""
    from areabench.transports.mpi import MpiServerLink, Unshareable
    from areabench.transports.serve import RealTimeServer, Watchers

    problem, stop = scenario.problem, scenario.experiment.stop
    sharpen_sleep()

    def run() -> Status:
        watch = BackgroundWatch(stop, problem) if stop.has_target else NoTarget()
        link = world.together(
            lambda: MpiServerLink(world, scenario.experiment.clients.count, problem.dimension, problem.dtype)
        )
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

    return _record(recorder, scenario, progress, run)


def _to_the_end(server: RealTimeServer) -> Status:
    try:
        return server.run()
    except Exception:
        server.dismiss()
        raise


def _work(scenario: Scenario, client: Client, world: World) -> None:
    """A client's rank: work, and tell the server when that fails."""
    from areabench.transports.mpi import MpiClientLink
    from areabench.transports.work import work

    number, delays = world.rank - 1, scenario.delays()
    link = world.together(lambda: MpiClientLink(world, scenario.problem.dimension, scenario.problem.dtype))
    sharpen_sleep()
    failure = ""
    world.barrier()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is told by its status
            work(link, client, number, lambda: delays.next_s(number))
    except Exception:  # whatever it is, the server must hear of it
        failure = traceback.format_exc()
    link.depart(number, failure)


def _evaluate(
    problem: Problem, blocks: Iterator[list[Vector]], names: Sequence[Hashable], loss_every: int
) -> list[Metrics]:
    """Quality of models, a block at a time; models of equal name are equal."""
    wanted, first, found = loss_wanted(len(names), loss_every), 0, []
    for models in blocks:
        block = slice(first, first + len(models))
        found.append(evaluate_models(problem, names[block], models, wanted[block]))
        first = block.stop
    return found


def _record(recorder: Recorder, scenario: Scenario, progress: ProgressLine, run: Callable[[], Status]) -> Status:
    """Run, evaluate what was recorded, and leave the file with a status whatever happens."""
    problem, loss_every = scenario.problem, scenario.experiment.record.loss_every
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            status = run()
            recorder.flush()
            progress.close("evaluating the snapshots")
            versions = recorder.versions().tolist()
            recorder.metrics(
                _evaluate(problem, recorder.model_blocks(), versions, loss_every),
                _evaluate(problem, recorder.average_blocks(), range(len(versions)), loss_every),
            )
            progress.close()
    except BaseException as error:
        progress.close()
        with suppress(RunFailure):  # a disc that is full takes no status either
            recorder.set_status(recorder.status(State.FAILED, one_line(error)))
            recorder.close()
        raise
    recorder.set_status(status)
    recorder.close()
    return status


def _solve_ahead(scenario: Scenario, progress: ProgressLine) -> None:
    """Solve for the minimiser where a distance or a step size needs it: no clock runs, and a failure costs nothing."""
    settings, problem = scenario.experiment.problem, scenario.problem
    wanted = isinstance(settings, Robust | Median) or (isinstance(settings, Logistic) and settings.minimiser)
    if wanted or isinstance(scenario.experiment.schedule, Theorem1Schedule | Theorem2Schedule):
        progress.close("solving for constants and minimiser")
        _ = wanted and problem.optimum  # type: ignore[attr-defined]
        _ = scenario.theorem  # both are kept
        progress.close()


def _open_recorder(scenario: Scenario, around: Surroundings) -> Recorder:
    experiment, problem = scenario.experiment, scenario.problem
    output = around.output_for(experiment)
    dimension, dtype = problem.dimension, problem.dtype
    return Recorder(output, to_toml(experiment), dimension, dtype, force=around.force, record=experiment.record)


def _progress(experiment: Experiment, around: Surroundings) -> ProgressLine:
    return ProgressLine(experiment.method.name, experiment.stop.horizon_s, around.progress)


def _close_watch(watch: TargetWatch) -> None:
    if isinstance(watch, BackgroundWatch):
        watch.close()
