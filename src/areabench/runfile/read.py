"""The reading side: open a run file and get typed arrays and pandas frames. Writes nothing, runs nothing."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.diagnosis import Diagnosis
from areabench.engine.events import ENDED, Kind, State, Status
from areabench.engine.messages import Flag
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.files import relative_paths, stored_experiment
from areabench.runfile.open import DamagedFileError
from areabench.runfile.reader import RunReader
from areabench.runfile.schema import METRIC

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Summary:
    """A run in one line; NaN where something is not defined."""

    name: str
    method: str
    step_size: float
    transport: str
    state: str
    end_s: float
    test_accuracy: float  # percent, at the end
    train_loss: float  # at the end
    target_s: float  # first snapshot at or above the accuracy asked for; infinite where there is none
    updates: int
    server_steps: int
    mean_staleness: float


def time_to_accuracy(time_s: NDArray[np.float64], accuracy: NDArray[np.float64], percent: float) -> float:
    """Time of the first snapshot with at least this test accuracy, in seconds; infinite where there is none."""
    reached = np.flatnonzero(accuracy >= percent)
    return float(time_s[reached[0]]) if len(reached) else math.inf


class Run(RunReader):
    """One run file. Arrays are read when first asked for; every row was compared with its checksum before.

    `damage` has what is wrong, by dataset. Where it is not asked for, a damaged file is not opened.
    """

    def __init__(self, path: Path, *, allow_damage: bool = False) -> None:
        super().__init__(path)
        try:
            self.check_format()
            self.experiment: Experiment = decoded_experiment(self)
            status = self.stored_status
            self._may_lack_rows = self.was_left_open or status.state == State.RUNNING
            self.damage = self.find_damage()
            if self.damage and not allow_damage:
                raise DamagedFileError(path, "; ".join(self.damage.values()))
            self.status = status_so_far(self, status) if self._may_lack_rows else status
            _ = self.provenance
        except UserError:
            self.close()
            raise

    def rows(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Rows `first` to `last` - 1 of a dataset, as they are in the file."""
        if name in self.damage:
            raise DamagedFileError(self.path, self.damage[name])
        return super().rows(name, first, last)

    @cached_property
    def events_array(self) -> NDArray[Any]:
        """All events in order, with the columns of schema.EVENT."""
        rows = self.rows("events")
        if (rows["kind"] > max(Kind)).any():
            raise DamagedFileError(self.path, "/events has unknown kinds")
        return rows

    @property
    def clipped(self) -> int:
        """Updates that were cut to privacy.range, as far as there is an event log."""
        events = self.events_array
        return int(np.count_nonzero((events["kind"] == Kind.UPDATE) & (events["flags"] & Flag.CLIPPED.value > 0)))

    @cached_property
    def snapshot_index(self) -> NDArray[Any]:
        """When each snapshot was taken: time_s, version, number of events before it."""
        rows = self.rows("snapshots/index")
        if not self._may_lack_rows:
            return rows
        # a run that was killed may have written a snapshot, and not yet its model, or the events before it
        if self.experiment.record.models == "all":
            names = ("snapshots/model", "snapshots/average") if self.keeps_averages else ("snapshots/model",)
            rows = rows[: min(self.count(name) for name in names)]
        if self.experiment.record.events:
            rows = rows[: first_false(rows["event"] <= len(self.events_array))]
        return rows

    @cached_property
    def metrics_array(self) -> NDArray[Any]:
        """Quality of each snapshot; empty when the run was not evaluated."""
        rows = self.rows("metrics")
        return rows if not self._may_lack_rows or len(rows) == len(self.snapshot_index) else rows[:0]

    @property
    def is_evaluated(self) -> bool:
        """Whether there are metrics, unless there need be none because the run has not ended."""
        return self.status.state not in ENDED or len(self.metrics_array) > 0

    @cached_property
    def clients_array(self) -> NDArray[Any]:
        """One row per client: rate, samples, rank, host."""
        rows = self.rows("clients")
        if not ranks_exist(rows):
            raise DamagedFileError(self.path, "/clients has unknown ranks")
        return rows

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """Whether the run kept its delays, as it stored; None for a simulated run and one that has not ended."""
        return stored_diagnosis(self)

    @cached_property
    def models(self) -> NDArray[Any]:
        """All snapshots, shape (snapshots, parameters)."""
        return self.rows("snapshots/model", 0, len(self.snapshot_index))

    @cached_property
    def averages(self) -> NDArray[Any]:
        """The running means of the server's models beside the snapshots, shape (snapshots, parameters)."""
        if not self.keeps_averages:
            raise RunFileError(f"{self.path}: keeps no average; run it with record.average=true")
        return self.rows("snapshots/average", 0, len(self.snapshot_index))

    def has_model(self, number: int) -> bool:
        """Whether this snapshot's model is there: all are, or the last one is, unless the run was killed before."""
        if self.experiment.record.models == "all":
            return True
        return self.count("snapshots/model") > 0 and number in (-1, len(self.snapshot_index) - 1)

    def model(self, number: int) -> Vector:
        """One snapshot, without reading the others; where only the last is kept, an error for any other."""
        if not self.has_model(number):
            raise RunFileError(f"{self.path}: keeps the last model only; run it with record.models=all for the others")
        if self.experiment.record.models == "last":
            number = self.count("snapshots/model") - 1
        else:
            number = range(len(self.snapshot_index))[number]
        return np.asarray(self.rows("snapshots/model", number, number + 1)[0])

    @cached_property
    def staleness(self) -> NDArray[np.int64]:
        """How many of the updates used were 0, 1, 2, ... versions old."""
        if not self.experiment.record.events:
            return self.rows("tally/staleness")
        return self._count("staleness", "staleness", len(self.events_array))

    @cached_property
    def served(self) -> NDArray[np.int64]:
        """How many updates of each client were used, shape (clients,)."""
        if not self.experiment.record.events:
            return self.rows("tally/served")
        clients = len(self.clients_array)
        served = self._count("served", "client", clients)
        return np.pad(served, (0, clients - len(served)))

    def _count(self, name: str, column: str, most: int) -> NDArray[np.int64]:
        """How often each value below `most` occurs in a column of the updates that were used."""
        values = self.events_array[column][self.events_array["kind"] == Kind.UPDATE]
        if len(values) and not 0 <= values.min() <= values.max() < most:
            raise DamagedFileError(self.path, f"/events: {name} counts values from {values.min()} to {values.max()}")
        return np.bincount(values).astype(np.int64)

    @cached_property
    def events(self) -> pd.DataFrame:
        """All events as a pandas frame; `kind` in words."""
        frame = _frame(self.events_array)
        return frame.assign(kind=[Kind(kind).text for kind in self.events_array["kind"]])

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Time, version and quality of every snapshot as a pandas frame."""
        index = _frame(self.snapshot_index)
        return index.join(_frame(self.metrics_array)) if len(self.metrics_array) else index

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The clients as a pandas frame."""
        frame = _frame(self.clients_array)
        return frame.assign(host=[host.decode(errors="replace") for host in self.clients_array["host"]])

    def time_to_accuracy(self, percent: float) -> float:
        """Time of the first snapshot with at least this test accuracy, in seconds; infinite where there is none."""
        return time_to_accuracy(self.snapshot_index["time_s"], self.metrics_array["test_accuracy"], percent)

    def summary(self, target_accuracy: float = 80.0) -> Summary:
        """The run in one line."""
        method = self.experiment.method
        status = self.status
        last = np.full(1, np.nan, METRIC)[0]
        if len(self.metrics_array):
            last = self.metrics_array[-1]
        staleness = self.staleness
        mean_staleness = math.nan
        if staleness.any():
            mean_staleness = float(np.average(np.arange(len(staleness)), weights=staleness))
        return Summary(
            name=self.experiment.name,
            method=method.name,
            step_size=method.step_size,
            transport=self.provenance.transport,
            state=status.state.text,
            end_s=status.end_s,
            test_accuracy=float(last["test_accuracy"]),
            train_loss=float(last["train_loss"]),
            target_s=self.time_to_accuracy(target_accuracy),
            updates=status.updates,
            server_steps=status.server_steps,
            mean_staleness=mean_staleness,
        )

    def to_parquet(self, folder: str | Path | None = None, *, force: bool = False) -> list[Path]:
        """Write events, metrics and clients as Parquet files into a folder, or into one beside the file; the paths."""
        from areabench.runfile.export import beside, run_columns, write_columns

        chosen = beside(self.path) if folder is None else Path(folder)
        return write_columns(run_columns(self), chosen, "parquet", force=force)


