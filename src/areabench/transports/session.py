"""One run from its experiment to its file: scenario, run file, simulator or MPI, evaluation, status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.evaluation import evaluate_blocks
from areabench.engine.events import ENDED, Provenance, State, Status
from areabench.engine.lanes import build_pass
from areabench.engine.scenario import Scenario, build_scenario, try_parts
from areabench.errors import ClientsLost, RunFailure, RunFileError, one_line
from areabench.experiment.experiment import Experiment
from areabench.experiment.files import changed_files, file_digests, written_text
from areabench.kernels import Kernels, check_bits, kernels_in_force
from areabench.plugins.call import exit_failure
from areabench.plugins.callables import place_in
from areabench.plugins.modules import changes, loaded, modules_of, to_text
from areabench.problems.base import Metrics
from areabench.progress import ProgressLine
from areabench.runfile.checkpoint import (
    Checkpoint,
    discard_checkpoint,
    read_checkpoint,
    require_checkpoint,
    write_checkpoint,
)
from areabench.runfile.observed import ObservedRecorder
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.read import Run
from areabench.runfile.record import Recorder, RunPrefix
from areabench.threads import limited_threads, threads_in_force
from areabench.transports.options import RunOptions
from areabench.transports.signals import CheckpointTriggers
from areabench.transports.simulator import Simulator, evaluate_lanes, simulate_lanes


@limited_threads()
def simulate_run(experiment: Experiment, options: RunOptions) -> Status:
    """One run in the simulator."""
    scenario = build_scenario(experiment, options.cache, experiment.module_folders or ())
    check_bits(experiment.bits)
    progress = progress_line(experiment, options)
    solve_ahead(scenario, progress, options.cache)
    if options.checkpoint_s is not None:
        scenario.check_secret()
    provenance = _simulator_provenance(scenario, options)
    recorder = open_recorder(scenario, options)
    recorder.begin(provenance, scenario.client_table())
    return _simulate(scenario, recorder, progress, options)


@limited_threads()
def resume_simulation(
    run: Run, options: RunOptions, folders: Sequence[str] = (), experiment: Experiment | None = None
) -> Status:
    """Continue a simulated run from its checkpoint in the same file; the result is that of a run without a stop.

    Modules that the run names are looked for in `folders` first. `experiment` is that of the run, with objects that
    Python code had passed.
    """
    scenario = build_scenario(experiment or run.experiment, options.cache, folders)
    check_bits(run.experiment.bits)
    progress = progress_line(run.experiment, options)
    solve_ahead(scenario, progress, options.cache)
    checkpoint = checkpoint_of(run, scenario)
    recorder = continue_recorder(run, checkpoint, run.clients_array, scenario, options, kernels_in_force())
    return _simulate(scenario, recorder, progress, options, checkpoint)


def _simulator_provenance(scenario: Scenario, options: RunOptions) -> Provenance:
    """The provenance of a simulated run whose parts have been built, so that the modules that it names are loaded."""
    return gather_provenance(
        "simulator",
        options.command,
        threads_in_force(os.environ),
        scenario.experiment.seed,
        modules=to_text(loaded(scenario.experiment)),
        data_digest=scenario.data_digest,
        files=file_digests(scenario.experiment),
    )


def _simulate(
    scenario: Scenario,
    recorder: Recorder,
    progress: ProgressLine,
    options: RunOptions,
    checkpoint: Checkpoint | None = None,
) -> Status:
    clients = scenario.experiment.clients.count
    with CheckpointTriggers(options.checkpoint_s) as triggers:

        def pause(simulator: Simulator) -> Status | None:
            if not simulator.settled or not (triggers.stop_signal or triggers.due()):
                return None
            recorder.flush()
            write_checkpoint(recorder.path, simulator.checkpoint(recorder.held), clients)
            if not triggers.stop_signal:
                return None
            return recorder.tally.status(State.STOPPED, triggers.stop_signal)

        simulator = Simulator(scenario, recorder, progress, pause if triggers.enabled else None)
        if checkpoint is not None:
            simulator.resume(checkpoint)
        return record_run(recorder, scenario, progress, simulator.run, remarks=options.remarks)


def resumable(run: Run) -> None:
    """Raise a RunFileError unless the run has not ended and has a checkpoint."""
    if run.status.state in ENDED:
        raise RunFileError(f"{run.path}: has ended ({run.status.state.text}); there is nothing to resume")
    require_checkpoint(run.path)


def checkpoint_of(run: Run, scenario: Scenario) -> Checkpoint:
    """The checkpoint of a run that has not ended; a RunFileError where it does not fit the run."""
    form = scenario.method.start(scenario.start).state
    checkpoint = read_checkpoint(run.path, form, scenario.shapes.memory)
    scenario.delays()  # before anything is written: a trace may be missing
    if changed := next(changes(run.provenance.modules, run.experiment), ""):
        raise RunFileError(f"{run.path}: {changed}; put the old one back, or run the experiment again")
    scenario.check_data(run.provenance.data_digest, run.path)
    if changed := next(changed_files(run.provenance.files, run.experiment), ""):
        raise RunFileError(f"{run.path}: {changed}; put the old file back, or run the experiment again")
    events = len(run.events_array)
    snapshots = len(run.snapshot_index)
    if checkpoint.experiment != written_text(run.experiment):
        raise RunFileError(f"{run.path}: its checkpoint is of another experiment; run the experiment again")
    wanted = checkpoint.run_state.tally.events if run.experiment.record.events else 0
    if events < wanted or snapshots < checkpoint.run_state.snapshots:
        raise RunFileError(
            f"{run.path}: has {events:,} events and {snapshots:,} snapshots, fewer than its checkpoint; run it again"
        )
    return checkpoint


def continue_recorder(
    run: Run,
    checkpoint: Checkpoint,
    clients: NDArray[Any],
    scenario: Scenario,
    options: RunOptions,
    kernels: Kernels,
    *,
    live: bool = True,
) -> Recorder:
    """A recorder that continues the run file from the checkpoint, under these kernels; `clients` are rows of CLIENT."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    provenance = run.provenance.continued(kernels, now)
    run_state = checkpoint.run_state
    held = checkpoint.held
    events = run_state.tally.events if run.experiment.record.events else 0
    earlier = RunPrefix(run, events, run_state.snapshots, run_state.tally.copy(), held.models, held.averages)
    recorder = _recorder_kind(options).continued(run, earlier)
    if isinstance(recorder, ObservedRecorder):
        recorder.observe(options.observers, scenario, live=live, told=run_state.tally.events)
    recorder.begin(provenance, clients, earlier)
    return recorder


