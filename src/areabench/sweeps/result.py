"""The result of one run as tables and figures take it, and what a sweep asks of a run file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import ENDED, Kind, State, Status
from areabench.errors import RunFileError
from areabench.experiment.experiment import Experiment
from areabench.experiment.files import changed_files, written_text
from areabench.plugins.modules import checksum, of_text
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.open import DamagedFileError
from areabench.runfile.read import open_run, time_to_accuracy
from areabench.runfile.reader import RunReader
from areabench.runfile.schema import FORMAT, SCHEMA_VERSION


@dataclass(frozen=True)
class Result:
    """One run: its experiment, how it ended, and its quality over time, one entry per snapshot."""

    path: Path
    experiment: Experiment
    status: Status
    time_s: NDArray[np.float64]
    train_loss: NDArray[np.float64]  # NaN where the loss was not asked for
    test_accuracy: NDArray[np.float64]  # percent
    staleness: NDArray[np.int64]  # how many updates were 0, 1, 2, ... versions old
    served: NDArray[np.int64]  # how many updates of each client were used
    updates: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # received until each snapshot
    server_steps: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # made until each snapshot

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and was evaluated."""
        return self.status.state in ENDED and len(self.time_s) > 0

    @property
    def has_diverged(self) -> bool:
        """Whether the run diverged: its status says so, or it ended with a loss that is NaN or infinite."""
        ended = self.status.state in ENDED and len(self.train_loss) > 0
        return self.status.state == State.DIVERGED or (ended and not math.isfinite(self.final_loss))

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
        """Time of the first snapshot with at least this test accuracy, in seconds; infinite where there is none."""
        return time_to_accuracy(self.time_s, self.test_accuracy, percent)

    def knows_time_to(self, percent: float) -> bool:
        """Whether `time_to_accuracy` is known: the time, or that it was not reached before the horizon.

        Not so without accuracy or snapshots over time, and where the run ended early without having reached it.
        """
        if self.experiment.record.snapshots == "none" or not np.isfinite(self.test_accuracy).any():
            return False
        return math.isfinite(self.time_to_accuracy(percent)) or not self.ended_early

    @property
    def ended_early(self) -> bool:
        """Whether the run ended before its horizon, at an iteration count or a target; to diverge is another end."""
        horizon_s = self.experiment.stop.horizon_s
        return not self.has_diverged and horizon_s is not None and self.status.end_s < horizon_s


def read_result(path: Path) -> Result:
    """Read one run file."""
    with open_run(path) as run:
        events = run.events_array if run.experiment.record.events else None
        metrics = run.metrics_array
        index = run.snapshot_index
        return _result(path, run.experiment, run.status, metrics, index, run.staleness, run.served, events)


def _result(
    path: Path,
    experiment: Experiment,
    status: Status,
    metrics: NDArray[Any],
    index: NDArray[Any],
    staleness: NDArray[np.int64],
    served: NDArray[np.int64],
    events: NDArray[Any] | None = None,
) -> Result:
    """A result from rows of the run file; a run without event log has counted its updates itself."""
    # A run that was killed has snapshots that were never evaluated.
    index = index[: len(metrics)]
    return Result(
        path=path,
        experiment=experiment,
        status=status,
        time_s=index["time_s"],
        train_loss=metrics["train_loss"],
        test_accuracy=metrics["test_accuracy"],
        staleness=staleness,
        served=served,
        updates=_updates_until(index, served, events),
        server_steps=index["version"],
    )


def _updates_until(index: NDArray[Any], served: NDArray[np.int64], events: NDArray[Any] | None) -> NDArray[np.int64]:
    """Updates used until each snapshot.

    Without event log this is exact at the end, and before it where all events were updates and server steps. Where
    some were not (refused updates, cancelled orders, calls of a rule that led to no step), a snapshot does not say how
    many of them came before it: they are taken to be spread evenly.
    """
    if events is not None:
        return np.searchsorted(np.flatnonzero(events["kind"] == Kind.UPDATE), index["event"])
    others: NDArray[np.int64] = index["event"] - index["version"]
    used = int(served.sum())
    return others if not len(others) or others[-1] <= used else others * used // others[-1]


# ---------------------------------------------------------------------------------------------------- runs of a sweep


def ended_state(path: Path, experiment: Experiment, *, evaluated: bool = False) -> State | None:
    """How the run of exactly this experiment ended; None where the file holds another run, or none that ended.

    `evaluated`: None also where it has no metrics.
    """
    state = _state(path, experiment, evaluated=evaluated)
    return state if state in ENDED else None


def content_changed(path: Path, experiment: Experiment) -> bool:
    """Whether a module or file that a run was made with has changed since, or is missing; imports nothing."""
    try:
        with RunReader(path) as reader:
            provenance = reader.provenance
    except RunFileError:
        return False
    modules = of_text(provenance.modules)
    if any(checksum(module.source(experiment.module_folders or ())) != module.sha256 for module in modules):
        return True
    return any(changed_files(provenance.files, experiment))


def can_continue(path: Path, experiment: Experiment) -> bool:
    """Whether the file holds a run of exactly this experiment that has not ended, with a checkpoint beside it."""
    state = _state(path, experiment)
    return state is not None and state not in ENDED and checkpoint_path(path).exists()


def _state(path: Path, experiment: Experiment, *, evaluated: bool = False) -> State | None:
    """The state of a run of exactly this experiment; None where the file holds another run or none, or is damaged."""
    try:
        with RunReader(path) as reader:
            if not _holds(reader, experiment) or (not reader.was_left_open and reader.find_damage()):
                return None
            return None if evaluated and not reader.length("metrics") else reader.stored_status.state
    except RunFileError:
        return None


def read_ended(path: Path, experiment: Experiment) -> Result | None:
    """The run of exactly this experiment; None where there is no file, another run or one that is not done.

    A RunFileError where the file is damaged. Reads less than `read_result`: with hundreds of files, experiments and
    provenance take most of the time.
    """
    if not path.is_file():
        return None
    try:
        with RunReader(path) as reader:
            if not _holds(reader, experiment):
                return None
            result = None
            if not experiment.record.events and not reader.was_left_open and reader.length("metrics"):
                names = ("metrics", "snapshots/index", "tally/staleness", "tally/served")
                metrics, index, staleness, served = (reader.rows(name) for name in names)
                result = _result(path, experiment, reader.stored_status, metrics, index, staleness, served)
    except DamagedFileError as error:
        raise RunFileError(f"{path}: is damaged ({error.what}); `areabench sweep` makes this run again") from error
    except RunFileError as error:
        raise RunFileError(f"{error}; `areabench sweep` makes this run again") from error
    result = result or read_result(path)
    return result if result.is_done else None


def _holds(reader: RunReader, experiment: Experiment) -> bool:
    """Whether it is a run file of this version, and of this experiment."""
    about = reader.attributes
    known = (about.get("format"), about.get("schema_version")) == (FORMAT, SCHEMA_VERSION)
    return known and reader.experiment_text == written_text(experiment)
