"""The run file: its HDF5 schema and the schema's version.

    /                  attributes: format, schema_version, experiment (TOML)
    /status            one record of fixed size: state, reason, end_s and counts
    /provenance        attributes: who ran what where
    /clients           one row a client
    /events            one row an event, in the order in which the server handled them
    /snapshots/model   one row a snapshot, or the last one only; /snapshots/index says when each was taken
    /snapshots/average the running mean of the server's models, in the same rows, where asked for
    /tally             staleness and served, where there is no event log
    /metrics           one row a snapshot, written after the clock has stopped
    /diagnosis/summary one row: whether a run on MPI kept its delays; /diagnosis/clients and /diagnosis/quantiles

All of them are there from the start, most without a row, because while a run writes nothing can be added to the file
but rows. docs/run-file.md documents every column with its unit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

FORMAT = "areabench-run"
SCHEMA_VERSION = 6

EVENT = np.dtype(
    [
        ("time_s", "<f8"), ("kind", "u1"), ("client", "<i4"), ("round", "<i8"), ("base_version", "<i8"),
        ("staleness", "<i8"), ("iteration", "<i8"), ("version", "<i8"), ("step_size", "<f8"), ("drawn_delay_s", "<f8"),
        ("realised_delay_s", "<f8"), ("reply_s", "<f8"), ("compute_s", "<f8"), ("queue_s", "<f8"), ("service_s", "<f8"),
        ("flags", "u1"), ("reason", "u1"), ("digest", "<u8"),
    ]
)  # fmt: skip
SNAPSHOT = np.dtype([("time_s", "f8"), ("version", "i8"), ("event", "i8"), ("digest", "u8")])
METRIC = np.dtype(
    [
        ("train_loss", "f8"), ("test_accuracy", "f8"), ("squared_distance", "f8"), ("score_gap", "f8"),
        ("average_loss", "f8"), ("average_accuracy", "f8"),
    ]
)  # fmt: skip
STATUS = np.dtype(
    [
        ("state", "S16"), ("reason", "S500"), ("end_s", "<f8"), ("updates", "<i8"), ("discarded", "<i8"),
        ("server_steps", "<i8"), ("drain_s", "<f8"), ("refused", "<i8"), ("lost", "<i8"),
    ]
)  # fmt: skip
CLIENT = np.dtype([("client", "i4"), ("rate", "f8"), ("samples", "i8"), ("rank", "i4"), ("host", "S64")])
DIAGNOSIS_CLIENT = np.dtype(
    [("client", "i4"), ("served", "i8"), ("expected", "f8"), ("low", "f8"), ("high", "f8"), ("compute_s", "f8")]
)
QUANTILE = np.dtype(
    [
        ("share", "f8"), ("drawn_s", "f8"), ("realised_s", "f8"), ("late_s", "f8"), ("reply_s", "f8"),
        ("compute_s", "f8"), ("queue_s", "f8"), ("service_s", "f8"),
    ]
)  # fmt: skip


class Kind(IntEnum):
    """What happened."""

    UPDATE = 0  # an update was received and used
    STEP = 1  # the server stepped
    DISCARDED = 2  # an update arrived after the end
    REFUSED = 3  # an update was not used, for the reason in its row; its client was told to work again
    LOST = 4  # a client is gone
    REMOVED = 5  # a lost client's memory was taken out of the average


class Reason(IntEnum):
    """Why an update was refused."""

    NONE = 0
    NOT_FINITE = 1
    LENGTH = 2
    ROUND = 3
    BASE_VERSION = 4
    PROTOCOL = 5
    CLIENT = 6

    @property
    def text(self) -> str:
        """What was wrong, in words."""
        return (
            "nothing", "a value that is not finite", "a wrong length", "a wrong round", "a wrong base version",
            "a header of another protocol version", "an unknown client",
        )[self]  # fmt: skip


class State(IntEnum):
    """How a run stands; the text goes to the file."""

    RUNNING = 0
    DONE = 1
    TARGET = 2
    DIVERGED = 3
    FAILED = 4
    STOPPED = 5  # by a signal; `areabench resume` goes on

    @property
    def text(self) -> str:
        """The name in the run file."""
        return ("running", "done", "target reached", "diverged", "failed", "stopped")[self]


ENDED = (State.DONE, State.TARGET, State.DIVERGED)  # states of a run that need not be run again, or go on


@dataclass(frozen=True)
class Status:
    """How and why a run ended, and what it did until then."""

    state: State
    reason: str
    end_s: float
    updates: int
    discarded: int
    server_steps: int
    drain_s: float = 0.0  # from the end until the last client had stopped
    refused: int = 0  # updates that were not used because something was wrong with them
    lost: int = 0  # clients that were gone before the end


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
    packages: str  # optional ones that are installed, with versions
    threads: str
    mpi: str
    ranks: int
    hosts: str
    platform: str
    git_revision: str
    started_at: str  # UTC, ISO 8601
    seed: int
    lanes: int = 1  # runs that were simulated together; a wide matrix product may round differently
    lane: int = 0  # which of them this one was
    resumed_at: str = ""  # UTC, ISO 8601, each time that it went on from a checkpoint
    modules: str = ""  # JSON: name, file and SHA-256 of each module that the experiment names


class Event(NamedTuple):
    """One event as the server saw it, in the order of EVENT's columns; times in seconds since the start."""

    time_s: float
    kind: Kind
    client: int = -1
    round: int = -1
    base_version: int = -1
    staleness: int = 0
    iteration: int = 0
    version: int = 0  # server steps so far, after the event
    step_size: float = 0.0
    drawn_delay_s: float = 0.0
    realised_delay_s: float = 0.0
    reply_s: float = 0.0
    compute_s: float = 0.0
    queue_s: float = 0.0
    service_s: float = 0.0
    flags: int = 0
    reason: int = 0
    digest: int = 0


EVENT_ROW = struct.Struct("<dBiqqqqqdddddddBBQ")  # a row of EVENT, which numpy takes four times as long to fill