@limited_threads()
def simulate_together(experiments: Sequence[Experiment], outputs: Sequence[Path], options: RunOptions) -> list[Status]:
    """Simulate experiments that `group_lanes` put together in one pass, one run file each."""
    if len(experiments) == 1:
        return [simulate_run(experiments[0], replace(options, output=outputs[0]))]
    scenario = build_scenario(experiments[0], options.cache, experiments[0].module_folders or ())
    check_bits(experiments[0].bits)
    provenance = _simulator_provenance(scenario, options)
    progress = progress_line(experiments[0], options)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = simulate_lanes(build_pass(scenario, experiments), progress)
        whole = {lane: end for lane, end in enumerate(ends) if end is not None}
        progress.close("evaluating the snapshots")
        metrics = evaluate_lanes(scenario.problem, list(whole.values()), experiments[0].record.loss_every)
    progress.close()
    for (lane, end), measured in zip(whole.items(), metrics, strict=True):
        recorder = open_recorder(
            replace(scenario, experiment=experiments[lane]), replace(options, output=outputs[lane])
        )
        recorder.begin(replace(provenance, lanes=len(ends), lane=lane), scenario.client_table())
        end.write(recorder, *measured)
    return [
        simulate_run(experiments[lane], replace(options, output=outputs[lane])) if end is None else end.status
        for lane, end in enumerate(ends)
    ]


