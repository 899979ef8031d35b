"""What a run leaves behind, as records: its events, its status, its clients and its provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, NamedTuple

from areabench.arrays import Columns, row_struct, row_type
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
    """Who ran what where: enough to repeat the run. Attributes of /provenance in the run file."""

    transport: Annotated[str, "`mpi` or `simulator`"]
    command: Annotated[str, "the command line"]
    areabench: Annotated[str, "version"]
    python: Annotated[str, "version"]
    numpy: Annotated[str, "version"]
    h5py: Annotated[str, "version"]
    blas: Annotated[str, "the BLAS of numpy and its version"]
    processor: Annotated[
        str,
        "model of the processor; of this and the next three: `; ` between those of several nodes, or of a run's parts "
        "before and after a stop",
    ]
    blas_kernel: Annotated[
        str, "the kernels that BLAS took, as OpenBLAS calls them, for example `Haswell`; name and version of other BLAS"
    ]
    simd: Annotated[str, "what numpy used of the processor beyond its baseline, for example `X86_V3 X86_V4`"]
    torch_kernel: Annotated[
        str, "torch's instruction set, and the variables that bind its libraries; empty where torch does not compute"
    ]
    packages: Annotated[str, "versions of mpi4py, torch and scikit-learn, if installed"]
    threads: Annotated[
        str,
        "threads in force for each kind of library, comma-separated, with who set them: a variable, `areabench` (the "
        "default, 1) or `other code`; for example `openblas 1 (areabench)`",
    ]
    mpi: Annotated[str, "the MPI library; empty in the simulator"]
    ranks: Annotated[int, "MPI ranks; 1 in the simulator"]
    hosts: Annotated[str, "names of the machines, comma-separated"]
    platform: Annotated[str, "operating system and processor of the server's machine"]
    git_revision: Annotated[str, "revision of the checkout, with `+` if it was modified; empty outside a checkout"]
    started_at: Annotated[str, "UTC, ISO 8601"]
    seed: Annotated[int, "seed of the experiment"]
    lanes: Annotated[
        int, "runs simulated together in one [pass](sweeps.md#passes-and-lanes), which may round otherwise; 1 if alone"
    ] = 1
    lane: Annotated[int, "number of this one, from 0"] = 0
    resumed_at: Annotated[str, "UTC, ISO 8601, comma-separated: each time that the run was resumed"] = ""
    modules: Annotated[
        str, "JSON: `name`, `file` and `sha256` of each module named by [import path](extending.md); empty if none is"
    ] = ""
    data_digest: Annotated[
        str, "SHA-256 of all samples and labels, with types and shapes; empty if the problem has no data"
    ] = ""
    files: Annotated[
        str, "SHA-256 of each file that the experiment names, behind its key and a space, with `; ` between them"
    ] = ""

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


EVENT_COLUMNS: Columns = {
    "time_s": ("<f8", "when the event happened"),
    "kind": ("u1", "see below; a word in `run.events`"),
    "client": ("<i4", "who sent the update"),
    "round": ("<i8", "the client's round, from 0"),
    "base_version": ("<i8", "version that the client started from"),
    "staleness": ("<i8", "server steps between that version and the arrival"),
    "iteration": ("<i8", "k, updates used plus server steps, after the event"),
    "version": ("<i8", "server steps so far, after the event"),
    "step_size": ("<f8", "alpha of the round; for a server step that of the clients called next, NaN if none is"),
    "drawn_delay_s": ("<f8", "delay drawn for the round"),
    "realised_delay_s": (
        "<f8",
        "the delay as measured on the client's clock; for a cancelled order the time from its sending to that",
    ),
    "reply_s": (
        "<f8",
        "from the client's last update until it saw the reply, on its clock: both ways, queue and service; NaN if the "
        "order was no reply",
    ),
    "compute_s": ("<f8", "computing inside the delay"),
    "queue_s": ("<f8", "from the poll that found the update until its handling"),
    "service_s": ("<f8", "from then until the reply was sent; for a server step, how long it took"),
    "flags": (
        "u1",
        "1 (`OVERRUN`): the update was not ready when its delay was over; with [privacy](privacy.md) also 2 "
        "(`CLIPPED`): entries were cut to the range, and 4 (`OUTSIDE`): it was not sent because it does not fit into "
        "it; sums of these",
    ),
    "reason": ("u1", "why an update was refused, see below; else 0"),
    "local_steps": ("<i4", "local steps that the update is made of; 0 in rows that are no update"),
    "digest": (
        "<u8",
        "CRC-32 of the update's bytes, for a server step of the new model's; 0 for an update under a mask",
    ),
}
EVENT = row_type(EVENT_COLUMNS)
EVENT_ROW = row_struct(EVENT)
CLIENT_COLUMNS: Columns = {
    "client": ("<i4", "its number, from 0"),
    "rate": ("<f8", "update rate, 1/s"),
    "samples": ("<i8", "training samples; 0 if the problem has no data"),
    "rank": ("<i4", "its MPI rank; -1 in the simulator"),
    "host": ("S64", "name of its machine; empty in the simulator"),
}
CLIENT = row_type(CLIENT_COLUMNS)


def exit_code(status: Status) -> int:
    """What the process that made a run returns."""
    if status.state == State.STOPPED and "SIGINT" in status.reason:
        return 130
    if status.unevaluated:
        return 5
    return {State.FAILED: 1, State.DIVERGED: 3, State.STOPPED: 4}.get(status.state, 0)
