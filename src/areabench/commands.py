"""What the commands do, once argv and the environment have been read."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.config import load_experiment, to_toml
from areabench.errors import RunFailure, UserError, harmless
from areabench.experiment import Experiment
from areabench.launch import LaunchWishes, Tolerance, mpirun_command
from areabench.mpirun import supervise
from areabench.outside.calling import check_parts
from areabench.placement import place
from areabench.progress import ProgressLine, Style
from areabench.rank_commands import report
from areabench.surroundings import Surroundings, refuse_existing

if TYPE_CHECKING:
    from areabench.reading import Run
    from areabench.tables.comparison import Tolerances


def simulate(path: Path, overrides: Sequence[str], around: Surroundings) -> int:
    """One run in virtual time."""
    from areabench.execute import simulate as execute_simulation

    experiment = load_experiment(path, overrides)
    return report(execute_simulation(experiment, around), around.output_for(experiment))


def launch(path: Path, overrides: Sequence[str], how: LaunchWishes, around: Surroundings) -> int:
    """Check the experiment, then start mpirun: one rank for the server and one for each client unless told."""
    experiment = load_experiment(path, overrides)
    ranks = experiment.clients.count + 1 if how.ranks is None else how.ranks
    place(experiment.clients.count, ranks)
    check_parts(experiment, experiment.module_folders or ())  # every rank does, but says it less plainly
    output = around.output_for(experiment)
    refuse_existing(output, force=around.force)  # before mpirun starts, which adds pages to every error
    arguments = ["run", str(path), "--output", str(output)]
    arguments += ["--force"] if around.force else []
    for override in overrides:
        arguments += ["--set", override]
    return launch_ranks(arguments, ranks, replace(around, output=output), how.tolerance)


def launch_ranks(arguments: Sequence[str], ranks: int, around: Surroundings, tolerance: Tolerance) -> int:
    """Start `areabench ARGUMENTS`, which writes one run file, on so many ranks of this machine."""
    from areabench.aftermath import file_before, settle

    assert around.output is not None
    live, before = around.progress == Style.LIVE, file_before(around.output)
    options = ["--progress", "marked" if live else "never", "--checkpoint-every", f"{around.checkpoint_s:g}"]
    command = mpirun_command(ranks, [*arguments, *options], tolerance)
    try:
        ending = supervise(command, live=live)
    except OSError as error:
        raise RunFailure(f"cannot start {shlex.join(command)}: {error}") from error
    return settle(around.output, before, ending, trusted="--with-ft" not in command)


def check(path: Path, overrides: Sequence[str], ended_in: Path | None = None) -> int:
    """Print the resolved experiment, or say whether a run file holds an ended run of it: 4 if it can go on, else 1."""
    experiment = load_experiment(path, overrides)
    if ended_in is None:
        print(to_toml(experiment), end="")
        return 0
    from areabench.sweeps.results import can_go_on, ended_state

    state = ended_state(ended_in, experiment)
    if state is None and can_go_on(ended_in, experiment):
        print(f"{ended_in}: has not ended, and can go on from its checkpoint: areabench resume {ended_in}")
        return 4
    print(f"{ended_in}: {state.text if state is not None else 'holds no run of this experiment that has ended'}")
    return int(state is None)


@dataclass(frozen=True)
class TheoryWishes:
    """What `theory` is asked for: a run whose rates count, long solutions, a file for its suggestion."""

    measured_in: Path | None
    solve: bool
    write: Path | None
    force: bool
    progress: Style


def theory(path: Path, overrides: Sequence[str], wishes: TheoryWishes, cache: Path) -> int:
    """Print what the paper's theory says about an experiment; write the experiment that it suggests."""
    from areabench.advice import advise
    from areabench.suggestion import awaits_solution, suggestion
    from areabench.theory_subject import subject_of

    if wishes.write is not None:
        refuse_existing(wishes.write, force=wishes.force, option="--write")
    subject = subject_of(load_experiment(path, overrides), wishes.measured_in, cache, solve=wishes.solve)
    if wishes.write is not None and awaits_solution(subject):
        raise UserError("--write: Theorem 2's step size at measured rates needs |x_s0 - x*|; add --solve")
    progress = ProgressLine("theory", None, wishes.progress)
    progress.close("solving for the minimisers" if wishes.solve else "")
    suggested, advice = suggestion(subject), advise(subject)
    progress.close()
    if wishes.write is not None and suggested is None:
        raise UserError(f"{path}: no theorem applies, so there is nothing to suggest; leave --write out")
    print(advice, end="")
    if wishes.write is not None and suggested is not None:
        _write_experiment(suggested, wishes.write)
    return 0


