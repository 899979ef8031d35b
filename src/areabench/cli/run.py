"""`areabench run`: make one run in real time on the ranks of this launch.

Every rank loads this file, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

from areabench.cli import END_OF_RUN, Command, CommandContext
from areabench.cli.options import new_run_options
from areabench.cli.simulate import EXAMPLE
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.transports.world import World


def run_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Make one run in real time; called on every rank."""
    from areabench.cli.one_run import print_end_on_rank, run_options_of
    from areabench.experiment.parse import bits_asked, load_experiment
    from areabench.kernels import require_bits
    from areabench.launching.ranks import on_ranks
    from areabench.launching.steps import FOLDER

    run_options = run_options_of(options, context)
    if FOLDER not in context.environment:  # `areabench launch` has started itself again already
        with suppress(UserError):  # rank 0 reports it; another rank need not see the file
            require_bits(bits_asked(options.experiment, options.overrides))

    def on_rank(world: World) -> int:
        from areabench.transports.mpi_run import run_on_mpi

        result = run_on_mpi(lambda: load_experiment(options.experiment, options.overrides), run_options, world)
        return print_end_on_rank(world, result)

    return on_ranks(on_rank, context.started)


COMMAND = Command(
    EXAMPLE,
    new_run_options,
    run_command,
    END_OF_RUN,
    launcher="mpirun -n 9 ",
)
