"""The kinds of faults, and what is expected after each. All expectations are in this file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from areabench.engine.events import Reason, State

MPI, SIMULATOR = "mpi", "simulator"

KILLED_BY_9 = (-9, 137)  # of a process that we started, or what mpirun makes of it


class Act(Enum):
    """How a fault is brought about."""

    NOTHING = "nothing"
    SIGNAL_RANK_0 = "a signal to rank 0, or to the simulating process"
    SIGNAL_LAUNCH = "a signal to `areabench launch`"
    KILL_CLIENT = "kill -9 of a client's rank"
    PAUSE_CLIENT = "SIGSTOP to a client's rank, and SIGCONT after a while"
    DEFECT = "a defect in the code of one rank"
    FILL_DISC = "no room is left on the disc"
    DAMAGE = "the run file is damaged when the run has ended"


@dataclass(frozen=True)
class Expected:
    """What must be seen after a run with a fault."""

    states: tuple[State, ...]
    codes: tuple[int, ...] | None  # exit codes of the command; None: anything but 0
    says: str = ""  # is part of the status's reason; {victim} stands for the client concerned
    ends_within_s: float | None = None  # from the fault until no process is left, where the fault ends the run
    lost: int = 0
    reason: Reason | None = None  # of refused updates
    checkpoint: bool = False  # there must be one afterwards


@dataclass(frozen=True)
class Kind:
    """A kind of fault on a transport."""

    name: str
    transport: str
    act: Act
    expected: Expected
    detail: str = ""  # the signal, the defect or the damage
    ulfm: bool = False  # mpirun continues without ranks that died
    settings: tuple[str, ...] = ()  # sections or keys of the experiment that the kind needs

    @property
    def key(self) -> str:
        """The kind in one word, for logs and folders."""
        return f"{self.transport}: {self.name}"


# A run that a signal stops leaves a checkpoint and says so; the clients may be in a round, and ranks share two cores.
STOPPED = Expected((State.STOPPED,), (4,), ends_within_s=20.0, checkpoint=True)
DONE = Expected((State.DONE,), (0,))
# With fault-tolerant MPI the run continues without the lost client, to its end.
LOST_AND_DONE = Expected((State.DONE,), (0,), lost=1)
# Without it the run ends at once and says why; mpirun decides about the exit code.
LOST_AND_FAILED = Expected((State.FAILED,), None, says="client {victim} lost", ends_within_s=20.0, lost=1)
# No process is left to write a status.
SERVER_KILLED = Expected((State.RUNNING,), None, ends_within_s=20.0)
SIMULATOR_KILLED = Expected((State.RUNNING,), KILLED_BY_9, ends_within_s=20.0)
FULL_DISC = Expected((State.FAILED,), (1,), ends_within_s=20.0)
STOPPED_BY_UPDATE = Expected((State.FAILED,), (1,), ends_within_s=20.0)  # faults.bad_update = "stop"
# A round of S-FedAvg waits for a client all of whose updates are refused, so that no other client works: the run is
# given up, as diverged where the values are not finite and as failed otherwise, unless its horizon comes first.
HOPELESS_VALUES = Expected((State.DIVERGED, State.DONE), (3, 0))
HOPELESS_HEADERS = Expected((State.FAILED, State.DONE), (1, 0))

REASONS = {
    "nan": Reason.NOT_FINITE,
    "inf": Reason.NOT_FINITE,
    "length": Reason.LENGTH,
    "round": Reason.ROUND,
    "base": Reason.BASE_VERSION,
    "protocol": Reason.PROTOCOL,
    "client": Reason.CLIENT,
}
UPDATES = {
    "nan": "NaN in an update",
    "inf": "Inf in an update",
    "length": "update of a wrong length",
    "round": "update of a wrong round",
    "base": "update of a wrong base version",
    "protocol": "update of another protocol version",
    "client": "update of an unknown client",
}


def kinds() -> tuple[Kind, ...]:
    """All kinds, in the order in which they take turns: those of both transports mixed."""
    on_mpi, simulated = list(_mpi_kinds()), list(_simulator_kinds())
    every = max(1, len(on_mpi) // len(simulated))
    mixed: list[Kind] = []
    while on_mpi or simulated:
        mixed += on_mpi[:every] + simulated[:1]
        on_mpi, simulated = on_mpi[every:], simulated[1:]
    return tuple(mixed)


def _mpi_kinds() -> tuple[Kind, ...]:
    keep, remove = ('[faults]\nlost_client = "keep"',), ('[faults]\nlost_client = "remove"',)
    return (
        Kind("no fault", MPI, Act.NOTHING, DONE),
        Kind("client killed, ULFM, keep", MPI, Act.KILL_CLIENT, LOST_AND_DONE, ulfm=True, settings=keep),
        Kind("client killed, ULFM, remove", MPI, Act.KILL_CLIENT, LOST_AND_DONE, ulfm=True, settings=remove),
        Kind("client killed", MPI, Act.KILL_CLIENT, LOST_AND_FAILED),
        Kind("server killed, ULFM", MPI, Act.SIGNAL_RANK_0, SERVER_KILLED, "SIGKILL", ulfm=True),
        Kind("server killed", MPI, Act.SIGNAL_RANK_0, SERVER_KILLED, "SIGKILL"),
        Kind("SIGTERM to rank 0", MPI, Act.SIGNAL_RANK_0, STOPPED, "SIGTERM"),
        Kind("SIGUSR1 to rank 0", MPI, Act.SIGNAL_RANK_0, STOPPED, "SIGUSR1"),
        Kind("SIGTERM to `areabench launch`", MPI, Act.SIGNAL_LAUNCH, STOPPED, "SIGTERM"),
        *(_bad_update(MPI, defect) for defect in UPDATES),
        Kind("client sleeps", MPI, Act.DEFECT, DONE, "slow"),
        Kind("client paused", MPI, Act.PAUSE_CLIENT, DONE),
        Kind("full disc", MPI, Act.FILL_DISC, FULL_DISC),
        Kind("file truncated", MPI, Act.DAMAGE, DONE, "truncated"),
        Kind("bits of the file flipped", MPI, Act.DAMAGE, DONE, "flipped"),
    )


def _simulator_kinds() -> tuple[Kind, ...]:
    return (
        Kind("no fault", SIMULATOR, Act.NOTHING, DONE),
        Kind("SIGTERM", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGTERM"),
        Kind("SIGUSR1", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGUSR1"),
        Kind("killed", SIMULATOR, Act.SIGNAL_RANK_0, SIMULATOR_KILLED, "SIGKILL"),
        Kind("full disc", SIMULATOR, Act.FILL_DISC, FULL_DISC),
        _bad_update(SIMULATOR, "nan"),
        Kind("file truncated", SIMULATOR, Act.DAMAGE, DONE, "truncated"),
        Kind("bits of the file flipped", SIMULATOR, Act.DAMAGE, DONE, "flipped"),
    )


def _bad_update(transport: str, defect: str) -> Kind:
    return Kind(UPDATES[defect], transport, Act.DEFECT, Expected((State.DONE,), (0,), reason=REASONS[defect]), defect)