def record_run(
    recorder: Recorder, scenario: Scenario, progress: ProgressLine, run: Callable[[], Status], *, remarks: bool = True
) -> Status:
    """Run, evaluate the snapshots, and leave the file with a status whatever happens; `remarks`: warn where due.

    A run that has ended is not lost to its evaluation: where that fails, the status says why, and there are no metrics.
    """
    remark = ""
    status = None
    ended = False
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            status = run()
            recorder.flush()
            if ended := status.state in ENDED:  # else there is no time: the resumed run does it
                progress.close("evaluating the snapshots")
                try:
                    found, averages = _evaluated(recorder, scenario)
                except (Exception, SystemExit) as error:  # whatever a user's problem raises
                    status = replace(status, unevaluated=told(error, scenario.experiment)[1])
                else:
                    if recorder.versions()[:1] == [0]:
                        remark = scenario.first_loss_remark(float(found[0].train_loss[0]))
                    recorder.metrics(found, averages)
            progress.close()
            recorder.set_status(status)
    except BaseException as error:
        progress.close()
        failure, reason = told(error, scenario.experiment)
        with suppress(RunFailure):  # the first failure is the one to report
            over = ended and isinstance(error, KeyboardInterrupt)  # it ends the evaluation only
            recorder.set_status(status if over and status else recorder.tally.status(State.FAILED, reason))
            recorder.close()
        if failure is not error:
            raise failure from error
        raise
    recorder.close()
    if ended:
        discard_checkpoint(recorder.path)
    if remarks:
        for each in filter(None, (remark, _clipping_remark(recorder, scenario))):
            print(f"areabench: {each}", file=sys.stderr)
    return status


def _evaluated(recorder: Recorder, scenario: Scenario) -> tuple[list[Metrics], list[Metrics]]:
    """The quality of all snapshots, and of the averages where they are kept."""
    versions = recorder.versions().tolist()
    loss_every = scenario.experiment.record.loss_every
    return (
        evaluate_blocks(scenario.problem, recorder.model_blocks(), versions, loss_every),
        evaluate_blocks(scenario.problem, recorder.average_blocks(), range(len(versions)), loss_every),
    )


def told(error: BaseException, experiment: Experiment) -> tuple[BaseException, str]:
    """What to raise for an error, and how to tell it in one line: with its place in the user's code."""
    if isinstance(error, SystemExit):
        failure = exit_failure(error, experiment)
        return failure, str(failure)
    if where := place_in(error, *modules_of(experiment)):
        error.add_note(where.strip())  # `one_line` and a traceback show it
    if isinstance(error, ClientsLost):
        return error, str(error)
    return error, one_line(error)


def _clipping_remark(recorder: Recorder, scenario: Scenario) -> str:
    """What to say where updates were cut to the range of [privacy]; empty elsewhere."""
    clipped = recorder.tally.clipped
    privacy = scenario.experiment.privacy
    if not clipped or privacy is None:
        return ""
    return (
        f"{clipped:,} updates had entries beyond privacy.range = {privacy.range:g} and were clipped; raise it, or use "
        "a smaller step size"
    )


def solve_ahead(scenario: Scenario, progress: ProgressLine, cache: Path) -> None:
    """Before the clock starts: solve for the minimiser where it is needed, and try the user's own parts."""
    settings = scenario.experiment.problem
    problem = scenario.problem
    try_parts(scenario, cache)
    if settings.wants_minimiser or scenario.experiment.schedule.of_theorem:
        progress.close("solving for constants and minimiser")
        # Both are kept by those who compute them.
        if settings.wants_minimiser:
            _ = problem.optimum  # type: ignore[attr-defined]
        _ = scenario.theorem
        progress.close()


def open_recorder(scenario: Scenario, options: RunOptions, *, live: bool = True) -> Recorder:
    """A new run file for a scenario; `live`: observers are told of snapshots as they are taken."""
    experiment = scenario.experiment
    problem = scenario.problem
    output = options.output_for(experiment)
    kind = _recorder_kind(options)
    recorder = kind.of(experiment, output, (problem.dimension, problem.dtype), force=options.force)
    if isinstance(recorder, ObservedRecorder):
        recorder.observe(options.observers, scenario, live=live)
    discard_checkpoint(output)  # of a run that is overwritten; the file is locked now
    return recorder


def _recorder_kind(options: RunOptions) -> type[Recorder]:
    return ObservedRecorder if options.observers else Recorder


def progress_line(experiment: Experiment, options: RunOptions) -> ProgressLine:
    """The progress line of a run."""
    return ProgressLine(experiment.method.name, experiment.stop.horizon_s, options.progress)
