"""Commands that make one run: simulate, launch, run and resume; and batch, which makes the runs of a sweep on MPI.

Every rank of a launch loads this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import CommandContext
from areabench.engine.events import State, Status, exit_code
from areabench.errors import UserError
from areabench.experiment.parse import bits_asked, load_experiment
from areabench.kernels import require, require_bits
from areabench.launching.ranks import on_ranks
from areabench.progress import Style
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.transports.mpi_run import MpiResult
    from areabench.transports.world import World


def simulate(options: argparse.Namespace, context: CommandContext) -> int:
    """Make one run in virtual time."""
    from areabench.transports.session import simulate as run_simulation

    experiment, run_options = load_experiment(options.experiment, options.overrides), _run_options(options, context)
    require_bits(experiment.bits)
    return _report(run_simulation(experiment, run_options), run_options.output_for(experiment))


def launch(options: argparse.Namespace, context: CommandContext) -> int:
    """Check the experiment, then start mpirun: one rank for the server and one per client unless told otherwise."""
    from areabench.launching.mpirun import FaultTolerance
    from areabench.launching.run import launch_run

    experiment, run_options = load_experiment(options.experiment, options.overrides), _run_options(options, context)
    require_bits(experiment.bits)  # the ranks have the environment of this process
    tolerance, overrides = FaultTolerance(options.fault_tolerant), options.overrides
    return launch_run(experiment, options.experiment, run_options, options.ranks, tolerance, overrides=overrides)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    """Make one run in real time; called on every rank."""
    run_options = _run_options(options, context)
    with suppress(UserError):  # rank 0 reports it; another rank need not see the file
        require_bits(bits_asked(options.experiment, options.overrides))

    def on_rank(world: World) -> int:
        from areabench.transports.mpi_run import run_on_mpi

        return _report_on_rank(
            world, run_on_mpi(lambda: load_experiment(options.experiment, options.overrides), run_options, world)
        )

    return on_ranks(on_rank, context.started)


def resume(options: argparse.Namespace, context: CommandContext) -> int:
    """Continue a run where it was made: in virtual time, on the ranks of this launch, or under a new mpirun.

    It calls no code that the run file names and `--trust-module` does not.
    """
    path, trusted, run_options = options.run, options.trusted, _run_options(options, context)
    if context.started is not None:

        def on_rank(world: World) -> int:
            from areabench.transports.mpi_run import resume_on_mpi

            return _report_on_rank(world, resume_on_mpi(path, run_options, world, trusted))

        return on_ranks(on_rank, context.started)

    from areabench.engine.plugins.trust import check_trusted
    from areabench.experiment.module_paths import trusted_folders
    from areabench.launching.mpirun import FaultTolerance
    from areabench.launching.run import resume_on_ranks
    from areabench.runfile.read import open_run
    from areabench.transports.session import resumable, resume_simulation

    with open_run(path) as recorded:
        resumable(recorded)
        check_trusted(recorded.experiment, path, trusted)
        require_bits(recorded.experiment.bits)
        require(recorded.provenance.kernels)
        if recorded.provenance.transport != "mpi":
            if options.ranks is not None:
                raise UserError(f"--ranks {options.ranks}: {path} was simulated; leave it out")
            return _report(resume_simulation(recorded, run_options, trusted_folders(trusted)), path)
        tolerance = FaultTolerance(options.fault_tolerant)
        return resume_on_ranks(recorded, run_options, options.ranks, tolerance, trusted)


def batch(options: argparse.Namespace, context: CommandContext) -> int:
    """Make the runs of a batch file, for the sweep that wrote it; called on every rank."""
    run_options = RunOptions(None, context.cache, context.command_line, force=True, progress=Style.NONE, remarks=False)

    def on_rank(world: World) -> int:
        if world.rank:
            from areabench.sweeps.mpi_ranks import follow

            return follow(world, run_options)
        from areabench.sweeps.mpi import read_batch
        from areabench.sweeps.mpi_leader import lead_batch

        lead_batch(read_batch(options.file), world, run_options)
        return 0

    return on_ranks(on_rank, context.started)


def _run_options(options: argparse.Namespace, context: CommandContext) -> RunOptions:
    output, force = (options.run, True) if options.command == "resume" else (options.output, options.force)
    return RunOptions(
        output,
        context.cache,
        context.command_line,
        force,
        context.progress,
        options.checkpoint_every,
        observers=tuple(options.observers),
    )


def _report_on_rank(world: World, result: MpiResult) -> int:
    """Print on rank 0 how a run on MPI has ended; returns the exit code on all ranks."""
    if world.rank:
        return exit_code(result.status)
    code = _report(result.status, result.output)
    if result.diagnosis is not None:
        from areabench.views.text import diagnosis_text

        print(diagnosis_text(result.diagnosis), end="")
    return code


def _report(status: Status, output: Path) -> int:
    """Print how a run has ended; returns the exit code."""
    from areabench.views.styled import counted

    refused = f", {status.refused:,} refused" if status.refused else ""
    lost = f", {counted(status.lost, 'client')} lost" if status.lost else ""
    print(
        f"{output}: {status.state.text} ({status.reason}): {counted(status.updates, 'update')}, "
        f"{counted(status.server_steps, 'server step')}, {status.discarded:,} discarded{refused}{lost}"
    )
    if status.is_without_steps:
        from areabench.views.text import NO_STEPS

        print(NO_STEPS)
    if status.state == State.STOPPED:
        print(f"to continue: {_resume_command(output)}")
    if status.unevaluated:
        _say_unevaluated(status, output)
    return exit_code(status)


def _resume_command(output: Path) -> str:
    """What to type; the run is the user's own, so the command trusts the code that it names."""
    from areabench.engine.plugins.trust import command_on
    from areabench.runfile.read import open_run

    with open_run(output) as recorded:
        return command_on("resume", output, recorded.experiment)


def _say_unevaluated(status: Status, output: Path) -> None:
    """Print why a run that has ended has no metrics, and how to try again."""
    from areabench.engine.plugins.trust import unevaluated_text
    from areabench.runfile.read import open_run

    with open_run(output) as recorded:
        text = unevaluated_text(status, output, recorded.experiment)
    print(f"areabench: {output}: {text}", file=sys.stderr)
