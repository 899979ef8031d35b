"""What a run leaves behind, as records: its events, its status, its clients and its provenance."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from areabench.kernels import Kernels, of_all


class Kind(IntEnum):
    """What happened."""

    UPDATE = 0  # an update was received and used
    STEP = 1  # the server stepped
    DISCARDED = 2  # an update arrived after the end
    REFUSED = 3  # an update was not used, for the reason in its row; its client was told to work again
    LOST = 4  # a client was lost
    REMOVED = 5  # a lost client's memory was taken out of the average
    NO_STEP = 6  # the aggregation criterion was met, and the rule chose not to step
    CANCELLED = 7  # the rule cancelled a client's order; no update of that round is used

    @property
    def text(self) -> str:
        """The word for it."""
        return ("update", "step", "discarded", "refused", "lost", "removed", "no step", "cancelled")[self]


class Reason(IntEnum):
    """Why an update was refused."""

    NONE = 0
    NOT_FINITE = 1
    LENGTH = 2
    ROUND = 3
    BASE_VERSION = 4
    PROTOCOL = 5
    CLIENT = 6
    OUTSIDE = 7

    @property
    def text(self) -> str:
        """What was wrong, in words."""
        return (
            "nothing", "a value that is not finite", "a wrong length", "a wrong round", "a wrong base version",
            "a header of another protocol version", "an unknown client",
            "a value outside of privacy.range, or not finite",
        )[self]  # fmt: skip


class State(IntEnum):
    """The state of a run; the run file has its text."""

    RUNNING = 0
    DONE = 1
    TARGET = 2
    DIVERGED = 3
    FAILED = 4
    STOPPED = 5  # by a signal; `areabench resume` continues it

    @property
    def text(self) -> str:
        """The name in the run file."""
        return ("running", "done", "target reached", "diverged", "failed", "stopped")[self]


ENDED = (State.DONE, State.TARGET, State.DIVERGED)  # states of a run that need be neither repeated nor continued


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
    lost: int = 0  # clients that were lost before the end
    unevaluated: str = ""  # why a run that has ended has no metrics, known to who made it; no column of the run file

    @property
    def is_without_steps(self) -> bool:
        """Whether the run has ended and its model is still the one that it started with."""
        return self.state in ENDED and self.server_steps == 0


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
    processor: str  # model of the processors, and the kernels that computed: those of all nodes, `; ` between others
    blas_kernel: str
    simd: str  # what numpy used beyond its baseline
    torch_kernel: str  # empty where the problem is not torch's
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
    resumed_at: str = ""  # UTC, ISO 8601, each time that it was resumed
    modules: str = ""  # JSON: name, file and SHA-256 of each module that the experiment names
    data_digest: str = ""  # SHA-256 of the samples; empty without data

    @property
    def kernels(self) -> Kernels:
        """What the run rounded with."""
        return Kernels(self.processor, self.blas_kernel, self.simd, self.torch_kernel)

    def continued(self, kernels: Kernels, resumed_at: str) -> Provenance:
        """The provenance of the same run, now that these kernels continue it."""
        both = of_all([self.kernels, kernels])
        return replace(
            self, processor=both.processor, blas_kernel=both.blas, simd=both.simd, torch_kernel=both.torch,
            resumed_at=f"{self.resumed_at}, {resumed_at}" if self.resumed_at else resumed_at,
        )  # fmt: skip


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
    local_steps: int = 0  # that an update is made of; 0 in rows that are no update
    digest: int = 0


# One row per client; `rank` is -1 in the simulator, `rate` in updates per second.
CLIENT = np.dtype([("client", "i4"), ("rate", "f8"), ("samples", "i8"), ("rank", "i4"), ("host", "S64")])
EVENT_ROW = struct.Struct("<dBiqqqqqdddddddBBiQ")  # a row of EVENT, which numpy takes four times as long to fill


def exit_code(status: Status) -> int:
    """What the process that made a run returns."""
    if status.state == State.STOPPED and "SIGINT" in status.reason:
        return 130
    if status.unevaluated:
        return 5
    return {State.FAILED: 1, State.DIVERGED: 3, State.STOPPED: 4}.get(status.state, 0)
