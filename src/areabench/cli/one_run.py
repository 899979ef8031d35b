"""What the commands that make one run have in common: its options, and what is printed at its end.

Every rank of a launch loads this file, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import CommandContext
from areabench.engine.events import State, Status, exit_code
from areabench.transports.options import RunOptions

if TYPE_CHECKING:
    from areabench.transports.mpi_run import MpiResult
    from areabench.transports.world import World


def run_options_of(options: argparse.Namespace, context: CommandContext) -> RunOptions:
    """What a run needs besides its experiment; one that is resumed stays in its file."""
    resumes = options.command == "resume"
    return RunOptions(
        options.run if resumes else options.output,
        context.cache,
        context.command_line,
        resumes or options.force,
        context.progress,
        options.checkpoint_every,
        observers=tuple(options.observers),
    )


def print_end_on_rank(world: World, result: MpiResult) -> int:
    """Print on rank 0 how a run on MPI has ended; returns the exit code on all ranks."""
    if world.rank:
        return exit_code(result.status)
    code = print_end(result.status, result.output)
    if result.diagnosis is not None:
        from areabench.views.text import diagnosis_text

        print(diagnosis_text(result.diagnosis), end="")
    return code


def print_end(status: Status, output: Path) -> int:
    """Print how a run has ended; returns the exit code."""
    from areabench.plugins.trust import command_on, unevaluated_text
    from areabench.runfile.read import experiment_in
    from areabench.views.styled import counted

    told = (
        f"{output}: {status.state.text} ({status.reason}): {counted(status.updates, 'update')}, "
        f"{counted(status.server_steps, 'server step')}, {status.discarded:,} discarded"
    )
    if status.refused:
        told += f", {status.refused:,} refused"
    if status.lost:
        told += f", {counted(status.lost, 'client')} lost"
    print(told)
    if status.is_without_steps:
        from areabench.views.text import NO_STEPS

        print(NO_STEPS)
    # The run is the user's own: the commands that are proposed trust the code that it names.
    if status.state == State.STOPPED:
        print(f"to continue: {command_on('resume', output, experiment_in(output))}")
    if status.unevaluated:
        text = unevaluated_text(status.unevaluated, output, experiment_in(output))
        print(f"areabench: {output}: {text}", file=sys.stderr)
    return exit_code(status)
