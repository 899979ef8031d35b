"""`areabench evaluate`: compute the metrics of runs again, and put them into their files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import json_option, progress_option, trust_option
from areabench.errors import RunFailure, UserError

if TYPE_CHECKING:
    from areabench.engine.scenario import Scenario
    from areabench.runfile.read import Run


def evaluate_options(parser: argparse.ArgumentParser) -> None:
    """Run files, and the code that they may call."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run files of runs that have ended")
    trust_option(parser)
    json_option(parser)
    progress_option(parser)


def evaluate_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Evaluate run files again; 1 where an evaluation fails, 2 where a run cannot be evaluated.

    It calls no code that a run file names and `--trust-module` does not.
    """
    from areabench.engine.scenario import trusted_scenario
    from areabench.kernels import require
    from areabench.transports.evaluate import evaluate_file
    from areabench.views.styled import counted

    def build(run: Run) -> Scenario:
        if run.experiment.bits == "portable":
            require(run.provenance.kernels)  # a replay has to lead to the same bits
        return trusted_scenario(run.experiment, run.path, context.cache, options.trusted)

    answers = []
    code = 0
    for path in options.runs:
        snapshots = trouble = None
        try:
            snapshots = evaluate_file(path, build, context.progress)
        except (UserError, RunFailure) as error:  # the other files are evaluated all the same
            print(f"areabench: {error}", file=sys.stderr)
            trouble = str(error)
            code = max(code, 2 if isinstance(error, UserError) else 1)
        answers.append({"file": path, "snapshots": snapshots, "error": trouble})
    done = [each for each in answers if each["error"] is None]
    context.output.answer(
        lambda: "".join(f"{each['file']}: {counted(each['snapshots'], 'snapshot')} evaluated\n" for each in done),
        lambda: {"runs": answers},
    )
    return code


COMMAND = Command(
    "RUN.h5",
    evaluate_options,
    evaluate_command,
    DONE
    | {
        "0": "done, all evaluated",
        "1": "an evaluation failed, its file is as it was",
        "2": "bad input, or a run that cannot be evaluated",
    },
)
