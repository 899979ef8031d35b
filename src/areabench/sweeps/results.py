"""A run as tables and figures see it: read from its file, which is closed again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.attributes import read_attributes
from areabench.checkpoint import checkpoint_path
from areabench.config import to_toml
from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.opening import DAMAGE, left_open, open_file
from areabench.reading import open_run
from areabench.schema import ENDED, FORMAT, SCHEMA_VERSION, State, Status
from areabench.status_record import status_of


@dataclass(frozen=True)
class Result:
    """One run: its experiment, how it ended, and its quality over time, one entry a snapshot."""

    path: Path
    experiment: Experiment
    status: Status
    time_s: NDArray[np.float64]
    train_loss: NDArray[np.float64]  # NaN where the loss was not asked for
    test_accuracy: NDArray[np.float64]  # percent
    staleness: NDArray[np.int64]  # how many updates were 0, 1, 2, ... versions old
    served: NDArray[np.int64]  # how many updates of each client were used
    score_gap: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # see Metrics; NaN where the loss is

    @property
    def final_loss(self) -> float:
        """Training loss at the end; infinite where the run diverged, NaN where nothing was evaluated."""
        if self.status.state == State.DIVERGED:
            return math.inf
        return float(self.train_loss[-1]) if len(self.train_loss) else math.nan

    @property
    def final_accuracy(self) -> float:
        """Test accuracy at the end in percent; NaN where the run diverged or nothing was evaluated."""
        if self.status.state == State.DIVERGED or not len(self.test_accuracy):
            return math.nan
        return float(self.test_accuracy[-1])

    def time_to_accuracy(self, percent: float) -> float:
        """Time of the first snapshot with at least this test accuracy, in seconds; infinite if there is none.

        NaN where it is not known: without accuracy or snapshots over time, or if the run ended before its horizon.
        """
        if self.experiment.record.snapshots == "none" or not np.isfinite(self.test_accuracy).any():
            return math.nan
        reached = np.flatnonzero(self.test_accuracy >= percent)
        if len(reached):
            return float(self.time_s[reached[0]])
        return math.nan if self.ended_early else math.inf

    @property
    def ended_early(self) -> bool:
        """Whether the run ended before its horizon, at an iteration count or a target; to diverge is another end."""
        horizon_s = self.experiment.stop.horizon_s
        return self.status.state != State.DIVERGED and horizon_s is not None and self.status.end_s < horizon_s


def read_result(path: Path) -> Result:
    """Read one run file."""
    with open_run(path) as run:
        metrics = run.metrics_array
        return Result(
            path=path,
            experiment=run.experiment,
            status=run.status,
            time_s=run.snapshot_index["time_s"][: len(metrics)],
            train_loss=metrics["train_loss"],
            test_accuracy=metrics["test_accuracy"],
            score_gap=metrics["score_gap"],
            staleness=run.staleness,
            served=run.served,
        )


# --------------------------------------------------------------------------------------------- one of many


def ended_state(path: Path, experiment: Experiment) -> State | None:
    """How the run of this very experiment ended; None where the file holds another one, or none that ended."""
    try:
        with open_file(path) as file:
            state = status_of(file).state if _holds(file, experiment) else None
    except DAMAGE:
        return None
    return state if state in ENDED else None


def can_go_on(path: Path, experiment: Experiment) -> bool:
    """Whether the file holds a run of this very experiment that has not ended, and has a checkpoint beside it."""
    try:
        with open_file(path) as file:
            found = _holds(file, experiment) and status_of(file).state not in ENDED
    except DAMAGE:
        return False
    return found and checkpoint_path(path).exists()


def read_ended(path: Path, experiment: Experiment) -> Result | None:
    """The run of this very experiment, None as above.

    Reads less than `read_result`: of hundreds of files most of the time goes into experiments and provenance.
    """
    try:
        with open_file(path) as file:
            if not _holds(file, experiment):
                return None
            counted = not experiment.record.events and len(file["metrics"]) and not left_open(file)
            result = _from_tally(path, file, experiment) if counted else None
        result = result or read_result(path)
    except (*DAMAGE, UserError):
        return None
    return result if result.status.state in ENDED else None


def _holds(file: h5py.File, experiment: Experiment) -> bool:
    """Whether it is a run file of this version, and of this experiment."""
    about = read_attributes(file.attrs)
    known = about["format"] == FORMAT and about["schema_version"] == SCHEMA_VERSION
    return bool(known and about["experiment"] == to_toml(experiment))


def _from_tally(path: Path, file: h5py.File, experiment: Experiment) -> Result:
    """A run that counted its updates itself."""
    metrics: NDArray[Any] = file["metrics"][()]
    return Result(
        path=path,
        experiment=experiment,
        status=status_of(file),
        time_s=file["snapshots/index"]["time_s"][: len(metrics)],
        train_loss=metrics["train_loss"],
        test_accuracy=metrics["test_accuracy"],
        staleness=file["tally/staleness"][()],
        served=file["tally/served"][()],
        score_gap=metrics["score_gap"],
    )
