"""The kinds of faults, and what is expected after each. All expectations are in this file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from signal import Signals

from areabench.engine.events import Reason, State

MPI, SIMULATOR = "mpi", "simulator"

KILLED_BY_9 = (-9, 137)  # of a process that we started, or what mpirun makes of it


class Act(Enum):
    """How a fault is brought about."""

    NOTHING = "nothing"
    SIGNAL_RANK_0 = "a signal to rank 0, or to the simulating process"
    SIGNAL_LAUNCH = "a signal to `areabench launch`"
    KILL_CLIENT = "kill -9 of a client's rank"
    KILL_MPIRUN = "kill -9 of mpirun"
    STOP = "SIGSTOP to a client's rank, to the server's or to mpirun, and SIGCONT after a while"
    STOP_FOR_GOOD = "SIGSTOP to a rank, and after a while SIGTERM, twice, to `areabench launch`"
    DIE_AT_START = "a rank kills itself, or leaves, before the run begins"
    DEFECT = "a defect in the code of one rank"
    FILL_DISC = "no room is left on the disc"
    DAMAGE = "the run file is damaged when the run has ended"
    DAMAGE_CHECKPOINT = "the checkpoint of a stopped run is damaged"
    DAMAGE_CACHE = "the unpacked data are damaged before the run"
    DAMAGE_SWEEP = "a file of a sweep's folder is damaged when the sweep has ended"
    TWO = "two of these, one right after the other"


@dataclass(frozen=True)
class Expected:
    """What must be seen after a run with a fault."""

    states: tuple[State, ...]
    codes: tuple[int, ...] | None  # exit codes of the command; None: anything but 0
    says: str = ""  # is part of the status's reason; {victim} stands for the client concerned
    ends_within_s: float | None = None  # from the fault until no process is left, where the fault ends the run
    lost: tuple[int, ...] = (0,)  # clients
    reason: Reason | None = None  # of refused updates
    checkpoint: bool = False  # there must be one afterwards
    one_line: bool = False  # the command says one line and no more


@dataclass(frozen=True)
class Kind:
    """A kind of fault on a transport."""

    name: str
    transport: str
    act: Act
    expected: Expected
    detail: str = ""  # the signal, the defect, the damage, or who is stopped
    ulfm: bool = False  # mpirun continues without ranks that died
    launch: bool = False  # by `areabench launch`, which tells mpirun so where it can
    settings: tuple[str, ...] = ()  # sections or keys of the experiment that the kind needs

    @property
    def key(self) -> str:
        """The kind in one word, for logs and folders."""
        return f"{self.transport}: {self.name}"


# A run that a signal stops leaves a checkpoint and says so; the clients may be in a round, and ranks share two cores.
STOPPED = Expected((State.STOPPED,), (4,), ends_within_s=20.0, checkpoint=True)
DONE = Expected((State.DONE,), (0,))
# With fault-tolerant MPI the run continues without the lost client, to its end.
LOST_AND_DONE = Expected((State.DONE,), (0,), lost=(1,))
# Without it the run ends at once and says why; mpirun decides about the exit code.
LOST_AND_FAILED = Expected((State.FAILED,), None, says="client {victim} lost", ends_within_s=20.0, lost=(1,))
# No process is left to write a status, unless `areabench launch` does.
SERVER_KILLED = Expected((State.RUNNING,), None, ends_within_s=20.0)
SERVER_KILLED_BELOW_LAUNCH = Expected((State.FAILED,), (1,), ends_within_s=20.0)
MPIRUN_KILLED = Expected((State.FAILED,), (1,), "mpirun was killed by SIGKILL", ends_within_s=20.0, one_line=True)
SIMULATOR_KILLED = Expected((State.RUNNING,), KILLED_BY_9, ends_within_s=20.0)
# Clients have 10 s for a checkpoint and 10 s to stop; at the second signal mpirun has 5 s to end them. What the server
# has not written by then `launch` marks.
STOPPED_FOR_GOOD = Expected((State.STOPPED, State.FAILED, State.DONE), (4, 1, 0), ends_within_s=40.0)
NEVER_BEGUN = Expected((), (1,), "before the run began", ends_within_s=20.0)
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


TWICE = ("client killed", "server killed", "SIGTERM to `areabench launch`", "full disc")  # with another fault


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
        Kind("mpirun killed", MPI, Act.KILL_MPIRUN, MPIRUN_KILLED, launch=True),
        *(_death_at_start(who, when) for who in ("client", "server") for when in AT_START),
        Kind("SIGTERM to rank 0", MPI, Act.SIGNAL_RANK_0, STOPPED, "SIGTERM"),
        Kind("SIGUSR1 to rank 0", MPI, Act.SIGNAL_RANK_0, STOPPED, "SIGUSR1"),
        Kind("SIGTERM to `areabench launch`", MPI, Act.SIGNAL_LAUNCH, STOPPED, "SIGTERM", launch=True),
        Kind("client stopped and continued", MPI, Act.STOP, DONE, "client"),
        Kind("server stopped and continued", MPI, Act.STOP, DONE, "server"),
        Kind("mpirun stopped and continued", MPI, Act.STOP, DONE, "mpirun", launch=True),
        Kind("client stopped for good", MPI, Act.STOP_FOR_GOOD, STOPPED_FOR_GOOD, "client", launch=True),
        Kind("server stopped for good", MPI, Act.STOP_FOR_GOOD, STOPPED_FOR_GOOD, "server", launch=True),
        *(_bad_update(MPI, defect) for defect in UPDATES),
        Kind("client sleeps", MPI, Act.DEFECT, DONE, "slow"),
        Kind("full disc", MPI, Act.FILL_DISC, FULL_DISC),
        *(_two_faults(MPI, one) for one in TWICE),
        Kind("file truncated", MPI, Act.DAMAGE, DONE, "truncated"),
        Kind("bits of the file flipped", MPI, Act.DAMAGE, DONE, "flipped"),
        Kind("bit of a row flipped", MPI, Act.DAMAGE, DONE, "row"),
        Kind("bit of the checkpoint flipped", MPI, Act.DAMAGE_CHECKPOINT, STOPPED, "SIGTERM"),
        Kind("cached data damaged", MPI, Act.DAMAGE_CACHE, DONE),
    )


def _simulator_kinds() -> tuple[Kind, ...]:
    return (
        Kind("no fault", SIMULATOR, Act.NOTHING, DONE),
        Kind("SIGTERM", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGTERM"),
        Kind("SIGUSR1", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGUSR1"),
        Kind("killed", SIMULATOR, Act.SIGNAL_RANK_0, SIMULATOR_KILLED, "SIGKILL"),
        Kind("full disc", SIMULATOR, Act.FILL_DISC, FULL_DISC),
        _two_faults(SIMULATOR, "full disc"),
        _bad_update(SIMULATOR, "nan"),
        Kind("file truncated", SIMULATOR, Act.DAMAGE, DONE, "truncated"),
        Kind("bits of the file flipped", SIMULATOR, Act.DAMAGE, DONE, "flipped"),
        Kind("bit of a row flipped", SIMULATOR, Act.DAMAGE, DONE, "row"),
        Kind("bit of an attribute flipped", SIMULATOR, Act.DAMAGE, DONE, "attribute"),
        Kind("bit of the status flipped", SIMULATOR, Act.DAMAGE, DONE, "status"),
        Kind("bit of the checkpoint flipped", SIMULATOR, Act.DAMAGE_CHECKPOINT, STOPPED, "SIGTERM"),
        Kind("bit of sweep.toml flipped", SIMULATOR, Act.DAMAGE_SWEEP, DONE, "plan"),
        Kind("bit of a run of a sweep flipped", SIMULATOR, Act.DAMAGE_SWEEP, DONE, "run"),
        Kind("cached data damaged", SIMULATOR, Act.DAMAGE_CACHE, DONE),
    )


AT_START = ("before MPI_Init", "after MPI_Init")


def _death_at_start(who: str, when: str) -> Kind:
    detail = f"{who} {when}"
    return Kind(f"{who} dies {when}", MPI, Act.DIE_AT_START, NEVER_BEGUN, detail, ulfm=True, launch=True)


def _bad_update(transport: str, defect: str) -> Kind:
    return Kind(UPDATES[defect], transport, Act.DEFECT, Expected((State.DONE,), (0,), reason=REASONS[defect]), defect)


# ---------------------------------------------------------------------------------------------------- two faults


def _two_faults(transport: str, one: str) -> Kind:
    on_mpi = transport == MPI
    return Kind(f"{one}, and another fault", transport, Act.TWO, DONE, one, ulfm=on_mpi, launch=on_mpi)


def pairs(kind: Kind) -> list[tuple[Kind, Kind]]:
    """The pairs of faults that a kind of two is drawn from, in either order; both clients' ranks may be killed."""
    members = _MEMBERS[kind.transport]
    return [
        (one, other)
        for one in members
        for other in members
        if kind.detail in (one.name, other.name) and (one != other or one.act is Act.KILL_CLIENT)
    ]


