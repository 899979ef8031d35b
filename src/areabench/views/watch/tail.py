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

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.events import CLIENT, Kind, State, Status
from areabench.engine.fairness import Traces, traces_of
from areabench.engine.messages import digest
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.runfile.checksums import VerifiedRows, check_rows
from areabench.runfile.layout import read_attributes, status_of
from areabench.runfile.lock import lock_seen
from areabench.runfile.open import DAMAGE, damaged, left_open, open_for_reading, stored_in_file
from areabench.runfile.read import check_format
from areabench.runfile.schema import EVENT, SNAPSHOT

WINDOW_S = 10.0  # of the run's time that counts as recent
_ROWS_PER_READ = 65_536
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

    def read(self, path: Path, events: h5py.Dataset, total: int) -> None:
        """Count the new ones of `total` events."""
        while self.read_so_far < total:
            rows = events[self.read_so_far : min(self.read_so_far + _ROWS_PER_READ, total)]
            _check(path, rows, len(self.served), total)
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
    if rows.dtype != EVENT:
        raise damaged(path, f"/events has columns {rows.dtype.names}, expected {EVENT.names}")
    used = rows[rows["kind"] == Kind.UPDATE]
    limits = {"kind": (rows, max(Kind)), "client": (used, clients - 1), "staleness": (used, events)}
    for name, (some, most) in limits.items():
        if len(some) and not 0 <= some[name].min() <= some[name].max() <= most:
            raise RunFileError(f"{path}: is damaged (/events: {name} has values out of range)")


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
        held = None
        with suppress(OSError):  # opening it says what is wrong
            held = lock_seen(self.path)  # before the status is read: a process that has ended has written it
        with open_for_reading(self.path) as file:
            try:
                return self._read(file, held, last_version)
            except DAMAGE as error:
                raise damaged(self.path, str(error)) from error

    def _read(self, file: h5py.File, held: bool | None, last_version: int | None) -> Observation:
        facts, state = self._known(file), self.path.stat()
        status, verified = status_of(file), VerifiedRows(file)
        self._counts.read(self.path, stored_in_file(file, "events"), verified.count("events", self._counts.read_so_far))
        if not facts.experiment.record.events and len(stored_in_file(file, "tally/served")):
            self._counts.take(verified.rows("tally/staleness"), verified.rows("tally/served"))
        index, metrics = verified.rows("snapshots/index"), verified.rows("metrics")
        self._models_verified = verified.count("snapshots/model", self._models_verified)
        snapshot, model = _last_snapshot(index, stored_in_file(file, "snapshots/model"), last_version)
        return Observation(
            facts=facts,
            status=status,
            writer=_writer(facts, held),
            counts=self._counts,
            snapshots=len(index),
            snapshot=snapshot,
            model=model,
            metrics=metrics[-1] if len(metrics) and len(metrics) == len(index) else None,
            size_bytes=state.st_size,
            written_at=state.st_mtime,
        )

    def _known(self, file: h5py.File) -> RunFacts:
        """The facts, read once; a file that replaced the old one is counted from its start."""
        if self._facts is None:
            _check_format(self.path, file)
            _check_all(file)
        origin, state = stored_in_file(file, "provenance").attrs, self.path.stat()
        identity = (state.st_dev, state.st_ino, str(origin["started_at"]), str(origin["resumed_at"]))
        if self._facts is None or identity != self._identity:
            self._facts = _read_facts(self.path, file)
            self._identity, self._counts = identity, EventCounts(len(self._facts.clients))
            self._models_verified = 0
        return self._facts


def _last_snapshot(
    index: NDArray[Any], models: h5py.Dataset, last_version: int | None
) -> tuple[np.void | None, Vector | None]:
    """The last one; with a model, the last whose model is whole, which is one of the last few."""
    first, count = max(0, len(index) - _SNAPSHOTS_SEARCHED), len(index)
    rows = index[first:count]
    if rows.dtype != SNAPSHOT:
        raise TypeError(f"/snapshots/index has columns {rows.dtype.names}, expected {SNAPSHOT.names}")
    if last_version is not None and len(models) >= count:  # fewer: the run writes its last model only, at its end
        for number in reversed(range(len(rows))):
            if rows[number]["version"] == last_version:
                break
            model = models[first + number]
            if digest(model) == rows[number]["digest"]:
                return rows[number], model
    return (rows[-1] if len(rows) else None), None


def _check_format(path: Path, file: h5py.File) -> None:
    """A UserError where the file is not a run file, for which waiting does not help."""
    try:
        check_format(path, read_attributes(file.attrs))
    except RunFileError as error:
        raise UserError(str(error)) from error


def _check_all(file: h5py.File) -> None:
    """Verify everything once where nothing is added any more; while a run writes, what is new is verified."""
    if not left_open(file):
        _, damage = check_rows(file, complete=status_of(file).state != State.RUNNING)
        if damage:
            raise ValueError("; ".join(damage.values()))


def _read_facts(path: Path, file: h5py.File) -> RunFacts:
    attributes, origin = read_attributes(file.attrs), read_attributes(stored_in_file(file, "provenance").attrs)
    clients = VerifiedRows(file).rows("clients")
    if clients.dtype != CLIENT or not len(clients):
        raise RunFileError(f"{path}: is damaged (/clients has columns {clients.dtype.names})")
    hosts = tuple(str(origin["hosts"]).split(","))
    experiment = parse_experiment(str(attributes["experiment"]), f"{path}: experiment")
    return RunFacts(experiment, str(origin["transport"]), int(origin["ranks"]), hosts, clients)


def _writer(facts: RunFacts, held: bool | None) -> Writer:
    """A held lock is enough; a free one counts only on the writer's machine: some file systems keep locks there."""
    if held:
        return Writer.THERE
    here = facts.hosts == (os.uname().nodename,)
    return Writer.GONE if held is False and here else Writer.UNSEEN
