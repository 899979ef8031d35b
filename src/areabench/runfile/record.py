"""The recorder: the only writer of run files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.conductor import divergence
from areabench.engine.diagnosis import Diagnosis
from areabench.engine.events import (
    EVENT,
    EVENT_ROW,
    Event,
    Provenance,
    State,
    Status,
)
from areabench.engine.messages import digest
from areabench.engine.server import Server
from areabench.engine.state import Tally
from areabench.errors import RunFailure, RunFileError, WriteFailure, one_line
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.files import base_folder, written_text
from areabench.problems.base import Metrics
from areabench.runfile.checksums import CHECKSUMS, ChecksumLog
from areabench.runfile.layout import (
    EVENTS_A_BLOCK,
    ModelRows,
    ModelsInMemory,
    cause_of,
    close_after_write_error,
    diagnosis_row,
    first_content,
    metric_rows,
    open_to_append,
    pack_status,
)
from areabench.runfile.lock import Claim, lock
from areabench.runfile.read import status_so_far
from areabench.runfile.reader import AVERAGES, RunReader
from areabench.runfile.schema import FORMAT, SCHEMA_VERSION, SNAPSHOT
from areabench.settings.limits import MOST_SNAPSHOTS

if TYPE_CHECKING:
    from areabench.runfile.read import Run


_COPIED_AT_ONCE = 2**16  # events


@dataclass(frozen=True, eq=False)
class RunPrefix:
    """The part of an earlier run that is continued: its first events (0 without event log), snapshots and counts.

    If its file has the last model only, also the models and averages of these snapshots, from its checkpoint.
    """

    run: RunReader
    events: int
    snapshots: int
    tally: Tally
    models: Sequence[Vector] = ()
    averages: Sequence[Vector] = ()


_BLOCKS_THAT_MAY_WAIT = 16
_FLUSH_S = 1.0  # rows wait no longer than this if there are spare moments
_LONGEST_WAIT_S = 3.0  # nor longer than this if there are none
_WRITTEN_AT_THE_END = (
    "metrics", "tally/staleness", "tally/served", "diagnosis/clients", "diagnosis/quantiles", "diagnosis/summary"
)  # fmt: skip


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
        folder: str = "",
    ) -> None:
        """Claim the file. `experiment` is TOML with its paths as given, relative to `folder`."""
        self.path = path
        self.keeps_events = record.events
        self._about: dict[str, str | int] = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "experiment": experiment,
            "folder": folder,
            "folder_from_here": os.path.relpath(folder, path.absolute().parent) if folder else "",
        }
        self._size = (dimension, dtype)
        self._record = record
        self._claim = Claim(path, force=force)
        self._given_up = False
        self._file = cast(Any, None)
        self._waiting_events = bytearray()  # rows of EVENT
        self._waiting_snapshots: list[tuple[tuple[float, int, int], Vector]] = []
        self._waiting_averages: list[Vector] = []
        self._last_snapshot: tuple[float, int, int] | None = None
        self.snapshots = 0
        self._clients = 0
        self.tally = Tally()
        self._flushed_s = time.perf_counter()

    @classmethod
    def of(cls, experiment: Experiment, path: Path, size: tuple[int, np.dtype[Any]], *, force: bool) -> Self:
        """The recorder of an experiment; `size` is the number of parameters and their type."""
        text = written_text(experiment)
        return cls(path, text, *size, force=force, record=experiment.record, folder=base_folder(experiment))

    def begin(self, provenance: Provenance, clients: NDArray[Any], earlier: RunPrefix | None = None) -> None:
        """Write provenance and clients (rows of CLIENT), and give the file its name.

        From here on, a run that is killed leaves a file that can be read up to the last flush.
        """
        try:
            with self._writing():
                image, self._status_at = first_content(self._about, self._size, self._record, provenance, clients)
                self._claim.write(0, image)
                self._file = open_to_append(self._claim.making)
                self._log = ChecksumLog(self._file[CHECKSUMS])
                names = ("snapshots/model", AVERAGES) if self._record.average else ("snapshots/model",)
                last_only = self._record.models == "last"
                self._vectors = {name: ModelRows(self._file[name], self._log, last_only=last_only) for name in names}
                # held open: HDF5 crashes when it closes a dataset that it could not write
                self._growing = [self._file[name] for name in (*names, "snapshots/index", "events")]
                self._clients = len(clients)
                if earlier is not None:
                    self._take(earlier)
                self._note(self.tally.status(State.RUNNING, "the run has not ended, or was killed"))
                self._claim.publish()
        except WriteFailure:
            self._claim.release()
            raise

    @classmethod
    def continued(cls, run: Run, earlier: RunPrefix) -> Self:
        """A recorder for a part of an earlier run, with which it is to begin; its file then replaces the old one."""
        there = len(run.events_array), len(run.snapshot_index)
        if earlier.events > there[0] or earlier.snapshots > there[1]:
            raise RunFileError(
                f"{run.path}: has {there[0]:,} events and {there[1]:,} snapshots; resuming needs {earlier.events:,} "
                f"and {earlier.snapshots:,}; run the experiment again"
            )
        return cls.of(run.experiment, run.path, run.model_size, force=True)

    def _take(self, earlier: RunPrefix) -> None:
        """Copy the rows of an earlier run, some at a time."""
        for first in range(0, earlier.events, _COPIED_AT_ONCE):
            self._append("events", earlier.run.rows("events", first, min(first + _COPIED_AT_ONCE, earlier.events)))
        index = earlier.run.rows("snapshots/index", 0, earlier.snapshots)
        self._append("snapshots/index", index)
        for name, vectors in self._vectors.items():
            held = earlier.averages if name == AVERAGES else earlier.models
            vectors.take(earlier.run, name, earlier.snapshots, held)
        self._push()
        self.tally = earlier.tally
        self.snapshots = earlier.snapshots
        if len(index):
            time_s, version, events, _ = index[-1].tolist()
            self._last_snapshot = (time_s, version, events)

    def event(self, event: Event) -> None:
        """Keep an event; costs no input or output."""
        self._waiting_events += EVENT_ROW.pack(*event)

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

    def digest(self, vector: Vector) -> int:
        """The checksum of a vector for the event log."""
        return digest(vector)

    def diverged(self, server: Server, bound: float) -> str:
        """Why the run ends here because of its model; empty if it continues."""
        norm = math.sqrt(np.dot(server.model, server.model))
        return "" if norm <= bound else divergence(norm, bound, server.iteration)

    def spare_moment(self) -> bool:
        """Write what waits if a block is full or a second has passed; returns whether there was something to write."""
        if not self._has_waiting(blocks=1) and time.perf_counter() < self._flushed_s + _FLUSH_S:
            return False
        if not self._waiting_events and not self._waiting_snapshots:
            return False
        self.flush()  # a run that is killed leaves a file that can be read up to here
        return True

    def flush_if_overdue(self) -> None:
        """Write what waits if there have been no spare moments for long, or if much waits."""
        if self._has_waiting(_BLOCKS_THAT_MAY_WAIT) or time.perf_counter() > self._flushed_s + _LONGEST_WAIT_S:
            self.flush()

    def _has_waiting(self, blocks: int) -> bool:
        """Whether so many blocks of events or snapshots wait."""
        if len(self._waiting_events) >= blocks * EVENTS_A_BLOCK * EVENT_ROW.size:
            return True
        return len(self._waiting_snapshots) >= blocks * self._vectors["snapshots/model"].rows_a_block

    def flush(self) -> None:
        """Write everything that waits and hand it to the operating system."""
        if not self._given_up and self._claim.removed:
            self._given_up = True
            close_after_write_error(self._file)
            raise WriteFailure(f"{self.path}: was removed or replaced during the run, and is lost; run it again")
        with self._writing():
            waiting = self._waiting_snapshots
            if waiting:
                self._vectors["snapshots/model"].extend([model for _, model in waiting])
                if self._waiting_averages:
                    self._vectors[AVERAGES].extend(self._waiting_averages)
                rows = [(*snapshot, digest(model)) for snapshot, model in waiting]
                self._append("snapshots/index", np.array(rows, SNAPSHOT))
            self._append("events", np.frombuffer(self._waiting_events, dtype=EVENT))
            self._push()
        # new ones: an observer may still read those that were written
        self._waiting_snapshots = []
        self._waiting_averages = []
        self._waiting_events = bytearray()
        self._flushed_s = time.perf_counter()

    def metrics(self, blocks: Sequence[Metrics], averages: Sequence[Metrics] = ()) -> None:
        """Add the quality of every snapshot, and of the averages where there are any."""
        with self._writing():
            self._append("metrics", metric_rows(blocks, averages))

    def copy(self, name: str, rows: NDArray[Any]) -> None:
        """Add rows of another run file to a dataset as they are."""
        with self._writing():
            self._append(name, rows)

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Add the diagnosis of a run that has ended."""
        with self._writing():
            self._append("diagnosis/clients", diagnosis.clients)
            self._append("diagnosis/quantiles", diagnosis.quantiles)
            self._append("diagnosis/summary", diagnosis_row(diagnosis))

    def model_blocks(self) -> Iterator[list[Vector]]:
        """All snapshots flushed so far, some at a time: there may be more than fit into memory."""
        return self._vectors["snapshots/model"].blocks()

    def average_blocks(self) -> Iterator[list[Vector]]:
        """The averages that belong to them, in the same blocks; none if they are not kept."""
        return self._vectors[AVERAGES].blocks() if AVERAGES in self._vectors else iter(())

    @property
    def held(self) -> ModelsInMemory:
        """Models and averages of snapshots that the file does not keep, as of the last flush."""
        return ModelsInMemory(*(tuple(vectors.held) for vectors in self._vectors.values()))

    def versions(self) -> NDArray[np.int64]:
        """The model version of each snapshot flushed so far."""
        versions: NDArray[np.int64] = self._file["snapshots/index"]["version"]
        return versions

    def set_status(self, status: Status) -> None:
        """Write the status, after everything that happened before.

        If rows cannot be written any more, the status says so: it needs no new space.
        """
        try:
            if status.state != State.RUNNING:
                self._complete()
        except WriteFailure as failure:
            reason = status.reason if status.state == State.FAILED else one_line(failure)
            self._note(replace(status, state=State.FAILED, reason=reason))
            if status.state != State.FAILED:  # a failure is on its way to the user already
                raise
        else:
            self._note(status)

    def close(self) -> None:
        """Write what waits and close the file."""
        if not self._given_up:
            self._complete()
            with self._writing():
                self._file.close()
        self._given_up = True
        self._claim.release()

    def _complete(self) -> None:
        """Write everything that waits, and what is only written at the end."""
        self.flush()
        with self._writing():
            for vectors in self._vectors.values():
                vectors.close()
            if not self.keeps_events and not len(self._file["tally/served"]):
                self._append("tally/staleness", self.tally.staleness)
                self._append("tally/served", self.tally.served(self._clients))
            for name in _WRITTEN_AT_THE_END:
                self._file[name].flush()
            self._push()

    def _push(self) -> None:
        """Hand rows to the operating system before anything that says how many there are, or that they are whole.

        A plain flush of the file continues if a dataset cannot be written, and then counts rows that are not there.
        """
        for dataset in self._growing:
            dataset.flush()
        self._log.flush()
        self._file.flush()

    def _note(self, status: Status) -> None:
        try:
            self._claim.write(self._status_at, pack_status(status))
        except OSError as error:
            raise WriteFailure(f"{self.path}: cannot take its status: {error.strerror}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full or missing disc ends the run with one line."""
        if self._given_up:
            raise WriteFailure(f"{self.path}: was given up, it could not be written; choose another --output")
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._given_up = True
            if self._file is not None:
                close_after_write_error(self._file)
            raise WriteFailure(
                f"{self.path}: cannot be written any more: {cause_of(error)}; make room or choose another --output"
            ) from error

    def _append(self, name: str, rows: NDArray[Any]) -> None:
        self._log.append(self._file[name], rows)


def mark_killed_run(path: Path, reason: str) -> bool:
    """Set the status of a run file whose run was killed to failed; False if the run had recorded its own end.

    The lock is held from the look at the status to the end of the change. A RunFileError if a run is still writing it.
    """
    try:
        descriptor = lock(path)
    except BlockingIOError as error:
        raise RunFileError(f"{path}: {error}; wait until it has ended") from error
    try:
        with RunReader(path, as_closed=True) as reader:
            status = reader.stored_status
            if status.state == State.RUNNING:
                failed = replace(status_so_far(reader, status), state=State.FAILED, reason=reason)
                os.pwrite(descriptor, pack_status(failed), reader.status_offset)
            return status.state == State.RUNNING
    finally:
        os.close(descriptor)


def write_again(run: Run, metrics: NDArray[Any], path: Path) -> None:
    """Write a run that has ended into another file, with these metrics (rows of METRIC) in place of its own."""
    record, last_only = run.experiment.record, run.experiment.record.models == "last"
    recorder = Recorder.of(run.experiment, path, run.model_size, force=True)
    earlier = RunPrefix(
        run, len(run.events_array), len(run.snapshot_index), Tally(),
        list(run.models) if last_only else (), list(run.averages) if last_only and record.average else (),
    )  # fmt: skip
    recorder.begin(run.provenance, run.clients_array, earlier)
    for name in _WRITTEN_AT_THE_END:
        recorder.copy(name, metrics if name == "metrics" else run.rows(name))
    recorder.set_status(run.status)
    recorder.close()
