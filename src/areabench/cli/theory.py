"""`areabench theory`: what the paper's theory says about an experiment."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.cli import Command, CommandContext
from areabench.cli.options import experiment_options, force_option, json_option, progress_option
from areabench.errors import UserError


def theory_options(parser: argparse.ArgumentParser) -> None:
    """An experiment, where its rates come from, and where to write what the theorems suggest."""
    experiment_options(parser)
    parser.add_argument(
        "--from", dest="measured_in", type=Path, metavar="RUN", help="take the rates measured in this run file"
    )
    parser.add_argument(
        "--solve", action="store_true",
        help="for the bounds, also solve for slow minimisers (logistic, hinge)",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the experiment that the theorems suggest")
    force_option(parser)
    json_option(parser)
    progress_option(parser)


def theory_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print what the paper's theory says about an experiment; write the experiment that it suggests."""
    from areabench.experiment.parse import load_experiment
    from areabench.files import refuse_existing, write_text
    from areabench.progress import ProgressLine
    from areabench.results.advice import awaits_solution, find, subject_of
    from areabench.settings.parse import to_toml
    from areabench.views.text import theory_text

    if options.write is not None:
        refuse_existing(options.write, force=options.force, option="--write")
    experiment = load_experiment(options.experiment, options.overrides)
    subject = subject_of(experiment, options.measured_in, context.cache, solve=options.solve)
    if options.write is not None and awaits_solution(subject):
        raise UserError("--write: Theorem 2's step size at measured rates needs |x_s0 - x*|; add --solve")
    progress = ProgressLine("theory", None, context.progress)
    progress.close("solving for the minimisers" if options.solve else "")
    found = find(subject)
    progress.close()
    if options.write is not None and found.suggestion is None:
        raise UserError(f"{options.experiment}: no theorem applies, so there is nothing to suggest; leave --write out")
    context.output.answer(lambda: theory_text(found), lambda: found)
    if options.write is not None and found.suggestion is not None:
        write_text(options.write, to_toml(found.suggestion), option="--write")
        context.output.remark(f"{'written':<14}{options.write}")
    return 0


COMMAND = Command(
    "benchmarks/experiments/demo/demo.toml --from runs/demo/area.h5",
    theory_options,
    theory_command,
)
