"""A run file that grows: each look reads what has come since the one before, and nothing twice.

The file is opened anew for each look. That shows whether it was replaced, asks a network file system for its newest
state, and costs a few milliseconds. Nothing is locked, nothing is written.
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

from areabench.attributes import read_attributes
from areabench.claim import lock_seen
from areabench.config import parse_experiment
from areabench.errors import RunFileError, UserError
from areabench.experiment import Experiment
from areabench.fairness import Traces, traces_of
from areabench.messages import digest
from areabench.opening import DAMAGE, damaged, open_for_reading
from areabench.problems.base import Vector
from areabench.reading import check_format
from areabench.schema import CLIENT, METRIC, SNAPSHOT, State, Status
from areabench.status_record import status_of
from areabench.watching.counts import Counts

_SNAPSHOTS_LOOKED_AT = 32  # two blocks: more are not under way


class Writer(Enum):
    """What is known of the process that writes the file."""

    THERE = "there"
    GONE = "gone"
    UNSEEN = "unseen"  # from this machine


@dataclass(frozen=True)
class About:
    """What does not change while a run goes on."""

    experiment: Experiment
    transport: str
    ranks: int
    hosts: tuple[str, ...]
    clients: NDArray[Any]  # rows of CLIENT

    @cached_property
    def traces(self) -> Traces:
        """The clients' delays (s), where a trace tells them: it may be long, and is read once."""
        return traces_of(self.experiment, len(self.clients))


@dataclass(frozen=True)
class Look:
    """What a file tells at one moment; `counts` goes on with the next look."""

    about: About
    status: Status  # as the file has it: while the run goes on it counts nothing
    writer: Writer
    counts: Counts
    snapshots: int
    snapshot: np.void | None  # a row of SNAPSHOT: the last one that can be used
    model: Vector | None  # its model, where wanted and kept
    metrics: np.void | None  # a row of METRIC: the last one
    size_bytes: int
    written_at: float  # Unix time

    @property
    def time_s(self) -> float:
        """How far the run has come; updates that arrive after the end are later."""
        horizon_s = self.about.experiment.stop.horizon_s
        shown_s = float(self.snapshot["time_s"]) if self.snapshot is not None else 0.0
        ended_s = self.status.end_s if self.status.state != State.RUNNING else 0.0
        time_s = max(shown_s, self.counts.last_time_s, ended_s)
        return time_s if horizon_s is None else min(time_s, horizon_s)


class Tail:
    """Follows one path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[object, ...] = ()
        self._about: About | None = None
        self._counts = Counts(0)

    def look(self, other_than: int | None = None) -> Look:
        """Read what is new; a RunFileError where the file is not there, or cannot be read just now.

        The model of the last snapshot is read where its version is another than the one given.
        """
        held = None
        with suppress(OSError):  # opening tells what is wrong
            held = lock_seen(self.path)  # before the status is read: who is gone has written it
        with open_for_reading(self.path) as file:
            try:
                return self._read(file, held, other_than)
            except DAMAGE as error:
                raise damaged(self.path, str(error)) from error

    def _read(self, file: h5py.File, held: bool | None, other_than: int | None) -> Look:
        about, state = self._known(file), self.path.stat()
        status, index = status_of(file), file["snapshots/index"]
        self._counts.read(self.path, file["events"])
        if not about.experiment.record.events and len(file["tally/served"]):
            self._counts.take(file["tally/staleness"][:], file["tally/served"][:])
        snapshot, model = _last_snapshot(file, other_than)
        metrics = file["metrics"]
        return Look(
            about=about,
            status=status,
            writer=_writer(about, held),
            counts=self._counts,
            snapshots=len(index),
            snapshot=snapshot,
            model=model,
            metrics=metrics[-1].astype(METRIC) if len(metrics) and len(metrics) == len(index) else None,
            size_bytes=state.st_size,
            written_at=state.st_mtime,
        )

    def _known(self, file: h5py.File) -> About:
        """What does not change, read once; another file in the place of the old one is counted from its start."""
        if self._about is None:
            _check_format(self.path, file)
        origin, state = file["provenance"].attrs, self.path.stat()
        identity = (state.st_dev, state.st_ino, str(origin["started_at"]), str(origin["resumed_at"]))
        if self._about is None or identity != self._identity:
            self._about = _about(self.path, file)
            self._identity, self._counts = identity, Counts(len(self._about.clients))
        return self._about


def _last_snapshot(file: h5py.File, other_than: int | None) -> tuple[np.void | None, Vector | None]:
    """The last one; with a model, the last whose model is whole, which is one of the last few."""
    index, models = file["snapshots/index"], file["snapshots/model"]
    first, count = max(0, len(index) - _SNAPSHOTS_LOOKED_AT), len(index)
    rows = index[first:count]
    if rows.dtype != SNAPSHOT:
        raise TypeError(f"/snapshots/index has columns {rows.dtype.names}, expected {SNAPSHOT.names}")
    rows = rows[rows["digest"] != 0]  # others are room that was made and not filled
    if other_than is not None and len(models) >= count:  # fewer: the run writes its last model only, at its end
        for number in reversed(range(len(rows))):
            if rows[number]["version"] == other_than:
                break
            model = models[first + number]
            if digest(model) == rows[number]["digest"]:
                return rows[number], model
    return (rows[-1] if len(rows) else None), None


def _check_format(path: Path, file: h5py.File) -> None:
    """A UserError where the file is not one of ours: to wait does not help."""
    try:
        check_format(path, read_attributes(file.attrs))
    except RunFileError as error:
        raise UserError(str(error)) from error


def _about(path: Path, file: h5py.File) -> About:
    attributes, origin = read_attributes(file.attrs), read_attributes(file["provenance"].attrs)
    clients = file["clients"][:]
    if clients.dtype != CLIENT or not len(clients):
        raise RunFileError(f"{path}: is damaged (/clients has columns {clients.dtype.names})")
    hosts = tuple(str(origin["hosts"]).split(","))
    experiment = parse_experiment(str(attributes["experiment"]), f"{path}: experiment")
    return About(experiment, str(origin["transport"]), int(origin["ranks"]), hosts, clients)


def _writer(about: About, held: bool | None) -> Writer:
    """A lock that is held says enough; a free one only on the writer's machine: some file systems keep locks there."""
    if held:
        return Writer.THERE
    here = about.hosts == (os.uname().nodename,)
    return Writer.GONE if held is False and here else Writer.UNSEEN
