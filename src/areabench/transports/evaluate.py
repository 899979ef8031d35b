"""Evaluates a run that has ended again, in its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from areabench.engine.events import ENDED
from areabench.engine.scenario import Scenario
from areabench.errors import RunFailure, RunFileError, UserError
from areabench.progress import ProgressLine, Style
from areabench.runfile.lock import Claim
from areabench.runfile.read import Run, open_run
from areabench.runfile.record import write_again
from areabench.transports.replay import evaluated_again
from areabench.transports.session import told


def evaluate_file(path: Path, build: Callable[[Run], Scenario], style: Style) -> int:
    """Evaluate a run that has ended again, and put the metrics into its file; how many snapshots it has.

    The file stays as it is until another one that holds everything takes its place. A RunFailure where the evaluation
    fails.
    """
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
