"""The reading side: open a run file and get typed arrays and pandas frames. Writes nothing, runs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.diagnosis import DIAGNOSIS_CLIENT, QUANTILE, Diagnosis
from areabench.engine.events import CLIENT, ENDED, Kind, State, Status
from areabench.engine.messages import Flag
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.runfile.checksums import check_rows
from areabench.runfile.layout import (
    DIAGNOSIS,
    read_attributes,
    read_diagnosis,
    read_provenance,
    status_of,
)
from areabench.runfile.open import (
    DAMAGE,
    damaged,
    first_false,
    left_open,
    open_for_reading,
    own_link,
    ranks_exist,
    read_rows,
    stored_in_file,
)
from areabench.runfile.schema import EVENT, FORMAT, METRIC, SCHEMA_VERSION, SNAPSHOT

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


class Run:
    """One run file. Arrays are read when first asked for; every row was compared with its checksum before.

    `damage` has what is wrong, by dataset. Where it is not asked for, a damaged file is not opened.
    """

    def __init__(self, path: Path, *, allow_damage: bool = False) -> None:
        self.path = path
        self.damage: dict[str, str] = {}
        self._file = open_for_reading(path)
        try:
            about = read_attributes(self._file.attrs)
            check_format(path, about)
            self.experiment: Experiment = parse_experiment(str(about["experiment"]), f"{path}: experiment")
            status = status_of(self._file)
            self._ragged = left_open(self._file) or status.state == State.RUNNING  # the last rows may lack content
            self._counts = self._verify(allow_damage=allow_damage)
            self.status = self._status_so_far(status) if self._ragged and self.experiment.record.events else status
            self.provenance = read_provenance(self._file)
        except UserError:
            self.close()
            raise
        except DAMAGE as error:
            self.close()
            raise damaged(path, str(error)) from error

    def _verify(self, *, allow_damage: bool) -> dict[str, int]:
        """How many rows of each dataset count; a ValueError if some are damaged, unless that is allowed."""
        counts, self.damage = check_rows(self._file, complete=not self._ragged)
        if self.damage and not allow_damage:
            raise ValueError("; ".join(self.damage.values()))
        return counts

    def __enter__(self) -> Run:
        """Use the run as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; arrays read so far stay."""
        self._file.close()

    @cached_property
    def events_array(self) -> NDArray[Any]:
        """All events in order, with the columns of schema.EVENT."""
        rows = self._read("events", EVENT)
        if (rows["kind"] > max(Kind)).any():
            raise damaged(self.path, "/events has unknown kinds")
        return rows

    @property
    def clipped(self) -> int:
        """Updates that were cut to privacy.range, as far as there is an event log."""
        events = self.events_array
        return int(np.count_nonzero((events["kind"] == Kind.UPDATE) & (events["flags"] & Flag.CLIPPED.value > 0)))

    @cached_property
    def snapshot_index(self) -> NDArray[Any]:
        """When each snapshot was taken: time_s, version, number of events before it."""
        rows = self._read("snapshots/index", SNAPSHOT)
        return rows[: self._whole_snapshots(rows)] if self._ragged else rows

    def _whole_snapshots(self, rows: NDArray[Any]) -> int:
        """How many snapshots from the first on have their events and models in the file."""
        if self.experiment.record.models == "all":
            parts = [name for name in ("model", "average") if own_link(self._part("snapshots"), name)]
            rows = rows[: min(self._length(f"snapshots/{name}") for name in parts)]
        if not self.experiment.record.events:
            return len(rows)
        return first_false(rows["event"] <= len(self.events_array))

    @cached_property
    def metrics_array(self) -> NDArray[Any]:
        """Quality of each snapshot; empty when the run was not evaluated."""
        rows = self._read("metrics", METRIC)
        return rows if not self._ragged or len(rows) == len(self.snapshot_index) else rows[:0]

    @property
    def is_evaluated(self) -> bool:
        """Whether there are metrics, unless there need be none because the run has not ended."""
        return self.status.state not in ENDED or len(self.metrics_array) > 0

    @cached_property
    def clients_array(self) -> NDArray[Any]:
        """One row per client: rate, samples, rank, host."""
        rows = self._read("clients", CLIENT)
        if not ranks_exist(rows):
            raise damaged(self.path, "/clients has unknown ranks")
        return rows

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """Whether the run kept its delays, as it stored; None for a simulated run and one that has not ended."""
        summary = self._read("diagnosis/summary", DIAGNOSIS)
        if not len(summary):
            return None
        clients = self._read("diagnosis/clients", DIAGNOSIS_CLIENT)
        try:
            found = read_diagnosis(summary[0], clients, self._read("diagnosis/quantiles", QUANTILE))
            _ = found.cause  # a ValueError where the verdict is none of ours
        except DAMAGE as error:
            raise damaged(self.path, f"/diagnosis: {error}") from error
        return found

    @property
    def model_size(self) -> tuple[int, np.dtype[Any]]:
        """The number of parameters, and their type."""
        models = self._part("snapshots/model")
        return int(models.shape[1]), models.dtype

    @cached_property
    def models(self) -> NDArray[Any]:
        """All snapshots, shape (snapshots, parameters)."""
        return self.rows("snapshots/model", slice(len(self.snapshot_index)))

    @cached_property
    def averages(self) -> NDArray[Any]:
        """The running means of the server's models beside the snapshots, shape (snapshots, parameters)."""
        if not own_link(self._part("snapshots"), "average"):
            raise RunFileError(f"{self.path}: keeps no average; run it with record.average=true")
        return self.rows("snapshots/average", slice(len(self.snapshot_index)))

    def has_model(self, number: int) -> bool:
        """Whether this snapshot's model is there: all are, or the last one is, unless the run was killed before."""
        kept, count = self._length("snapshots/model"), len(self.snapshot_index)
        return self.experiment.record.models == "all" or (kept > 0 and number in (-1, count - 1))

    def model(self, number: int) -> Vector:
        """One snapshot, without reading the others; where only the last is kept, an error for any other."""
        if not self.has_model(number):
            raise RunFileError(f"{self.path}: keeps the last model only; run it with record.models=all for the others")
        last_only, count = self.experiment.record.models == "last", len(self.snapshot_index)
        return self.rows("snapshots/model", -1 if last_only else range(count)[number])

    @cached_property
    def staleness(self) -> NDArray[np.int64]:
        """How many of the updates used were 0, 1, 2, ... versions old."""
        return self._count("staleness", 0)

    @cached_property
    def served(self) -> NDArray[np.int64]:
        """How many updates of each client were used, shape (clients,)."""
        return self._count("served", len(self.clients_array))

    def _count(self, name: str, minlength: int) -> NDArray[np.int64]:
        """Counted by the run where it kept no events, else from them."""
        if not self.experiment.record.events:
            return self.rows(f"tally/{name}", slice(None))
        used = self.events_array[self.events_array["kind"] == Kind.UPDATE]
        column, most = (used["client"], minlength) if name == "served" else (used[name], len(self.events_array))
        if len(column) and not 0 <= column.min() <= column.max() < most:
            raise damaged(self.path, f"/events: {name} counts values from {column.min()} to {column.max()}")
        return np.bincount(column, minlength=minlength).astype(np.int64)

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
        metrics, method, staleness, status = self.metrics_array, self.experiment.method, self.staleness, self.status
        last = metrics[-1] if len(metrics) else np.full(1, np.nan, METRIC)[0]
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
            mean_staleness=float(np.average(np.arange(len(staleness)), weights=staleness))
            if staleness.any()
            else float("nan"),
        )

    def to_parquet(self, folder: str | Path | None = None, *, force: bool = False) -> list[Path]:
        """Write events, metrics and clients as Parquet files into a folder, or into one beside the file; the paths."""
        from areabench.runfile.export import beside, run_columns, write_columns

        chosen = beside(self.path) if folder is None else Path(folder)
        return write_columns(run_columns(self), chosen, "parquet", force=force)

    def _status_so_far(self, status: Status) -> Status:
        """The status of a run that is running or did not close its file: counted from the events that reached it."""
        from areabench.engine.state import counted_status

        events = self.events_array
        kinds = np.bincount(events["kind"], minlength=len(Kind)).tolist()
        end_s = float(events["time_s"][-1]) if len(events) else 0.0
        counted = counted_status(status.state, status.reason, end_s, kinds)
        return replace(counted, drain_s=status.drain_s, lost=max(counted.lost, status.lost))

    def _read(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """All rows of a dataset, which must have this type."""
        rows = self.rows(name, slice(None))
        if rows.dtype != dtype:
            raise damaged(self.path, f"/{name} has columns {rows.dtype.names}, expected {dtype.names}")
        return rows

    def rows(self, name: str, chosen: slice | int) -> NDArray[Any]:
        """Some rows of a dataset, as they are in the file."""
        if name in self.damage:
            raise damaged(self.path, self.damage[name])
        try:
            return read_rows(self._file, name, _within(chosen, self._length(name)))
        except DAMAGE as error:
            raise damaged(self.path, f"/{name} cannot be read: {error}") from error

    def _length(self, name: str) -> int:
        """How many rows of a dataset count."""
        return self._counts[name]

    def _part(self, name: str) -> Any:
        """A dataset or group."""
        try:
            return stored_in_file(self._file, name)
        except DAMAGE as error:
            raise damaged(self.path, f"/{name} cannot be read: {error}") from error


def open_run(path: str | Path, *, allow_damage: bool = False) -> Run:
    """Open a run file for reading; every row in it is compared with its checksum.

    A damaged file is refused. With `allow_damage` its whole parts can be read, and `Run.damage` lists the others.
    """
    return Run(Path(path), allow_damage=allow_damage)


def check_format(path: Path, attributes: dict[str, Any]) -> None:
    """A RunFileError unless the file is a run file of this schema version."""
    if str(attributes.get("format")) != FORMAT:
        raise RunFileError(f"{path}: is not a run file of areabench; give the path of one")
    if (version := int(attributes["schema_version"])) != SCHEMA_VERSION:
        raise RunFileError(
            f"{path}: has schema version {version}, this areabench reads {SCHEMA_VERSION}; use the one that wrote it"
        )


def _within(chosen: slice | int, count: int) -> slice | int:
    """The same rows, none of them behind the first `count`."""
    return range(count)[chosen] if isinstance(chosen, int) else slice(*chosen.indices(count))


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
