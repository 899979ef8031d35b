"""One run with everything around it: scenario, run file, transport, evaluation, status."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from areabench.config import to_toml
from areabench.errors import RunFailure, one_line
from areabench.evaluation import evaluate_models, loss_wanted
from areabench.experiment import Experiment, Theorem1Schedule, Theorem2Schedule
from areabench.lane_recorder import evaluate_lanes, play_lanes
from areabench.lanes import lane_scenario
from areabench.problem_settings import Logistic, Median, Robust
from areabench.problems.base import Metrics, Problem, Vector
from areabench.progress import ProgressLine
from areabench.provenance import gather_provenance
from areabench.recording import Recorder
from areabench.scenario import Scenario, build_scenario
from areabench.schema import State, Status
from areabench.surroundings import Surroundings
from areabench.transports.simulator import Simulator


def simulate(experiment: Experiment, around: Surroundings) -> Status:
    """One run in the simulator."""
    scenario, progress = build_scenario(experiment, around.cache), progress_line(experiment, around)
    solve_ahead(scenario, progress)
    provenance = gather_provenance("simulator", around.command, around.threads, experiment.seed)
    recorder = open_recorder(scenario, around)
    recorder.begin(provenance, scenario.client_table())
    return record_run(recorder, scenario, progress, lambda: Simulator(scenario, recorder, progress).run())


def simulate_together(experiments: Sequence[Experiment], outputs: Sequence[Path], around: Surroundings) -> list[Status]:
    """One pass over experiments that `group_lanes` put together, a run file each; one alone is run as by `simulate`."""
    if len(experiments) == 1:
        return [simulate(experiments[0], replace(around, output=outputs[0]))]
    scenario = build_scenario(experiments[0], around.cache)
    provenance = gather_provenance("simulator", around.command, around.threads, experiments[0].seed)
    progress = progress_line(experiments[0], around)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = play_lanes(lane_scenario(scenario, experiments), progress)
        progress.close("evaluating the snapshots")
        metrics = evaluate_lanes(scenario.problem, ends, experiments[0].record.loss_every)
    progress.close()
    for lane, end in enumerate(ends):
        own = replace(scenario, experiment=experiments[lane])
        recorder = open_recorder(own, replace(around, output=outputs[lane]))
        recorder.begin(replace(provenance, lanes=len(ends), lane=lane), scenario.client_table())
        end.write(recorder, metrics[lane])
    return [end.status for end in ends]


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


def record_run(recorder: Recorder, scenario: Scenario, progress: ProgressLine, run: Callable[[], Status]) -> Status:
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
            recorder.set_status(status)
    except BaseException as error:
        progress.close()
        with suppress(RunFailure):  # the first failure is the one to tell
            recorder.set_status(recorder.status(State.FAILED, one_line(error)))
            recorder.close()
        raise
    recorder.close()
    return status


def solve_ahead(scenario: Scenario, progress: ProgressLine) -> None:
    """Solve for the minimiser where a distance or a step size needs it: no clock runs, and a failure costs nothing."""
    settings, problem = scenario.experiment.problem, scenario.problem
    wanted = isinstance(settings, Robust | Median) or (isinstance(settings, Logistic) and settings.minimiser)
    if wanted or isinstance(scenario.experiment.schedule, Theorem1Schedule | Theorem2Schedule):
        progress.close("solving for constants and minimiser")
        _ = wanted and problem.optimum  # type: ignore[attr-defined]
        _ = scenario.theorem  # both are kept
        progress.close()


def open_recorder(scenario: Scenario, around: Surroundings) -> Recorder:
    """A new run file for a scenario."""
    experiment, problem = scenario.experiment, scenario.problem
    output = around.output_for(experiment)
    dimension, dtype = problem.dimension, problem.dtype
    return Recorder(output, to_toml(experiment), dimension, dtype, force=around.force, record=experiment.record)


def progress_line(experiment: Experiment, around: Surroundings) -> ProgressLine:
    """The progress line of a run."""
    return ProgressLine(experiment.method.name, experiment.stop.horizon_s, around.progress)
