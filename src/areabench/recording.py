"""The run file: its HDF5 schema, the schema's version, and its only writer.

    /                  attributes: format, schema_version, experiment (TOML)
    /status            attributes: state, reason, end_s, updates, discarded, server_steps
    /provenance        attributes: who ran what where
    /clients           one row a client
    /events            one row an event, in the order in which the server handled them
    /snapshots/model   one row a snapshot; /snapshots/index says when each was taken
    /metrics           one row a snapshot, written after the clock has stopped

docs/run-file.md documents every column with its unit.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.errors import RunFailure, RunFileError
from areabench.messages import UpdateHeader
from areabench.problems.base import Metrics, Vector

FORMAT = "areabench-run"
SCHEMA_VERSION = 1

EVENT = np.dtype(
    [
        ("time_s", "f8"), ("kind", "u1"), ("client", "i4"), ("round", "i8"), ("base_version", "i8"),
        ("staleness", "i8"), ("iteration", "i8"), ("version", "i8"), ("step_size", "f8"), ("drawn_delay_s", "f8"),
        ("realised_delay_s", "f8"), ("compute_s", "f8"), ("service_s", "f8"), ("flags", "u1"), ("digest", "u8"),
    ]
)  # fmt: skip
SNAPSHOT = np.dtype([("time_s", "f8"), ("version", "i8"), ("event", "i8")])
METRIC = np.dtype([("train_loss", "f8"), ("test_accuracy", "f8"), ("squared_distance", "f8")])
CLIENT = np.dtype([("client", "i4"), ("rate", "f8"), ("samples", "i8"), ("rank", "i4"), ("host", "S64")])

_EVENTS_A_BLOCK = 256
_SNAPSHOTS_A_BLOCK = 16
_SNAPSHOT_BYTES_A_BLOCK = 2**20
_BLOCKS_THAT_MAY_WAIT = 16
_FLUSH_S = 1.0  # rows wait no longer than this where there are spare moments
_LONGEST_WAIT_S = 3.0  # nor longer than this where there are none


class Kind(IntEnum):
    """What happened."""

    UPDATE = 0  # an update was received and used
    STEP = 1  # the server stepped
    DISCARDED = 2  # an update arrived after the end


class State(IntEnum):
    """How a run stands; the text goes to the file."""

    RUNNING = 0
    DONE = 1
    TARGET = 2
    DIVERGED = 3
    FAILED = 4

    @property
    def text(self) -> str:
        """The name in the run file."""
        return ("running", "done", "target reached", "diverged", "failed")[self]


@dataclass(frozen=True)
class Status:
    """How and why a run ended, and what it did until then."""

    state: State
    reason: str
    end_s: float
    updates: int
    discarded: int
    server_steps: int


@dataclass(frozen=True)
class Provenance:
    """Who ran what where: enough to repeat the run."""

    transport: str
    command: str
    areabench: str
    python: str
    numpy: str
    h5py: str
    blas: str
    threads: str
    mpi: str
    ranks: int
    hosts: str
    platform: str
    git_revision: str
    started_at: str  # UTC, ISO 8601
    seed: int


class Event(NamedTuple):
    """One event as the server saw it; times in seconds since the start."""

    time_s: float
    kind: Kind
    iteration: int
    version: int  # server steps so far, after the event
    step_size: float
    service_s: float
    digest: int
    staleness: int = 0
    header: UpdateHeader = UpdateHeader(client=-1, round=-1, base_version=-1)

    def row(self) -> tuple[Any, ...]:
        """The event in the order of EVENT's columns."""
        header = self.header
        return (
            self.time_s, self.kind, header.client, header.round, header.base_version, self.staleness, self.iteration,
            self.version, self.step_size, header.drawn_delay_s, header.realised_delay_s, header.compute_s,
            self.service_s, header.flags, self.digest,
        )  # fmt: skip


