"""`areabench simulate`: make one run in virtual time."""

from __future__ import annotations

import argparse

from areabench.cli import END_OF_RUN, Command, CommandContext
from areabench.cli.options import new_run_options

EXAMPLE = "benchmarks/experiments/demo/demo.toml --set method.step_size=10 --output runs/try.h5"


def simulate_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Make one run in virtual time."""
    from areabench.cli.one_run import print_end, run_options_of
    from areabench.experiment.parse import load_experiment
    from areabench.kernels import require_bits
    from areabench.transports.session import simulate_run

    experiment = load_experiment(options.experiment, options.overrides)
    run_options = run_options_of(options, context)
    require_bits(experiment.bits)
    return print_end(simulate_run(experiment, run_options), run_options.output_for(experiment))


COMMAND = Command(EXAMPLE, new_run_options, simulate_command, END_OF_RUN)
