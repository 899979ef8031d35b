"""The ranks of a launch and what they do together: rank 0 is the server, the others host the clients."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np
from mpi4py import MPI

from areabench.errors import RunFailure, ServerGone, UserError
from areabench.host import Liveness, own_cores, this_process
from areabench.transports.clock import Backoff, Cores

Result = TypeVar("Result")
_AGREEMENT_LIMIT_S = 30.0  # how long survivors wait for each other after a rank was lost
_LIVENESS_INTERVAL_S = 1.0  # between two looks whether the ranks that are waited for are alive
_REVOCATION_S = 0.2  # for a revocation to reach the other ranks


@dataclass(frozen=True)
class RankFailure:
    """An error of one rank, as it is sent to the others."""

    rank: int
    message: str
    user_error: bool


class SharedFailure(Exception):
    """Something failed on one rank during set-up; raised on all ranks."""

    def __init__(self, failure: RankFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class AbortRequired(Exception):
    """A failure after which some ranks no longer listen: only an abort ends them."""


class World:
    """All ranks of this launch, or the first of them, with a communicator of their own.

    With a fault-tolerant MPI the death of a rank is raised as an MPI.Exception where its messages are waited for. Once
    the run has begun and `survives_losses` is set, collective calls (`together`, `from_server`, `gather`) continue
    without lost ranks: a rank that meets a loss revokes the communicator, so that all others meet it too, and those
    that are left repeat the call. The server informs the workers of an earlier loss, so that all call
    `shrink`. Ranks keep their first numbers, and rank 0 stays the first.
    """

    def __init__(
        self,
        comm: MPI.Intracomm = MPI.COMM_WORLD,
        *,
        fault_tolerant: bool = False,
        report: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.comm = comm
        self.fault_tolerant = fault_tolerant
        self.survives_losses = False
        self.report = report  # tells the launching process of a step that all ranks have made
        if fault_tolerant:
            comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank = self.comm.rank
        self.size = self.comm.size
        self.lost_ranks: tuple[int, ...] = ()  # ranks that `shrink` has removed
        self._silent: set[int] = set()  # ranks whose messages have failed
        self._everyone = comm.Get_group()
        try:
            self._meet()
        except MPI.Exception as error:
            self._end_first_meeting(error)

    def _meet(self) -> None:
        """Learn of the other ranks: their processes, and which of them are on this node."""
        self.liveness = Liveness(self.comm.allgather(this_process()), self.rank)
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_on_node = node.rank == 0
        usable = frozenset[int]().union(*node.allgather(own_cores()))  # each rank may be bound to one core
        self.cores = Cores(spare=node.size <= len(usable), yielded="Open MPI" in self.library)
        node.Free()

    def _end_first_meeting(self, error: MPI.Exception) -> NoReturn:
        """End all ranks: one has died, or MPI cannot pass messages."""
        known = self.fault_tolerant and self._learns_of_loss()
        why = f"ranks {self.lost()} were lost" if known else f"MPI failed ({error})"
        print(f"areabench: rank {self.rank}: {why} before the run began; all are ended", file=sys.stderr, flush=True)
        self.abort()
        os._exit(1)  # MPICH's abort may return

    def first(self, ranks: int) -> World | None:
        """A world of the first ranks with messages of its own; None on the other ranks."""
        comm = self.comm.Split(0 if self.rank < ranks else MPI.UNDEFINED, self.rank)
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            return None
        return World(comm, fault_tolerant=self.fault_tolerant, report=self.report)

    def leave(self) -> None:
        """Free the communicator; the world is not used after that."""
        self.comm.Free()

    @property
    def library(self) -> str:
        """The MPI library, in one line."""
        return MPI.Get_library_version().splitlines()[0].strip("\0 ")

    @property
    def host(self) -> str:
        """This rank's node."""
        return MPI.Get_processor_name()

    def together(self, action: Callable[[], Result]) -> Result:
        """Call an action on every rank; if it fails on one, all raise SharedFailure. Synchronises the ranks."""
        result: Result | None = None
        failure: RankFailure | None = None
        try:
            result = action()
        except (SharedFailure, AbortRequired, ServerGone):  # all ranks know already, or cannot be told
            raise
        except (UserError, RunFailure) as error:
            failure = RankFailure(self.rank, str(error), user_error=isinstance(error, UserError))
        except MemoryError as error:
            failure = RankFailure(self.rank, f"not enough memory: {error}; use fewer ranks per node", user_error=True)
        except (Exception, SystemExit):  # any: the other ranks must be told
            failure = RankFailure(self.rank, traceback.format_exc(), user_error=False)
        failures = [found for found in self._collective(lambda comm: comm.allgather(failure)) if found is not None]
        if failures:
            raise SharedFailure(failures[0])
        return result  # type: ignore[return-value]  # an action without result gives None

    def from_server(self, action: Callable[[], Result]) -> Result:
        """Call an action on every rank, and return rank 0's result on all."""
        mine = self.together(action)
        result: Result = self._collective(lambda comm: comm.bcast(mine))
        return result

    def gather(self, value: Result) -> list[Result]:
        """The values of all ranks that are left, on rank 0; an empty list on the others. Called on all."""
        return self._collective(lambda comm: comm.gather(value) or [])

    def gather_hosts(self) -> list[str]:
        """The node of every rank."""
        hosts: list[str] = self.comm.allgather(self.host)
        return hosts

    def barrier(self) -> None:
        """Wait until all ranks are here, and continue at the same moment."""
        self.wait(self.comm.Ibarrier())
        self.comm.Barrier()

    def abort(self) -> None:
        """End all ranks at once. A fault-tolerant MPI ends only the rank that aborts, so the others are told first."""
        if self.fault_tolerant:
            for comm in (self.comm, MPI.COMM_WORLD):
                with suppress(MPI.Exception):
                    comm.Revoke()  # every call of the others fails from now on, and they abort too
            self._let_mpi_progress(_REVOCATION_S)
        self.comm.Abort(1)

    def lost(self, silent: Collection[int] = ()) -> list[int]:
        """The ranks that MPI knows to be dead, and from now on those in `silent`; ask after MPI has raised an error."""
        if not self.fault_tolerant:
            return list(self.lost_ranks)
        dead = self.comm.Get_failed()
        ranks = MPI.Group.Translate_ranks(dead, list(range(dead.size)), self._everyone)
        dead.Free()
        self._silent.update(silent)
        return sorted({*self.lost_ranks, *ranks, *self._silent})

    def ended_unnoticed(self) -> list[int]:
        """The ranks of this machine that have ended without MPI knowing it; such a run can only be aborted.

        MPI may come to know a rank that is found once; a rank that is found again a second later stays unknown.
        """
        return sorted(set(self.liveness.gone()) - set(self.lost()))

    def shrink(self) -> None:
        """Continue without the lost ranks: all others call this, and `comm` has only them from then on."""
        self._agree(succeeded=True)  # all are here; else Shrink, which has no form with a limit, would wait forever
        smaller = self.comm.Shrink()
        assert isinstance(smaller, MPI.Intracomm)
        smaller.Set_errhandler(MPI.ERRORS_RETURN)
        left = MPI.Group.Translate_ranks(smaller.Get_group(), list(range(smaller.size)), self._everyone)
        self.comm = smaller
        self.lost_ranks = tuple(sorted(set(range(self.size)) - set(left)))

    def _collective(self, call: Callable[[MPI.Intracomm], Result]) -> Result:
        """Wait for all ranks and make a collective call; where a rank is lost in it, those that are left repeat it."""
        # A blocking call burns the core until the last rank is here; the barrier waits with pauses.
        if not self.fault_tolerant:
            self.wait(self.comm.Ibarrier())
            return call(self.comm)
        while True:
            result, succeeded = self._try(call)
            if self._agree(succeeded=succeeded):
                return result  # type: ignore[return-value]  # a Result where the call succeeded
            if 0 in self.lost():
                raise ServerGone("the server's rank is gone")
            if not self.survives_losses:
                raise AbortRequired(f"ranks {self.lost()} were lost before the run began; all are ended")
            self.shrink()

    def _try(self, call: Callable[[MPI.Intracomm], Result]) -> tuple[Result | None, bool]:
        try:
            self.wait(self.comm.Ibarrier())  # the server may evaluate for long
            return call(self.comm), True
        except MPI.Exception:
            self.comm.Revoke()  # for those that wait for a rank that has ended
            if not self._learns_of_loss():
                raise AbortRequired("another rank has ended all") from None
            return None, False

    def _learns_of_loss(self) -> bool:
        """Whether a rank is lost, which another rank may know before this one; else that other rank has aborted."""
        end_s = time.monotonic() + _LIVENESS_INTERVAL_S
        while set(self.lost()) == set(self.lost_ranks) and time.monotonic() < end_s:
            self._let_mpi_progress(1e-3)
        return set(self.lost()) != set(self.lost_ranks)

    def _agree(self, *, succeeded: bool) -> bool:
        """Whether all ranks that are left have succeeded: the same answer on all."""
        flag = np.array([succeeded], np.intc)
        try:
            self.wait(self.comm.Iagree(flag), _AGREEMENT_LIMIT_S)
        except MPI.Exception:  # a rank is lost that not all knew of
            return False
        return bool(flag[0])

    def wait(self, request: MPI.Request, limit_s: float | None = None) -> None:
        """Wait for other ranks, but not for dead ones; with pauses, for one of them may need the core for minutes."""
        backoff = Backoff(50e-6, 5e-3)
        begun_s = time.monotonic()
        looked_s = time.monotonic()
        missed = set[int]()
        while not request.Test():
            backoff.pause(1.0)
            now_s = time.monotonic()
            if limit_s is not None and now_s - begun_s > limit_s:
                raise AbortRequired(f"not all ranks have come within {limit_s:g} s; all are ended")
            if now_s - looked_s > _LIVENESS_INTERVAL_S:
                before = missed
                missed = self._missing()
                looked_s = now_s
                if before & missed:
                    raise AbortRequired(f"ranks {sorted(before & missed)} have died; all are ended")

    def _missing(self) -> set[int]:
        """The ranks that will never come. The server looks at all ranks, the others look only at the server."""
        if self.rank == 0:
            return set(self.ended_unnoticed())
        if self.liveness.server_gone():
            raise ServerGone("the server's rank or the launcher is gone")
        return set()

    def _let_mpi_progress(self, duration_s: float) -> None:
        """Give MPI time to pass messages on."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            MPI.COMM_SELF.Iprobe()  # never fails, which other communicators may
            time.sleep(1e-3)
