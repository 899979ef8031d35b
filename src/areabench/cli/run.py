"""What the commands do, once argv and the environment have been read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.engine.events import State, Status, exit_code
from areabench.errors import UserError
from areabench.experiment.parse import load_experiment
from areabench.launch.families import StartedBy
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.transports.world import World
import shlex
from dataclasses import dataclass, replace

from areabench.engine.client import place
from areabench.engine.plugins.load import check_parts
from areabench.errors import RunFailure
from areabench.experiment.parse import to_toml
from areabench.experiment.records import Experiment
from areabench.files import refuse_existing
from areabench.launch.mpirun import LaunchWishes, Tolerance, mpirun_command, supervise
from areabench.launch.ranks import on_ranks
from areabench.progress import ProgressLine, Style

if TYPE_CHECKING:
    from areabench.transports.mpi_run import MpiResult
    from areabench.transports.world import World
    from areabench.views.terminal import Output


def run(path: Path, overrides: Sequence[str], around: RunOptions, started: StartedBy | None) -> int:
    """One run in real time; called on every rank."""

    def play(world: World) -> int:
        from areabench.transports.mpi_run import run_on_mpi

        return tell(world, run_on_mpi(lambda: load_experiment(path, overrides), around, world))

    return on_ranks(play, started)


def tell(world: World, result: MpiResult) -> int:
    """Report how a run on MPI ended, on rank 0; the exit code on all ranks."""
    if world.rank:
        return exit_code(result.status)
    code = report(result.status, result.output)
    if result.diagnosis is not None:
        from areabench.views.text import diagnosis_text

        print(diagnosis_text(result.diagnosis), end="")
    return code


def batch(path: Path, around: RunOptions, started: StartedBy | None) -> int:
    """The runs of a batch file, for the sweep that wrote it; called on every rank."""

    def play(world: World) -> int:
        if world.rank:
            from areabench.sweeps.mpi_ranks import follow

            return follow(world, around)
        from areabench.sweeps.mpi import read_batch
        from areabench.sweeps.mpi_leader import lead_batch

        lead_batch(read_batch(path), world, around)
        return 0

    return on_ranks(play, started)


def report(status: Status, output: Path) -> int:
    """Say how a run ended."""
    print(
        f"{output}: {status.state.text} ({status.reason}): {status.updates:,} updates, {status.server_steps:,} server "
        f"steps, {status.discarded:,} discarded{_faults(status)}"
    )
    if status.state == State.STOPPED:
        print(f"to go on: {_resume_command(output)}")
    return exit_code(status)


def _resume_command(output: Path) -> str:
    """What to type, with whose code it calls: the run is the user's own."""
    from areabench.engine.plugins.trust import command_on
    from areabench.runfile.read import open_run

    with open_run(output) as run:
        return command_on("resume", output, run.experiment)


def _faults(status: Status) -> str:
    """What went wrong on the way, if anything did."""
    refused = f", {status.refused:,} refused" if status.refused else ""
    return refused + (f", {status.lost:,} clients lost" if status.lost else "")


def simulate(path: Path, overrides: Sequence[str], around: RunOptions) -> int:
    """One run in virtual time."""
    from areabench.transports.session import simulate as execute_simulation

    experiment = load_experiment(path, overrides)
    return report(execute_simulation(experiment, around), around.output_for(experiment))


def launch(path: Path, overrides: Sequence[str], how: LaunchWishes, around: RunOptions) -> int:
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


def launch_ranks(arguments: Sequence[str], ranks: int, around: RunOptions, tolerance: Tolerance) -> int:
    """Start `areabench ARGUMENTS`, which writes one run file, on so many ranks of this machine."""
    from areabench.launch.mpirun import file_before, settle

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
        from areabench.views.text import experiment_text

        output.answer(lambda: experiment_text(experiment), lambda: {"file": path, "experiment": experiment})
        return 0
    from areabench.sweeps.read import can_go_on, ended_state

    state = ended_state(ended_in, experiment)
    goes_on = state is None and can_go_on(ended_in, experiment)
    words = state.text if state is not None else "holds no run of this experiment that has ended"
    if goes_on:
        from areabench.engine.plugins.trust import command_on

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
    from areabench.results.advice import awaits_solution, find, subject_of, suggestion
    from areabench.views.text import findings_text

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


def resume(path: Path, how: LaunchWishes, around: RunOptions, started: StartedBy | None, trusted: Sequence[str]) -> int:
    """Go on with a run; called on every rank where a launcher has started several.

    It calls no code that the run file names and `trusted` does not.
    """
    if started is not None:
        return _on_ranks(path, around, started, trusted)
    from areabench.engine.plugins.trust import OPTION, check_trusted
    from areabench.experiment.module_paths import trusted_folders
    from areabench.runfile.read import open_run
    from areabench.transports.session import resumable, resume_simulation

    with open_run(path) as run:
        resumable(run)
        check_trusted(run.experiment, path, trusted)
        if run.provenance.transport != "mpi":
            if how.ranks is not None:
                raise UserError(f"--ranks {how.ranks}: {path} was simulated; leave it out")
            return report(resume_simulation(run, around, trusted_folders(trusted)), path)
        wanted = run.provenance.ranks if how.ranks is None else how.ranks
        place(run.experiment.clients.count, wanted)

    vouched = [word for each in trusted for word in (OPTION, each)]
    return launch_ranks(["resume", str(path), *vouched], wanted, around, how.tolerance)


def _on_ranks(path: Path, around: RunOptions, started: StartedBy, trusted: Sequence[str]) -> int:
    def play(world: World) -> int:
        from areabench.transports.mpi_run import resume_on_mpi

        return tell(world, resume_on_mpi(path, around, world, trusted))

    return on_ranks(play, started)