_MEMBERS = {
    MPI: (
        Kind("client killed", MPI, Act.KILL_CLIENT, LOST_AND_DONE),
        Kind("server killed", MPI, Act.SIGNAL_RANK_0, SERVER_KILLED_BELOW_LAUNCH, "SIGKILL"),
        Kind("mpirun killed", MPI, Act.KILL_MPIRUN, MPIRUN_KILLED),
        Kind("SIGTERM to `areabench launch`", MPI, Act.SIGNAL_LAUNCH, STOPPED, "SIGTERM"),
        Kind("client stopped", MPI, Act.STOP, DONE, "client"),
        Kind("server stopped", MPI, Act.STOP, DONE, "server"),
        Kind("full disc", MPI, Act.FILL_DISC, FULL_DISC),
    ),
    SIMULATOR: (
        Kind("SIGTERM", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGTERM"),
        Kind("SIGUSR1", SIMULATOR, Act.SIGNAL_RANK_0, STOPPED, "SIGUSR1"),
        Kind("killed", SIMULATOR, Act.SIGNAL_RANK_0, SIMULATOR_KILLED, "SIGKILL"),
        Kind("full disc", SIMULATOR, Act.FILL_DISC, FULL_DISC),
    ),
}


def either(faults: Sequence[Kind]) -> Expected:
    """After several faults: what one of those that end a run leads to; the horizon where none does.

    A signal that finds a simulation ended, and its process not yet, does what the system says. A server that was
    stopped when a signal came may find its horizon passed when it continues.
    """
    ending = [fault.expected for fault in faults if State.DONE not in fault.expected.states]
    if {(fault.act, fault.detail) for fault in faults} == {(Act.STOP, "server"), (Act.SIGNAL_LAUNCH, "SIGTERM")}:
        ending.append(DONE)
    late = [-Signals[fault.detail] for fault in faults if fault.transport == SIMULATOR and fault.expected == STOPPED]
    killed = sum(fault.act is Act.KILL_CLIENT for fault in faults)
    at_least = killed if not ending else 0  # the end may come before the loss is heard of
    return Expected(
        states=tuple(state for expected in ending for state in expected.states) or DONE.states,
        codes=(*(code for expected in ending for code in expected.codes or ()), *late) or DONE.codes,
        ends_within_s=40.0 if ending else None,
        lost=tuple(range(at_least, killed + 1)),
    )
