"""`areabench batch`: the runs of a sweep on MPI; started by `areabench sweep`, not for typing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext

if TYPE_CHECKING:
    from areabench.transports.world import World


def batch_options(parser: argparse.ArgumentParser) -> None:
    """The file that the sweep has written."""
    parser.add_argument("file", type=Path)


def batch_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Make the runs of a batch file, for the sweep that wrote it; called on every rank."""
    from areabench.launching.ranks import on_ranks
    from areabench.progress import Style
    from areabench.transports.options import RunOptions

    run_options = RunOptions(None, context.cache, context.command_line, force=True, progress=Style.NONE, remarks=False)

    def on_rank(world: World) -> int:
        from areabench.sweeps.on_ranks import follow, lead_batch

        if world.rank:
            return follow(world, run_options)
        lead_batch(options.file, world, run_options)
        return 0

    return on_ranks(on_rank, context.started)


COMMAND = Command("FILE", batch_options, batch_command)
