"""What the commands do that read run files, once argv and the environment have been read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.errors import UserError
from areabench.experiment.parse import to_toml
from areabench.progress import ProgressLine, Style
from areabench.runfile.read import Run, open_run
from areabench.views.terminal import Output

if TYPE_CHECKING:
    from areabench.transports.replay import ReplayResult
    from areabench.views.text import Tolerances
from areabench.engine.diagnosis import Diagnosis
from areabench.experiment.records import Experiment
from areabench.results.diagnosis import diagnosis_of
from areabench.views.text import diagnosis_text


def replay(path: Path, cache: Path, progress_style: Style, trusted: Sequence[str], output: Output) -> int:
    """Replay a run file; 1 at the first difference. It calls no code that the file names and `trusted` does not."""
    from areabench.engine.plugins.modules import changes
    from areabench.engine.plugins.trust import scenario_of
    from areabench.transports.replay import Replay, repeat

    with open_run(path) as recorded:
        progress = ProgressLine("replay", recorded.status.end_s, progress_style)
        scenario = scenario_of(recorded.experiment, path, cache, trusted)
        for changed in changes(recorded.provenance.modules, recorded.experiment):
            print(f"areabench: {path}: {changed}", file=sys.stderr)
        kept = recorded.experiment.record.events
        outcome = Replay(recorded, scenario, progress).run() if kept else repeat(recorded, scenario, progress)
        progress.close()
    equal = outcome.difference is None
    if equal or output.as_json:
        how = "replayed" if kept else "simulated again"
        record = {"file": path, "how": how, "equal": equal, "events": outcome.events, "snapshots": outcome.snapshots}
        output.answer(
            lambda: f"{path}: {_outcome_words(outcome, kept=kept)}\n",
            lambda: {**record, "difference": outcome.difference},
        )
    if outcome.difference is not None:
        print(f"{path}: event {outcome.difference.event:,} differs: {outcome.difference.what}", file=sys.stderr)
    return int(not equal)


def _outcome_words(outcome: ReplayResult, *, kept: bool) -> str:
    """What was equal, and how it was compared."""
    events, snapshots = f"{outcome.events:,} events", f"{outcome.snapshots:,} snapshots"
    if kept:
        return f"{events} (by checksum) and {snapshots} (bit for bit) replayed, all equal"
    return f"simulated again, {events} (counted) and {snapshots} (by checksum), all equal"


def show(path: Path, output: Output, *, as_toml: bool) -> int:
    """Print a run file readably."""
    from areabench.views.json import run_record
    from areabench.views.text import describe_run

    with open_run(path) as recorded:
        if as_toml:
            sys.stdout.write(to_toml(recorded.experiment))
        else:
            output.answer(lambda: describe_run(recorded), lambda: run_record(recorded))
    return 0


def summary(paths: Sequence[Path], target: float, plot: Path | None, output: Output) -> int:
    """Print a table of runs and draw them."""
    from areabench.views.json import summary_record
    from areabench.views.text import summary_table

    with ExitStack() as stack:
        runs = [stack.enter_context(open_run(path)) for path in paths]
        summaries = [recorded.summary(target) for recorded in runs]
        output.answer(
            lambda: summary_table(summaries, target),
            lambda: {"target_accuracy": target, "runs": list(map(summary_record, paths, summaries))},
        )
        if plot is not None:
            _plot(runs, plot, target)
            output.remark(f"plot: {plot}")
    return 0


def compare(paths: tuple[Path, Path], within: Tolerances, plot: Path | None, output: Output) -> int:
    """Compare two runs of one experiment; 1 where updates or final loss are beyond their tolerances."""
    from areabench.results.comparison import compare_runs
    from areabench.views.json import comparison_record
    from areabench.views.text import comparison_text, holds

    with open_run(paths[0]) as first, open_run(paths[1]) as second:
        found = compare_runs(first, second)
        if plot is not None:
            with _importing_matplotlib(plot):
                from areabench.views.figures.runs import plot_comparison
            plot_comparison(first, second, found, plot)
        output.answer(
            lambda: comparison_text(first, second, found, within),
            lambda: comparison_record(first, second, found, within),
        )
    if plot is not None:
        output.remark(f"plot: {plot}")
    return 0 if holds(found, within) else 1


def _plot(runs: Sequence[Run], path: Path, target: float) -> None:
    with _importing_matplotlib(path):
        from areabench.views.figures.runs import plot_runs
    plot_runs(runs, path, target)


@contextmanager
def _importing_matplotlib(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--plot {path}: needs matplotlib ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error


def diagnose(path: Path, figure: Path | None, output: Output) -> int:
    """Print whether a run kept its delays, and draw it."""
    with open_run(path) as recorded:
        found = diagnosis_of(recorded)
        if figure is not None:
            _draw(found, recorded.experiment, figure)
    output.answer(lambda: diagnosis_text(found), lambda: found)
    if figure is not None:
        output.remark(f"figure: {figure}")
    return 0


def _draw(found: Diagnosis, experiment: Experiment, path: Path) -> None:
    try:
        from areabench.views.figures.diagnosis import draw_diagnosis
        from areabench.views.figures.style import save
    except ImportError as error:
        raise UserError(
            f"--output {path}: needs matplotlib ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error
    save(draw_diagnosis(found, experiment), path)