def open_run(path: str | Path, *, allow_damage: bool = False) -> Run:
    """Open a run file for reading; every row in it is compared with its checksum.

    A damaged file is refused. With `allow_damage` its whole parts can be read, and `Run.damage` lists the others.
    """
    return Run(Path(path), allow_damage=allow_damage)


def decoded_experiment(reader: RunReader) -> Experiment:
    """The experiment of a run file, its paths absolute.

    They start at the folder of the experiment's file: where that lies seen from the run file, which may have been moved
    together with it, or else where it was for the run.
    """
    source = f"{reader.path}: experiment"
    folder, folder_from_here = (str(reader.attributes.get(name, "")) for name in ("folder", "folder_from_here"))
    if folder:
        moved = os.path.normpath(reader.path.absolute().parent / folder_from_here)
        found = stored_experiment(reader.experiment_text, source, moved)
        if all(os.path.exists(path) for path in relative_paths(found)):  # noqa: PTH110 - no error is raised
            return found
    return stored_experiment(reader.experiment_text, source, folder)


def experiment_in(path: Path) -> Experiment:
    """The experiment of a run file; no row is read."""
    with RunReader(path) as reader:
        return decoded_experiment(reader)


def status_so_far(reader: RunReader, status: Status) -> Status:
    """The status of a run that continues, or that did not close its file: counted from the events that reached it."""
    from areabench.engine.state import counted_status

    events = reader.rows("events")
    if not len(events) and not decoded_experiment(reader).record.events:
        return status
    if (events["kind"] > max(Kind)).any():
        raise DamagedFileError(reader.path, "/events has unknown kinds")
    kinds = np.bincount(events["kind"], minlength=len(Kind)).tolist()
    end_s = float(events["time_s"][-1]) if len(events) else 0.0
    counted = counted_status(status.state, status.reason, end_s, kinds)
    return replace(counted, drain_s=status.drain_s, lost=max(counted.lost, status.lost))


