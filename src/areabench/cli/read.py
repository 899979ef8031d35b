"""Commands that read an experiment or run files and print an answer: check, theory, show, summary and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from areabench.cli import CommandContext, need_matplotlib
from areabench.errors import UserError
from areabench.experiment.parse import load_experiment, to_toml
from areabench.files import refuse_existing, write_text
from areabench.runfile.open import DAMAGE, open_file
from areabench.runfile.read import open_run

if TYPE_CHECKING:
    from areabench.engine.data import DataSummary
    from areabench.experiment.records import Experiment
    from areabench.runfile.read import Run, Summary
    from areabench.transports.replay import MetricsResult, ReplayResult


# -------------------------------------------------------------------------------------------------- experiments


def check(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the resolved experiment, or whether a run file holds an ended run of it: 4 if it can be resumed, else 1."""
    experiment, path = load_experiment(options.experiment, options.overrides), options.ended_in
    if path is None:
        from areabench.views.styled import Styled
        from areabench.views.text import data_text, experiment_text

        data = _try_experiment(experiment, context)
        record = {"file": options.experiment, "experiment": experiment, "data": data}
        context.output.answer(lambda: Styled(experiment_text(experiment), data_text(data)), lambda: record)
        return 0
    from areabench.engine.plugins.trust import command_on
    from areabench.sweeps.read import can_continue, ended_state

    state = ended_state(path, experiment)
    resumable = state is None and can_continue(path, experiment)
    if state is None and not resumable:
        _refuse_damaged(path)
    text = state.text if state is not None else "holds no run of this experiment that has ended"
    if resumable:
        text = f"has not ended, and can continue from its checkpoint: {command_on('resume', path, experiment)}"
    context.output.answer(lambda: f"{path}: {text}\n", lambda: {"file": path, "state": state, "can_go_on": resumable})
    return 4 if resumable else int(state is None)


def _try_experiment(experiment: Experiment, context: CommandContext) -> DataSummary | None:
    """Build all parts, load the data and try the user's own functions, as a run does first; what the data are like."""
    from areabench.engine.data import describe
    from areabench.engine.scenario import build_scenario, try_parts
    from areabench.experiment.module_paths import named_code

    if experiment.data is None and not named_code(experiment):
        return None
    scenario = build_scenario(experiment, context.cache, experiment.module_folders or ())
    try_parts(scenario, context.cache)
    if scenario.data is None:
        return None
    if not getattr(experiment.problem, "minimiser", False):  # an evaluation would solve for it, which may take a minute
        loss = float(scenario.problem.evaluate([scenario.start]).train_loss[0])
        if remark := scenario.first_loss_remark(loss):
            print(f"areabench: {remark}", file=sys.stderr)
    return describe(scenario.data)


def methods(options: argparse.Namespace, context: CommandContext) -> int:
    """List all methods, or one with its keys."""
    from areabench.experiment.parse import unknown
    from areabench.results.methods import listed_methods
    from areabench.views.text import methods_text

    found = listed_methods()
    if options.name is not None:
        chosen = [each for each in found if each.name == options.name]
        if not chosen:
            raise UserError(unknown("method", options.name, (each.name for each in found)))
        found = chosen
    context.output.answer(lambda: methods_text(found, keys=options.name is not None), lambda: found)
    return 0


def _refuse_damaged(path: Path) -> None:
    """A RunFileError if this is a run file with a changed number: it may hold what a new run would take hours for."""
    with suppress(*DAMAGE):
        open_file(path).close()
        open_run(path).close()


def theory(options: argparse.Namespace, context: CommandContext) -> int:
    """Print what the paper's theory says about an experiment; write the experiment that it suggests."""
    from areabench.progress import ProgressLine
    from areabench.results.advice import awaits_solution, find, subject_of
    from areabench.views.text import theory_text

    if options.write is not None:
        refuse_existing(options.write, force=options.force, option="--write")
    experiment = load_experiment(options.experiment, options.overrides)
    subject = subject_of(experiment, options.measured_in, context.cache, solve=options.solve)
    if options.write is not None and awaits_solution(subject):
        raise UserError("--write: Theorem 2's step size at measured rates needs |x_s0 - x*|; add --solve")
    progress = ProgressLine("theory", None, context.progress)
    progress.close("solving for the minimisers" if options.solve else "")
    found = find(subject)
    progress.close()
    if options.write is not None and found.suggestion is None:
        raise UserError(f"{options.experiment}: no theorem applies, so there is nothing to suggest; leave --write out")
    context.output.answer(lambda: theory_text(found), lambda: found)
    if options.write is not None and found.suggestion is not None:
        write_text(options.write, to_toml(found.suggestion), option="--write")
        context.output.remark(f"{'written':<14}{options.write}")
    return 0


