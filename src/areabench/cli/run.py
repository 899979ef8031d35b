"""What the commands do, once argv and the environment have been read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from areabench.config import load_experiment, to_toml
from areabench.errors import RunFailure, UserError
from areabench.experiment import Experiment
from areabench.launch import LaunchWishes, Tolerance, mpirun_command
from areabench.mpirun import supervise
from areabench.output import Output
from areabench.outside.calling import check_parts
from areabench.placement import place
from areabench.progress import ProgressLine, Style
from areabench.rank_commands import report
from areabench.surroundings import Surroundings, refuse_existing


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
    live, before = around.progress in (Style.LIVE, Style.COLOURED), file_before(around.output)
    options = ["--progress", "marked" if live else "never", "--checkpoint-every", f"{around.checkpoint_s:g}"]
    command = mpirun_command(ranks, [*arguments, *options], tolerance)
    try:
        ending = supervise(command, live=live, coloured=around.progress == Style.COLOURED)
    except OSError as error:
        raise RunFailure(f"cannot start {shlex.join(command)}: {error}") from error
    return settle(around.output, before, ending, trusted="--with-ft" not in command)


def check(path: Path, overrides: Sequence[str], ended_in: Path | None, output: Output) -> int:
    """Print the resolved experiment, or say whether a run file holds an ended run of it: 4 if it can go on, else 1."""
    experiment = load_experiment(path, overrides)
    if ended_in is None:
        output.answer(lambda: to_toml(experiment), lambda: {"file": path, "experiment": experiment})
        return 0
    from areabench.sweeps.results import can_go_on, ended_state

    state = ended_state(ended_in, experiment)
    goes_on = state is None and can_go_on(ended_in, experiment)
    words = state.text if state is not None else "holds no run of this experiment that has ended"
    if goes_on:
        from areabench.trust import command_on

        words = f"has not ended, and can go on from its checkpoint: {command_on('resume', ended_in, experiment)}"
    record = {"file": ended_in, "state": state, "can_go_on": goes_on}
    output.answer(lambda: f"{ended_in}: {words}\n", lambda: record)
    return 4 if goes_on else int(state is None)


@dataclass(frozen=True)
class TheoryWishes:
    """What `theory` is asked for: a run whose rates count, long solutions, a file for its suggestion."""

    measured_in: Path | None
    solve: bool
    write: Path | None
    force: bool
    progress: Style
    output: Output


def theory(path: Path, overrides: Sequence[str], wishes: TheoryWishes, cache: Path) -> int:
    """Print what the paper's theory says about an experiment; write the experiment that it suggests."""
    from areabench.advice import findings_text
    from areabench.suggestion import awaits_solution, suggestion
    from areabench.theory_findings import find
    from areabench.theory_subject import subject_of

    if wishes.write is not None:
        refuse_existing(wishes.write, force=wishes.force, option="--write")
    subject = subject_of(load_experiment(path, overrides), wishes.measured_in, cache, solve=wishes.solve)
    if wishes.write is not None and awaits_solution(subject):
        raise UserError("--write: Theorem 2's step size at measured rates needs |x_s0 - x*|; add --solve")
    progress = ProgressLine("theory", None, wishes.progress)
    progress.close("solving for the minimisers" if wishes.solve else "")
    suggested, found = suggestion(subject), find(subject)
    progress.close()
    if wishes.write is not None and suggested is None:
        raise UserError(f"{path}: no theorem applies, so there is nothing to suggest; leave --write out")
    wishes.output.answer(lambda: findings_text(found), lambda: found)
    if wishes.write is not None and suggested is not None:
        _write_experiment(suggested, wishes.write)
        wishes.output.remark(f"{'written':<14}{wishes.write}")
    return 0


def _write_experiment(experiment: Experiment, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_toml(experiment), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--write {path}: {error.strerror or error}; choose another file") from error
