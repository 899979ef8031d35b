"""The ranks of a launch: rank 0 is the server, the others host the clients. They meet here, and fail together."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from areabench.engine.client import Placement
from areabench.errors import RunFailure, UserError
from areabench.host import Footprint, Liveness, Meter, own_cores, this_process
from areabench.transports.clock import Backoff, Cores
from areabench.transports.signals import Breaks

Result = TypeVar("Result")
MEETING_S = 30.0  # how long survivors wait for each other once a rank was lost
_LOOK_S = 1.0  # how often those who wait look whether the others are alive
_REVOKED_S = 0.2  # for the word that all is over to reach the other ranks


@dataclass(frozen=True)
class Trouble:
    """What went wrong on a rank, as it travels to the others."""

    rank: int
    message: str
    user_error: bool


class SharedFailure(Exception):
    """Something failed on one rank during set-up; raised on all ranks."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Unshareable(Exception):
    """A failure that leaves ranks behind which no longer listen: only an abort ends them, so nobody else takes it."""


class ServerLost(Unshareable):
    """The server's rank has died, or its launcher: there is nobody left to tell, and nothing left to do."""


class World:
    """All ranks of this launch, or the first of them, with messages of their own.

    With a fault-tolerant MPI the death of a rank is raised as an MPI.Exception where its messages are waited for. Once
    the run has begun, `go_on_without` set, the ranks that are left do what all do together (`together`, `of_server`,
    `gather`) among themselves: whoever meets a loss there makes all others meet it, and they begin again with those
    who are left. The server tells the workers of a loss that it met before, so that all call `shrink`. Rank numbers
    stay those of the beginning, and rank 0 stays the first.
    """

    def __init__(self, comm: MPI.Intracomm = MPI.COMM_WORLD, *, fault_tolerant: bool = False) -> None:
        self.comm, self.fault_tolerant, self.go_on_without = comm, fault_tolerant, False
        if fault_tolerant:
            comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self.comm.rank, self.comm.size
        self.lost_ranks: tuple[int, ...] = ()  # that this world has shrunk by
        self._everyone = comm.Get_group()
        self.liveness = Liveness(self.comm.allgather(this_process()), self.rank)
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_on_node = node.rank == 0
        usable = frozenset[int]().union(*node.allgather(own_cores()))  # each rank may be bound to one of them
        self.cores = Cores(spare=node.size <= len(usable), yielded="Open MPI" in self.library)
        node.Free()

    def first(self, ranks: int) -> World | None:
        """A world of the first so many ranks, in which no message of another is seen; None on the other ranks."""
        comm = self.comm.Split(0 if self.rank < ranks else MPI.UNDEFINED, self.rank)
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            return None
        return World(comm, fault_tolerant=self.fault_tolerant)

    def leave(self) -> None:
        """Give the communicator back; the world is not used after that."""
        self.comm.Free()

    @property
    def library(self) -> str:
        """The MPI library, in one line."""
        return MPI.Get_library_version().splitlines()[0].strip("\0 ")

    @property
    def highest_tag(self) -> int:
        """The largest tag that this MPI takes."""
        return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)  # the least that the standard allows

    @property
    def host(self) -> str:
        """This rank's node."""
        return MPI.Get_processor_name()

    def together(self, action: Callable[[], Result]) -> Result:
        """Do something on every rank; if it fails on one, all raise SharedFailure. Synchronises the ranks."""
        result: Result | None = None
        trouble: Trouble | None = None
        try:
            result = action()
        except (SharedFailure, Unshareable):  # all ranks know already, or cannot be told
            raise
        except (UserError, RunFailure) as error:
            trouble = Trouble(self.rank, str(error), user_error=isinstance(error, UserError))
        except MemoryError as error:
            trouble = Trouble(self.rank, f"not enough memory: {error}; use fewer ranks a node", user_error=True)
        except Exception:  # whatever it is, the other ranks must hear of it
            trouble = Trouble(self.rank, traceback.format_exc(), user_error=False)
        troubles = [found for found in self._meet(lambda comm: comm.allgather(trouble)) if found is not None]
        if troubles:
            raise SharedFailure(troubles[0])
        return result  # type: ignore[return-value]  # an action without result gives None

    def of_server(self, action: Callable[[], Result]) -> Result:
        """Do something on every rank, and give everybody rank 0's result."""
        mine = self.together(action)
        result: Result = self._meet(lambda comm: comm.bcast(mine))
        return result

    def gather(self, value: Result) -> list[Result]:
        """The value of every rank that is left, on rank 0; called on all. Nothing on the others."""
        return self._meet(lambda comm: comm.gather(value) or [])

    def gather_hosts(self) -> list[str]:
        """The node of every rank."""
        hosts: list[str] = self.comm.allgather(self.host)
        return hosts

    def barrier(self) -> None:
        """Wait until all ranks are here, and go on at the same moment."""
        self.wait(self.comm.Ibarrier())
        self.comm.Barrier()

    def abort(self) -> None:
        """End all ranks at once. Fault-tolerant, MPI ends only the rank that aborts, and must tell the others first."""
        if self.fault_tolerant:
            for comm in (self.comm, MPI.COMM_WORLD):
                with suppress(MPI.Exception):
                    comm.Revoke()  # whatever others do there is an error from now on, and they abort too
            self._linger(_REVOKED_S)
        self.comm.Abort(1)

    # ------------------------------------------------------------------------------------------- ranks that are lost

    def lost(self) -> list[int]:
        """The ranks that MPI knows to have died; to be asked when it has raised something."""
        if not self.fault_tolerant:
            return list(self.lost_ranks)
        dead = self.comm.Get_failed()
        ranks = MPI.Group.Translate_ranks(dead, list(range(dead.size)), self._everyone)
        dead.Free()
        return sorted({*self.lost_ranks, *ranks})

    def unnoticed(self) -> list[int]:
        """The ranks of this machine that have ended, and MPI does not know it: such a run can only be aborted.

        One that is found once may be known in a moment; one that is found again a second later will never be.
        """
        return sorted(set(self.liveness.gone()) - set(self.lost()))

    def shrink(self) -> None:
        """Go on without the ranks that are lost: all others call this, and `comm` has only them from then on."""
        self._all_say(good=True)  # all are here, or the next line, of which there is no other form, would wait for ever
        smaller = self.comm.Shrink()
        assert isinstance(smaller, MPI.Intracomm)
        smaller.Set_errhandler(MPI.ERRORS_RETURN)
        left = MPI.Group.Translate_ranks(smaller.Get_group(), list(range(smaller.size)), self._everyone)
        self.comm, self.lost_ranks = smaller, tuple(sorted(set(range(self.size)) - set(left)))

    def _meet(self, collective: Callable[[MPI.Intracomm], Result]) -> Result:
        """Wait for all ranks and do a collective; where one is lost in it, all that are left do it again."""
        if not self.fault_tolerant:
            self.wait(self.comm.Ibarrier())
            return collective(self.comm)
        while True:
            result, good = self._try(collective)
            if self._all_say(good=good):
                return result  # type: ignore[return-value]  # it is one where it was good
            if 0 in self.lost():
                raise ServerLost("the server's rank is gone")
            if not self.go_on_without:
                raise Unshareable(f"ranks {self.lost()} were lost before the run began; all are ended")
            self.shrink()

    def _try(self, collective: Callable[[MPI.Intracomm], Result]) -> tuple[Result | None, bool]:
        try:
            self.wait(self.comm.Ibarrier())  # the server may evaluate for long
            return collective(self.comm), True
        except MPI.Exception:
            self.comm.Revoke()  # those who wait for somebody who is not here any more must hear of it
            if not self._hears_of_loss():
                raise Unshareable("another rank has ended all") from None
            return None, False

    def _hears_of_loss(self) -> bool:
        """Whether a rank is lost, which may be known to another before it is known here; else that one has aborted."""
        end_s = time.monotonic() + _LOOK_S
        while set(self.lost()) == set(self.lost_ranks) and time.monotonic() < end_s:
            self._linger(1e-3)
        return set(self.lost()) != set(self.lost_ranks)

    def _all_say(self, *, good: bool) -> bool:
        """Whether it was good for all that are left: the same answer for all."""
        flag = np.array([good], np.intc)
        try:
            self.wait(self.comm.Iagree(flag), MEETING_S)
        except MPI.Exception:  # somebody is lost whom not all knew of
            return False
        return bool(flag[0])

    def wait(self, request: MPI.Request, limit_s: float | None = None) -> None:
        """Wait for other ranks, with pauses: one of them may need the core for minutes. Not for dead ones, though."""
        backoff, begun_s, looked_s, missed = Backoff(50e-6, 5e-3), time.monotonic(), time.monotonic(), set[int]()
        while not request.Test():
            backoff.pause(1.0)
            now_s = time.monotonic()
            if limit_s is not None and now_s - begun_s > limit_s:
                raise Unshareable(f"not all ranks have come within {limit_s:g} s; all are ended")
            if now_s - looked_s > _LOOK_S:
                before, missed, looked_s = missed, self._missing(), now_s
                if before & missed:
                    raise Unshareable(f"ranks {sorted(before & missed)} have died; all are ended")

    def _missing(self) -> set[int]:
        """The ranks that will never come; the server decides what that means, so the others look for it alone."""
        if self.rank == 0:
            return set(self.unnoticed())
        if self.liveness.server_gone():
            raise ServerLost("the server's rank or the launcher is gone")
        return set()

    def _linger(self, duration_s: float) -> None:
        """Give MPI time to pass on what it has to."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            MPI.COMM_SELF.Iprobe()  # never an error, as it may be with others
            time.sleep(1e-3)


@dataclass(frozen=True)
class Stage:
    """The ranks of a run, who is on which, the host of each, and when the launch began (Unix time)."""

    world: World
    placement: Placement
    hosts: Sequence[str]
    began_at: float
    breaks: Breaks


@dataclass(frozen=True)
class Resumption:
    """What the workers must know of a run that goes on: when, and where each client stands."""

    time_s: float
    rounds: Mapping[int, int]  # that each client has come back from
    since_s: Mapping[int, float]  # when the delay of each order under way began
    remembering: frozenset[int]  # clients that get back what they remembered


def gather_footprints(world: World, meter: Meter) -> tuple[Footprint, ...]:
    """What each rank that is left took of its machine, on rank 0; called on all ranks, before anything is evaluated."""
    return tuple(world.gather(meter.read(world.host)))
