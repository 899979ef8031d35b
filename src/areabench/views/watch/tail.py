"""A run file that grows: each observation reads what was written since the last one, and nothing twice.

The file is opened again for each observation. That shows whether it was replaced, asks a network file system for its
newest state, and costs a few milliseconds. Nothing is locked, nothing is written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.events import Kind, State, Status
from areabench.engine.fairness import traces_of
from areabench.engine.messages import digest
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment
from areabench.runfile.lock import lock_seen
from areabench.runfile.open import DamagedFileError
from areabench.runfile.read import decoded_experiment
from areabench.runfile.reader import RunReader
from areabench.timing.delays import Traces

WINDOW_S = 10.0  # of the run's time that counts as recent
_SNAPSHOTS_SEARCHED = 32  # two blocks: more are never half written


class EventCounts:
    """Counts of the first `read_so_far` events."""

    def __init__(self, clients: int) -> None:
        self.read_so_far = 0
        self.kinds = np.zeros(len(Kind), np.int64)
        self.served = np.zeros(clients, np.int64)
        self.staleness = np.zeros(0, np.int64)  # how many updates were 0, 1, 2, ... versions old
        self.lost: tuple[int, ...] = ()
        self.last_time_s = 0.0
        self._recent_s = np.zeros(0)  # times of the updates in the window

    def read(self, reader: RunReader) -> None:
        """Count the events that are new."""
        for rows in reader.blocks("events", self.read_so_far):
            _check(reader.path, rows, len(self.served), self.read_so_far + len(rows))
            self._add(rows)

    def take(self, staleness: NDArray[np.int64], served: NDArray[np.int64]) -> None:
        """Counts that the run made itself, where it kept no events."""
        self.staleness, self.served = staleness, served
        self.kinds[Kind.UPDATE] = served.sum()

    @property
    def updates(self) -> int:
        """Updates used."""
        return int(self.kinds[Kind.UPDATE])

    def recent_rate(self, time_s: float) -> float:
        """Updates per second of the run's time in the window before `time_s`; NaN at the start."""
        window_s = min(WINDOW_S, time_s)
        return float(np.count_nonzero(self._recent_s > time_s - window_s)) / window_s if window_s > 0 else np.nan

    def _add(self, rows: NDArray[Any]) -> None:
        used = rows[rows["kind"] == Kind.UPDATE]
        self.read_so_far += len(rows)
        self.kinds += np.bincount(rows["kind"], minlength=len(Kind))
        self.served += np.bincount(used["client"], minlength=len(self.served))
        self.staleness = _summed(self.staleness, np.bincount(used["staleness"]))
        self.lost += tuple(rows["client"][rows["kind"] == Kind.LOST].tolist())
        self.last_time_s = float(rows["time_s"][-1])
        times_s = np.concatenate([self._recent_s, used["time_s"]])
        self._recent_s = times_s[times_s > self.last_time_s - WINDOW_S]


