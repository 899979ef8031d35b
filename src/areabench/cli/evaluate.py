"""`areabench evaluate`: compute the metrics of runs again, and put them into their files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areabench.cli import DONE, Command, CommandContext
from areabench.cli.options import json_option, progress_option, trust_option
from areabench.errors import RunFailure, RunFileError, UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from areabench.engine.scenario import Scenario
    from areabench.progress import Style
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


def evaluate_file(path: Path, build: Callable[[Run], Scenario], style: Style) -> int:
    """Evaluate a run that has ended again, and put the metrics into its file; how many snapshots it has.

    The file stays as it is until another one that holds everything takes its place. A RunFailure where the evaluation
    fails.
    """
    from tempfile import TemporaryDirectory

    from areabench.engine.events import ENDED
    from areabench.runfile.lock import Claim
    from areabench.runfile.read import open_run
    from areabench.runfile.record import write_again

    if not path.is_file():
        raise RunFileError(f"{path}: no such file; give the path of a run file (.h5)")
    claim = Claim(path, force=True)
    try:
        with open_run(path) as run, TemporaryDirectory(prefix=f".{path.name}.", dir=claim.making.parent) as folder:
            if run.status.state not in ENDED:
                raise RunFileError(
                    f"{path}: is {run.status.state.text}, and only a run that has ended is evaluated; resume it, or "
                    "run it again"
                )
            metrics = _metrics(run, build(run), style)
            made = Path(folder) / "evaluated.h5"
            write_again(run, metrics, made)
            made.replace(claim.making)
        claim.publish()
    finally:
        claim.release()
    return len(metrics)


def _metrics(run: Run, scenario: Scenario, style: Style) -> NDArray[Any]:
    """The metrics of all snapshots, as rows; a RunFailure with the cause where the evaluation fails."""
    from areabench.progress import ProgressLine
    from areabench.transports.replay import evaluated_again
    from areabench.transports.session import told

    scenario.check_data(run.provenance.data_digest, run.path)
    progress = ProgressLine("evaluate", run.status.end_s, style)
    try:
        return evaluated_again(run, scenario, progress)
    except (UserError, RunFailure):
        raise
    except (Exception, SystemExit) as error:  # whatever a user's problem raises
        reason = told(error, run.experiment)[1]
        raise RunFailure(f"{run.path}: its evaluation failed ({reason}); the file is as it was") from error
    finally:
        progress.close()


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