class Recorder:
    """Writes one run file. Rows wait in memory and go out in blocks, when the caller has time for it."""

    def __init__(self, path: Path, experiment: str, dimension: int, dtype: np.dtype[Any], *, force: bool) -> None:
        self.path = path
        self._file = _create(path, force=force)
        self._file.attrs.update({"format": FORMAT, "schema_version": SCHEMA_VERSION, "experiment": experiment})
        self._events = _table(self._file, "events", EVENT, chunk=_EVENTS_A_BLOCK * 4)
        self._index = _table(self._file, "snapshots/index", SNAPSHOT, chunk=_EVENTS_A_BLOCK)
        self._rows_a_block = max(1, min(_SNAPSHOTS_A_BLOCK, _SNAPSHOT_BYTES_A_BLOCK // (dimension * dtype.itemsize)))
        chunks = (self._rows_a_block, dimension)
        self._models = self._file.create_dataset(
            "snapshots/model", (0, dimension), dtype, maxshape=(None, dimension), chunks=chunks
        )
        self._waiting_events: list[tuple[Any, ...]] = []
        self._waiting_snapshots: list[tuple[tuple[float, int, int], Vector]] = []
        self._last_snapshot: tuple[float, int, int] | None = None
        self._tally = dict.fromkeys(Kind, 0)
        self._last_time_s = 0.0
        self._flushed_s = time.perf_counter()
        self.set_status(self.status(State.RUNNING, "the run has not ended, or was killed"))

    def provenance(self, provenance: Provenance) -> None:
        """Say who runs what where."""
        with self._writing():
            self._file.require_group("provenance").attrs.update(asdict(provenance))
            self._file.flush()

    def clients(self, table: NDArray[Any]) -> None:
        """Say who the clients are; rows of CLIENT."""
        with self._writing():
            self._file.create_dataset("clients", data=table)

    def event(self, event: Event) -> None:
        """Keep an event; costs no input or output."""
        self._waiting_events.append(event.row())
        self._tally[event.kind] += 1
        self._last_time_s = event.time_s

    @property
    def event_count(self) -> int:
        """Events so far."""
        return sum(self._tally.values())

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far; the end is that of the last event unless given."""
        end_s = self._last_time_s if end_s is None else end_s
        tally = self._tally
        return Status(state, reason, end_s, tally[Kind.UPDATE], tally[Kind.DISCARDED], tally[Kind.STEP])

    def snapshot(self, time_s: float, version: int, model: Vector) -> None:
        """Keep a model as it is after the events so far; the array is held, not copied, and must not change."""
        self._last_snapshot = (time_s, version, self.event_count)
        self._waiting_snapshots.append((self._last_snapshot, model))

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot already shows the model at `time_s`, after all events so far."""
        return self._last_snapshot is not None and self._last_snapshot[::2] == (time_s, self.event_count)

    def spare_moment(self) -> bool:
        """Write what waits if a block is full or a second has passed; returns whether there was something to write."""
        if not self._blocks_waiting() >= 1 and time.perf_counter() < self._flushed_s + _FLUSH_S:
            return False
        if not self._waiting_events and not self._waiting_snapshots:
            return False
        self.flush()  # a run that is killed leaves a file that can be read up to here
        return True

    def relieve(self) -> None:
        """Write what waits where there have been no spare moments for long."""
        overdue = time.perf_counter() > self._flushed_s + _LONGEST_WAIT_S
        if overdue or self._blocks_waiting() >= _BLOCKS_THAT_MAY_WAIT:
            self.flush()

    def _blocks_waiting(self) -> float:
        snapshots, events = len(self._waiting_snapshots), len(self._waiting_events)
        return max(snapshots / self._rows_a_block, events / _EVENTS_A_BLOCK)

    def flush(self) -> None:
        """Write everything that waits and hand it to the operating system."""
        with self._writing():
            self._write_snapshots()
            self._write_events()
            self._file.flush()
        self._flushed_s = time.perf_counter()

    def metrics(self, metrics: Metrics) -> None:
        """Add the quality of every snapshot."""
        table = np.empty(len(metrics.train_loss), METRIC)
        for column in METRIC.names or ():
            table[column] = getattr(metrics, column)
        with self._writing():
            self._file.create_dataset("metrics", data=table)

    def models(self) -> list[Vector]:
        """All snapshots written so far, read one after the other."""
        return [self._models[row] for row in range(len(self._models))]

    def set_status(self, status: Status) -> None:
        """Say how the run stands."""
        values = {item.name: getattr(status, item.name) for item in fields(status)}
        with self._writing():
            self._file.require_group("status").attrs.update({**values, "state": status.state.text})
            self._file.flush()

    def close(self) -> None:
        """Write what waits and close the file."""
        self.flush()
        with self._writing():
            self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A disc that is full, or has gone, ends the run in one line."""
        if not self._file:
            raise RunFailure(f"{self.path}: was given up, it could not be written; choose another --output")
        try:
            yield
        except (OSError, RuntimeError) as error:
            _forget(self._file)
            said = re.search(r"error message = '([^']*)'", str(error))  # the system's words amid those of HDF5
            reason = said[1] if said else str(error).partition("\n")[0]
            raise RunFailure(
                f"{self.path}: cannot be written any more: {reason}; make room or choose another --output"
            ) from error

    def _write_events(self) -> None:
        _append(self._events, np.array(self._waiting_events, dtype=EVENT))
        self._waiting_events.clear()

    def _write_snapshots(self) -> None:
        if self._waiting_snapshots:
            _append(self._models, np.stack([model for _, model in self._waiting_snapshots]))
            _append(self._index, np.array([index for index, _ in self._waiting_snapshots], dtype=SNAPSHOT))
            self._waiting_snapshots.clear()


def refuse_existing(path: Path, *, force: bool) -> None:
    """A run file is never overwritten unasked."""
    if path.exists() and not force:
        raise RunFileError(f"{path}: exists already; choose another --output or overwrite it with --force")


def _create(path: Path, *, force: bool) -> h5py.File:
    """A new run file; an old one is kept unless `force`."""
    refuse_existing(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return h5py.File(path, "w", libver=("v108", "v108"))  # from v110 on, HDF5 locks out readers after a kill
    except FileExistsError as error:
        raise RunFileError(f"{path}: {path.parent} is not a folder; choose another --output") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunFileError(f"{path}: cannot be written: {reason}; choose another --output") from error


def _forget(file: h5py.File) -> None:
    """Close a file that cannot be written: HDF5 keeps trying and crashes in the end unless its writes go nowhere."""
    if file.id.valid:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), file.id.get_vfd_handle())
        with suppress(OSError, RuntimeError):
            file.close()


def _table(file: h5py.File, name: str, dtype: np.dtype[Any], *, chunk: int) -> h5py.Dataset:
    return file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(chunk,))


def _append(dataset: h5py.Dataset, rows: NDArray[Any]) -> None:
    if len(rows):
        first = len(dataset)
        dataset.resize(first + len(rows), axis=0)
        dataset[first:] = rows
