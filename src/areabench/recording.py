"""The only writer of run files."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.diagnosis import Diagnosis
from areabench.errors import RunFailure, RunFileError, WriteFailure
from areabench.experiment import Record
from areabench.messages import digest
from areabench.model_rows import ModelRows, append
from areabench.problems.base import Metrics, Vector
from areabench.schema import (
    EVENT,
    EVENT_ROW,
    FORMAT,
    METRIC,
    SCHEMA_VERSION,
    SNAPSHOT,
    Event,
    Provenance,
    State,
    Status,
)
from areabench.surroundings import refuse_existing
from areabench.tally import Tally

_EVENTS_A_BLOCK = 256
_BLOCKS_THAT_MAY_WAIT = 16
_FLUSH_S = 1.0  # rows wait no longer than this where there are spare moments
_LONGEST_WAIT_S = 3.0  # nor longer than this where there are none
MOST_SNAPSHOTS = 1_000_000


class Recorder:
    """Writes one run file. Rows wait in memory and go out in blocks, when the caller has time for it."""

    def __init__(
        self,
        path: Path,
        experiment: str,
        dimension: int,
        dtype: np.dtype[Any],
        *,
        force: bool,
        record: Record = Record(),  # noqa: B008 - frozen
    ) -> None:
        self.path = path
        self.keeps_events, last_only = record.events, record.models == "last"
        self._file = _create(path, force=force)
        self._file.attrs.update({"format": FORMAT, "schema_version": SCHEMA_VERSION, "experiment": experiment})
        self._events = _table(self._file, "events", EVENT, chunk=_EVENTS_A_BLOCK * 4)
        self._index = _table(self._file, "snapshots/index", SNAPSHOT, chunk=_EVENTS_A_BLOCK)
        self._models = ModelRows(self._file, "snapshots/model", (dimension, dtype), last_only=last_only)
        self._averages: ModelRows | None = None
        if record.average:
            self._averages = ModelRows(self._file, "snapshots/average", (dimension, dtype), last_only=last_only)
        self._waiting_events = bytearray()  # rows of EVENT
        self._waiting_snapshots: list[tuple[tuple[float, int, int], Vector]] = []
        self._waiting_averages: list[Vector] = []
        self._last_snapshot: tuple[float, int, int] | None = None
        self.snapshots = 0
        self.tally = Tally()
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
        self._waiting_events += EVENT_ROW.pack(*event)

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far; the end is that of the last event unless given."""
        return self.tally.status(state, reason, end_s)

    def snapshot(
        self, time_s: float, version: int, model: Vector, average: Vector | None = None, events: int | None = None
    ) -> None:
        """Keep a model, and the average where asked for, after `events` events or all so far; the arrays are held."""
        self.snapshots += 1
        if self.snapshots > MOST_SNAPSHOTS:
            raise RunFailure(f"more than {MOST_SNAPSHOTS:,} snapshots at {time_s:g} s; use a larger record.interval_s")
        self._last_snapshot = (time_s, version, self.tally.events if events is None else events)
        self._waiting_snapshots.append((self._last_snapshot, model))
        if average is not None:
            self._waiting_averages.append(average)

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot already shows the model at `time_s`, after all events so far."""
        return self._last_snapshot is not None and self._last_snapshot[::2] == (time_s, self.tally.events)

    def diverged(self, model: Vector, bound: float, iteration: int) -> str:
        """Why the run ends here because of its model; empty where it goes on."""
        norm = math.sqrt(np.dot(model, model))
        return "" if norm <= bound else divergence(norm, bound, iteration)

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
        snapshots, events = len(self._waiting_snapshots), len(self._waiting_events) / EVENT_ROW.size
        return max(snapshots / self._models.rows_a_block, events / _EVENTS_A_BLOCK)

    def flush(self) -> None:
        """Write everything that waits and hand it to the operating system."""
        with self._writing():
            self._write_snapshots()
            self._write_events()
            self._file.flush()
        self._flushed_s = time.perf_counter()

    def metrics(self, blocks: Sequence[Metrics], averages: Sequence[Metrics] = ()) -> None:
        """Add the quality of every snapshot, and of the averages where there are any."""
        table = np.full(sum(len(block.train_loss) for block in blocks), np.nan, METRIC)
        for item in fields(Metrics):
            table[item.name] = np.concatenate([getattr(block, item.name) for block in blocks])
        if averages:
            table["average_loss"] = np.concatenate([block.train_loss for block in averages])
            table["average_accuracy"] = np.concatenate([block.test_accuracy for block in averages])
        with self._writing():
            self._file.create_dataset("metrics", data=table)

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Add the diagnosis of a run that has ended."""
        values = {item.name: getattr(diagnosis, item.name) for item in fields(diagnosis)}
        with self._writing():
            group = self._file.create_group("diagnosis")
            for name in ("clients", "quantiles"):
                group.create_dataset(name, data=values.pop(name))
            group.attrs.update(values)

    def model_blocks(self) -> Iterator[list[Vector]]:
        """All snapshots flushed so far, some at a time: there may be more than fit into memory."""
        yield from _blocks(self._models)

    def average_blocks(self) -> Iterator[list[Vector]]:
        """The averages that belong to them, in the same blocks; none where they were not asked for."""
        if self._averages is not None:
            yield from _blocks(self._averages)

    def versions(self) -> NDArray[np.int64]:
        """The model version of each snapshot flushed so far."""
        versions: NDArray[np.int64] = self._index["version"]
        return versions

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
            for rows in (self._models, self._averages):
                if rows is not None:
                    rows.close()
            if not self.keeps_events:
                self._write_tally()
            self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A disc that is full, or has gone, ends the run in one line."""
        if not self._file:
            raise WriteFailure(f"{self.path}: was given up, it could not be written; choose another --output")
        try:
            yield
        except (OSError, RuntimeError) as error:
            _forget(self._file)
            said = re.search(r"error message = '([^']*)'", str(error))  # the system's words amid those of HDF5
            reason = said[1] if said else str(error).partition("\n")[0]
            raise WriteFailure(
                f"{self.path}: cannot be written any more: {reason}; make room or choose another --output"
            ) from error

    def _write_events(self) -> None:
        append(self._events, np.frombuffer(self._waiting_events, dtype=EVENT))
        self._waiting_events = bytearray()

    def _write_snapshots(self) -> None:
        waiting = self._waiting_snapshots
        if not waiting:
            return
        self._models.extend([model for _, model in waiting])
        if self._averages is not None:
            self._averages.extend(self._waiting_averages)
            self._waiting_averages.clear()
        append(self._index, np.array([(*index, digest(model)) for index, model in waiting], dtype=SNAPSHOT))
        waiting.clear()

    def _write_tally(self) -> None:
        """What the event log would tell, where there is none."""
        clients = len(self._file["clients"]) if "clients" in self._file else 0
        group = self._file.require_group("tally")
        group["staleness"], group["served"] = self.tally.staleness, self.tally.served(clients)


def divergence(norm: float, bound: float, iteration: int) -> str:
    """The reason of a run that diverged."""
    return f"|x_s| = {norm:.3g} at iteration {iteration} is beyond {bound:g}"


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


def _blocks(rows: ModelRows) -> Iterator[list[Vector]]:
    step = 16 * rows.rows_a_block
    for first in range(0, len(rows), step):
        yield rows[first : first + step]