def _write_experiment(experiment: Experiment, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_toml(experiment), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--write {path}: {error.strerror or error}; choose another file") from error
    print(f"{'written':<14}{path}")


def replay(path: Path, cache: Path, progress_style: Style, trusted: Sequence[str] = ()) -> int:
    """Replay a run file; 1 at the first difference. It calls no code that the file names and `trusted` does not."""
    from areabench.outside.modules import changes
    from areabench.reading import open_run
    from areabench.transports.repeat import repeat
    from areabench.transports.replay import Replay
    from areabench.trust import scenario_of

    with open_run(path) as recorded:
        progress = ProgressLine("replay", recorded.status.end_s, progress_style)
        scenario = scenario_of(recorded, cache, trusted)
        for changed in changes(recorded.provenance.modules, recorded.experiment):
            print(f"areabench: {path}: {changed}", file=sys.stderr)
        kept = recorded.experiment.record.events
        outcome = Replay(recorded, scenario, progress).run() if kept else repeat(recorded, scenario, progress)
        progress.close()
    if outcome.difference is None:
        events, snapshots = f"{outcome.events:,} events", f"{outcome.snapshots:,} snapshots"
        if kept:
            print(f"{path}: {events} (by checksum) and {snapshots} (bit for bit) replayed, all equal")
        else:
            print(f"{path}: simulated again, {events} (counted) and {snapshots} (by checksum), all equal")
        return 0
    print(f"{path}: event {outcome.difference.event:,} differs: {outcome.difference.what}", file=sys.stderr)
    return 1


def show(path: Path, *, as_toml: bool) -> int:
    """Print a run file readably."""
    from areabench.reading import open_run
    from areabench.tables.runs import describe_run

    with open_run(path) as recorded:
        print(to_toml(recorded.experiment) if as_toml else harmless(describe_run(recorded)), end="")
    return 0


def summary(paths: Sequence[Path], target: float, plot: Path | None) -> int:
    """Print a table of runs and draw them."""
    from areabench.reading import open_run
    from areabench.tables.runs import summary_table

    with ExitStack() as stack:
        runs = [stack.enter_context(open_run(path)) for path in paths]
        print(harmless(summary_table([recorded.summary(target) for recorded in runs], target)), end="")
        if plot is not None:
            _plot(runs, plot, target)
    return 0


def compare(paths: tuple[Path, Path], within: Tolerances, plot: Path | None, *, as_json: bool) -> int:
    """Compare two runs of one experiment; 1 where updates or final loss are beyond their tolerances."""
    from areabench.comparison import compare_runs
    from areabench.reading import open_run
    from areabench.tables.comparison import comparison_json, comparison_text, holds

    with open_run(paths[0]) as first, open_run(paths[1]) as second:
        found = compare_runs(first, second)
        if plot is not None:
            with _importing_matplotlib(plot):
                from areabench.figures.comparison import plot_comparison
            plot_comparison(first, second, found, plot)
        text = (comparison_json if as_json else comparison_text)(first, second, found, within)
        print(harmless(text), end="")
    if plot is not None and not as_json:
        print(f"plot: {plot}")
    return 0 if holds(found, within) else 1


def _plot(runs: Sequence[Run], path: Path, target: float) -> None:
    with _importing_matplotlib(path):
        from areabench.figures.runs import plot_runs
    plot_runs(runs, path, target)
    print(f"plot: {path}")


@contextmanager
def _importing_matplotlib(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--plot {path}: needs matplotlib ({error}); install it with `pip install areabench[analysis]`"
        ) from error