# -------------------------------------------------------------------------------------------------- run files


@np.errstate(over="ignore", invalid="ignore")  # a file may hold any numbers
def show(options: argparse.Namespace, context: CommandContext) -> int:
    """Print what a run file holds."""
    with open_run(options.run) as recorded:
        if options.toml:
            sys.stdout.write(to_toml(recorded.experiment))
            return 0
        from areabench.views.text import describe_run

        context.output.answer(lambda: describe_run(recorded), lambda: _run_record(recorded))
    return 0


def _run_record(recorded: Run) -> dict[str, Any]:
    from areabench.views.json import run_record  # with comparisons, which no text needs

    return run_record(recorded)


@np.errstate(over="ignore", invalid="ignore")  # a file may hold any numbers
def summary(options: argparse.Namespace, context: CommandContext) -> int:
    """Print a table of runs and draw them."""
    from areabench.experiment.labels import difference_words
    from areabench.views.text import summary_table

    paths, target, plot, output = _run_files(options.runs), options.target, options.plot, context.output
    summaries, experiments = [], []
    for path in paths:
        with open_run(path) as recorded:  # one at a time: a folder may hold thousands
            summaries.append(recorded.summary(target))
            experiments.append(recorded.experiment)
    files = [path.name if len({path.parent for path in paths}) == 1 else str(path) for path in paths]
    settings = difference_words(experiments)
    output.answer(
        lambda: summary_table(summaries, target, files, settings),
        lambda: {"target_accuracy": target, "runs": _summary_records(paths, summaries, settings)},
    )
    if plot is not None:
        need_matplotlib(f"--plot {plot}")
        from areabench.views.figures.runs import draw_runs
        from areabench.views.figures.style import save

        with ExitStack() as stack:
            save(draw_runs([stack.enter_context(open_run(path)) for path in paths], target), plot)
        output.remark(f"plot: {plot}")
    return 0


def _summary_records(
    paths: Sequence[Path], summaries: Sequence[Summary], settings: Sequence[str]
) -> list[dict[str, Any]]:
    from areabench.views.json import summary_record  # with comparisons, which no text needs

    return list(map(summary_record, paths, summaries, settings))


