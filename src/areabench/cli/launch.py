"""`areabench launch`: make one run in real time on ranks that it starts."""

from __future__ import annotations

import argparse

from areabench.cli import END_OF_LAUNCH, Command, CommandContext
from areabench.cli.options import new_run_options, ranks_options
from areabench.cli.simulate import EXAMPLE


def launch_options(parser: argparse.ArgumentParser) -> None:
    """Those of a run, and of its ranks."""
    new_run_options(parser)
    ranks_options(parser)


def launch_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Check the experiment, then start mpirun: one rank for the server and one per client unless told otherwise."""
    from areabench.cli.one_run import run_options_of
    from areabench.experiment.parse import load_experiment
    from areabench.kernels import require_bits
    from areabench.launching.mpirun import FaultTolerance
    from areabench.launching.run import launch_run

    experiment = load_experiment(options.experiment, options.overrides)
    run_options = run_options_of(options, context)
    # The ranks have the environment of this process, so it must ask for the kernels that they are to take.
    require_bits(experiment.bits)
    tolerance = FaultTolerance(options.fault_tolerant)
    return launch_run(
        experiment, options.experiment, run_options, options.ranks, tolerance, overrides=options.overrides
    )


COMMAND = Command(
    EXAMPLE,
    launch_options,
    launch_command,
    END_OF_LAUNCH,
)