def stored_diagnosis(reader: RunReader) -> Diagnosis | None:
    """The diagnosis in a run file; None where there is none."""
    summary = reader.rows("diagnosis/summary")
    if not len(summary):
        return None
    values = dict(zip(summary.dtype.names or (), summary[0].tolist(), strict=True))
    try:
        texts = {name: value.decode() for name, value in values.items() if isinstance(value, bytes)}
        tables = {name: reader.rows(f"diagnosis/{name}") for name in ("clients", "quantiles")}
        found = Diagnosis(**{**values, **texts, **tables})
        _ = found.cause  # a ValueError where the verdict is none of ours
    except ValueError as error:
        raise DamagedFileError(reader.path, f"/diagnosis: {error}") from error
    return found


def ranks_exist(clients: NDArray[Any]) -> bool:
    """Whether the clients' ranks can be true: none, or one of at most as many as there are clients."""
    ranks = clients["rank"]
    return bool(((ranks >= -1) & (ranks <= len(clients))).all())


def first_false(good: NDArray[np.bool_]) -> int:
    """The number of entries before the first that is false."""
    return len(good) if good.all() else int(good.argmin())


def frame_of(data: Any, columns: list[str] | None = None) -> pd.DataFrame:
    """A pandas frame of what its constructor takes; a UserError where pandas is not installed."""
    try:
        import pandas as pd  # slow to import; only notebooks need it
    except ImportError as error:
        raise UserError(
            f"a frame needs pandas ({error}); install it with `make install`, or in the clone "
            "`pip install '.[analysis]'`"
        ) from error
    return pd.DataFrame(data, columns=columns)


def _frame(table: NDArray[Any]) -> pd.DataFrame:
    return frame_of({name: table[name] for name in table.dtype.names or ()})