def _run_files(paths: Sequence[Path]) -> list[Path]:
    """Run files, and those in folders, by name."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if not inside:
            raise UserError(f"{path}: holds no run file (.h5); give run files, or a folder of them")
        found += inside
    return found


@np.errstate(over="ignore", invalid="ignore")  # a file may hold any numbers
def compare(options: argparse.Namespace, context: CommandContext) -> int:
    """Compare two runs of one experiment; 1 where updates or final loss are beyond their tolerances."""
    from areabench.results.comparison import compare_runs
    from areabench.views.json import comparison_record
    from areabench.views.text import Tolerances, comparison_text, holds

    within, plot = Tolerances(options.updates_within, options.loss_within), options.plot
    with open_run(options.first) as first, open_run(options.second) as second:
        found = compare_runs(first, second)
        if plot is not None:
            need_matplotlib(f"--plot {plot}")
            from areabench.views.figures.runs import draw_comparison
            from areabench.views.figures.style import save

            save(draw_comparison(first, second, found), plot)
        context.output.answer(
            lambda: comparison_text(first, second, found, within),
            lambda: comparison_record(first, second, found, within),
        )
    if plot is not None:
        context.output.remark(f"plot: {plot}")
    return 0 if holds(found, within) else 1


@np.errstate(over="ignore", invalid="ignore")  # a file may hold any numbers
def diagnose(options: argparse.Namespace, context: CommandContext) -> int:
    """Print whether a run kept its delays, and draw it."""
    from areabench.results.diagnosis import diagnosis_of
    from areabench.views.text import diagnosis_text

    figure = options.output
    with open_run(options.run) as recorded:
        found = diagnosis_of(recorded)
        if figure is not None:
            need_matplotlib(f"--output {figure}")
            from areabench.views.figures.diagnosis import draw_diagnosis
            from areabench.views.figures.style import save

            save(draw_diagnosis(found, recorded.experiment), figure)
    context.output.answer(lambda: diagnosis_text(found), lambda: found)
    if figure is not None:
        context.output.remark(f"figure: {figure}")
    return 0


def replay(options: argparse.Namespace, context: CommandContext) -> int:
    """Replay a run file and evaluate its snapshots again; 1 at the first difference.

    It calls no code that the run file names and `--trust-module` does not.
    """
    from areabench.engine.plugins.modules import changes
    from areabench.engine.plugins.trust import scenario_of
    from areabench.kernels import kernels_in_force, require
    from areabench.progress import ProgressLine
    from areabench.transports.replay import replay_run

    path = options.run
    with open_run(path) as recorded:
        then = recorded.provenance.kernels
        if options.exact or recorded.experiment.bits == "portable":
            require(then)
        progress = ProgressLine("replay", recorded.status.end_s, context.progress)
        scenario = scenario_of(recorded.experiment, path, context.cache, options.trusted)
        for changed in changes(recorded.provenance.modules, recorded.experiment):
            print(f"areabench: {path}: {changed}", file=sys.stderr)
        scenario.check_data(recorded.provenance.data_digest, path)
        kept, here = recorded.experiment.record.events, kernels_in_force()
        if options.exact and not here.rounds_as(then):
            raise UserError(
                f"--exact: {path} was made with {then}, which cannot be had here ({here}); leave --exact out to "
                "compare it within rounding"
            )
        outcome = replay_run(recorded, scenario, progress)
        progress.close()
    if not here.rounds_as(then):
        print(f"{path}: made with {then}; replayed with {here}", file=sys.stderr)
    if not outcome.comparable:
        print(f"{path}: {_incomparable_text(outcome)}", file=sys.stderr)
    if (outcome.difference is None and outcome.comparable) or context.as_json:
        record = {
            "file": path,
            "how": "replayed" if kept else "simulated again",
            "equal": outcome.equal,
            "events": outcome.events,
            "snapshots": outcome.snapshots,
            "difference": outcome.difference,
            "metrics": outcome.metrics,
            "kernels": {"recorded": then, "here": here},
            "rounding": outcome.rounding,
            "comparable": outcome.comparable,
        }
        context.output.answer(
            lambda: f"{path}: {_equal_text(outcome, kept=kept)}\n{_metrics_text(outcome.metrics)}\n", lambda: record
        )
    if outcome.difference is not None:
        print(f"{path}: event {outcome.difference.event:,} differs: {outcome.difference.what}", file=sys.stderr)
    if outcome.metrics is not None and outcome.metrics.difference is not None:
        print(f"{path}: metrics differ: {outcome.metrics.difference}", file=sys.stderr)
    return 0 if outcome.equal else 1 if outcome.comparable else 3


def _incomparable_text(outcome: ReplayResult) -> str:
    """Why a replay under other kernels says nothing."""
    assert outcome.rounding is not None
    return (
        f"not comparable: one unit in the last place at the start grows to {outcome.rounding.divergence:.2g} of the "
        f"model within {outcome.snapshots:,} snapshots; replay it with --exact, or on a processor like that of the run"
    )


def _equal_text(outcome: ReplayResult, *, kept: bool) -> str:
    """What was equal, and how it was compared."""
    from areabench.transports.replay import FACTOR
    from areabench.views.styled import counted

    events, snapshots = counted(outcome.events, "event"), counted(outcome.snapshots, "snapshot")
    if (rounding := outcome.rounding) is not None:
        how = "replayed" if kept else "simulated again"
        return (
            f"{events} (counted) and {snapshots} {how}, equal but for rounding: {rounding.snapshots:,} models at most "
            f"{rounding.distance:.2g} of their largest entry away, where {FACTOR * rounding.divergence:.2g} is allowed "
            f"({FACTOR:g} times what one unit in the last place at the start grows to)"
        )
    if kept:
        return f"{events} (by checksum) and {snapshots} (bit for bit) replayed, all equal"
    return f"simulated again, {events} (counted) and {snapshots} (by checksum), all equal"


def _metrics_text(metrics: MetricsResult | None) -> str:
    """How many rows are equal, and how equal they are."""
    if metrics is None:
        return "metrics: none are recorded"
    from areabench.transports.replay import ACCURACY_ROUNDING, ROUNDING

    limits = f"{ROUNDING:g}, accuracy {ACCURACY_ROUNDING:g} points"
    rounded = f"{metrics.to_the_bit:,} to the bit, the others to rounding: {limits}"
    how = "to the bit" if metrics.equal == metrics.to_the_bit else rounded
    return f"metrics: {metrics.equal:,} of {metrics.rows:,} rows equal ({how})"
