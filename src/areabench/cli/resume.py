"""`areabench resume`: continue a run from its checkpoint. Every rank of a launch loads this file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from areabench.cli import END_OF_LAUNCH, Command, CommandContext
from areabench.cli.options import ranks_options, recording_options, run_argument, trust_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.transports.world import World


def resume_options(parser: argparse.ArgumentParser) -> None:
    """The run, its ranks, the code that it may call, and how it is recorded."""
    run_argument(parser, "run file; what was recorded after the checkpoint is recorded again")
    ranks_options(parser)
    trust_option(parser)
    recording_options(parser)


def resume_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Continue a run where it was made: in virtual time, on the ranks of this launch, or under a new mpirun.

    It calls no code that the run file names and `--trust-module` does not.
    """
    from areabench.cli.one_run import print_end, print_end_on_rank, run_options_of
    from areabench.kernels import require, require_bits
    from areabench.launching.ranks import on_ranks

    path = options.run
    trusted = options.trusted
    run_options = run_options_of(options, context)
    if context.started is not None:

        def on_rank(world: World) -> int:
            from areabench.transports.mpi_run import resume_on_mpi

            return print_end_on_rank(world, resume_on_mpi(path, run_options, world, trusted))

        return on_ranks(on_rank, context.started)

    from areabench.launching.mpirun import FaultTolerance
    from areabench.launching.run import resume_on_ranks
    from areabench.plugins.trust import check_trusted, trusted_folders
    from areabench.runfile.read import open_run
    from areabench.transports.session import resumable, resume_simulation

    with open_run(path) as recorded:
        # What cannot be resumed is said before this process starts again with other kernels, or starts ranks.
        resumable(recorded)
        check_trusted(recorded.experiment, path, trusted)
        require_bits(recorded.experiment.bits)
        require(recorded.provenance.kernels)
        if recorded.provenance.transport != "mpi":
            if options.ranks is not None:
                raise UserError(f"--ranks {options.ranks}: {path} was simulated; leave it out")
            return print_end(resume_simulation(recorded, run_options, trusted_folders(trusted)), path)
        tolerance = FaultTolerance(options.fault_tolerant)
        return resume_on_ranks(recorded, run_options, options.ranks, tolerance, trusted)


COMMAND = Command(
    "runs/demo-area-0.h5",
    resume_options,
    resume_command,
    END_OF_LAUNCH,
)