def _summed(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.zeros(max(len(first), len(second)), np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def _check(path: Path, rows: NDArray[Any], clients: int, events: int) -> None:
    """Refuse what no run writes, before it is counted."""
    used = rows[rows["kind"] == Kind.UPDATE]
    limits = {"kind": (rows, max(Kind)), "client": (used, clients - 1), "staleness": (used, events)}
    for name, (some, most) in limits.items():
        if len(some) and not 0 <= some[name].min() <= some[name].max() <= most:
            raise DamagedFileError(path, f"/events: {name} has values out of range")


class Writer(Enum):
    """Whether the process that writes the file is there."""

    THERE = "there"
    GONE = "gone"
    UNSEEN = "unseen"  # it cannot be seen from this machine


@dataclass(frozen=True)
class RunFacts:
    """What does not change while a run continues."""

    experiment: Experiment
    transport: str
    ranks: int
    hosts: tuple[str, ...]
    clients: NDArray[Any]  # rows of CLIENT

    @cached_property
    def traces(self) -> Traces:
        """The clients' delays (s) where a trace has them: it may be long, and is read once."""
        return traces_of(self.experiment, len(self.clients))


@dataclass(frozen=True)
class Observation:
    """What a file holds at one moment; the next observation continues to count in `counts`."""

    facts: RunFacts
    status: Status  # as in the file: while the run continues it counts nothing
    writer: Writer
    counts: EventCounts
    snapshots: int
    snapshot: np.void | None  # a row of SNAPSHOT: the last one that can be used
    model: Vector | None  # its model, where wanted and kept
    metrics: np.void | None  # a row of METRIC: the last one
    size_bytes: int
    written_at: float  # Unix time

    @property
    def time_s(self) -> float:
        """How far the run has come; updates that arrive after the end do not count."""
        horizon_s = self.facts.experiment.stop.horizon_s
        shown_s = float(self.snapshot["time_s"]) if self.snapshot is not None else 0.0
        ended_s = self.status.end_s if self.status.state != State.RUNNING else 0.0
        time_s = max(shown_s, self.counts.last_time_s, ended_s)
        return time_s if horizon_s is None else min(time_s, horizon_s)


class Tail:
    """Observes one path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[object, ...] = ()
        self._facts: RunFacts | None = None
        self._counts = EventCounts(0)
        self._models_verified = 0

    def observe(self, last_version: int | None = None) -> Observation:
        """Read what is new; a RunFileError where the file is not there, or cannot be read just now.

        The model of the last snapshot is read where its version is not `last_version`; None: no model is read.
        """
        locked = None
        with suppress(OSError):  # opening it says what is wrong
            locked = lock_seen(self.path)  # before the status is read: a process that has ended has written it
        with RunReader(self.path) as reader:
            return self._read(reader, locked, last_version)

    def _read(self, reader: RunReader, locked: bool | None, last_version: int | None) -> Observation:
        facts = self._known(reader)
        file = self.path.stat()
        status = reader.stored_status
        self._counts.read(reader)
        served = reader.rows("tally/served")
        if len(served):
            self._counts.take(reader.rows("tally/staleness"), served)
        index = reader.rows("snapshots/index")
        metrics = reader.rows("metrics")
        self._models_verified = reader.count("snapshots/model", self._models_verified)
        snapshot, model = _last_snapshot(reader, index, last_version)
        return Observation(
            facts=facts,
            status=status,
            writer=_writer(facts, locked),
            counts=self._counts,
            snapshots=len(index),
            snapshot=snapshot,
            model=model,
            metrics=metrics[-1] if len(metrics) and len(metrics) == len(index) else None,
            size_bytes=file.st_size,
            written_at=file.st_mtime,
        )

    def _known(self, reader: RunReader) -> RunFacts:
        """The facts, read once; a file that replaced the old one is counted from its start."""
        if self._facts is None:
            _check_format(reader)
            if not reader.was_left_open and (damage := reader.find_damage()):  # nothing is added any more
                raise DamagedFileError(self.path, "; ".join(damage.values()))
        file, origin = self.path.stat(), reader.provenance
        identity = (file.st_dev, file.st_ino, origin.started_at, origin.resumed_at)
        if self._facts is None or identity != self._identity:
            experiment = decoded_experiment(reader)
            clients = reader.rows("clients")
            hosts = tuple(origin.hosts.split(","))
            self._facts = RunFacts(experiment, origin.transport, origin.ranks, hosts, clients)
            self._identity = identity
            self._counts = EventCounts(len(clients))
            self._models_verified = 0
        return self._facts


def _last_snapshot(
    reader: RunReader, index: NDArray[Any], last_version: int | None
) -> tuple[np.void | None, Vector | None]:
    """The last one; with a model, the last whose model is whole, which is one of the last few."""
    count = len(index)
    if last_version is not None and reader.count("snapshots/model") >= count:  # fewer: only the last model is kept
        for number in reversed(range(max(0, count - _SNAPSHOTS_SEARCHED), count)):
            if index[number]["version"] == last_version:
                break
            (model,) = reader.rows("snapshots/model", number, number + 1)
            if digest(model) == index[number]["digest"]:
                return index[number], model
    return (index[-1] if count else None), None


def _check_format(reader: RunReader) -> None:
    """A UserError where the file is not a run file, for which waiting does not help."""
    try:
        reader.check_format()
    except RunFileError as error:
        raise UserError(str(error)) from error


def _writer(facts: RunFacts, locked: bool | None) -> Writer:
    """A held lock is enough; a free one counts only on the writer's machine: some file systems keep locks there."""
    if locked:
        return Writer.THERE
    here = facts.hosts == (os.uname().nodename,)
    return Writer.GONE if locked is False and here else Writer.UNSEEN
