"""The ranks of a launch: rank 0 is the server, the others host the clients. They meet here, and fail together."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mpi4py import MPI

from areabench.errors import RunFailure, UserError
from areabench.footprint import own_cores
from areabench.transports.waiting import Backoff, Cores

Result = TypeVar("Result")


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


class World:
    """All ranks of this launch, or the first of them, with messages of their own."""

    def __init__(self, comm: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        self.comm = comm
        self.rank, self.size = self.comm.rank, self.comm.size
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_on_node = node.rank == 0
        usable = frozenset[int]().union(*node.allgather(own_cores()))  # each rank may be bound to one of them
        self.cores = Cores(spare=node.size <= len(usable), yielded="Open MPI" in self.library)
        node.Free()

    def first(self, ranks: int) -> World | None:
        """A world of the first so many ranks, in which no message of another is seen; None on the other ranks."""
        comm = self.comm.Split(0 if self.rank < ranks else MPI.UNDEFINED, self.rank)
        return World(comm) if isinstance(comm, MPI.Intracomm) and comm != MPI.COMM_NULL else None

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
        self._assemble()
        troubles = [found for found in self.comm.allgather(trouble) if found is not None]
        if troubles:
            raise SharedFailure(troubles[0])
        return result  # type: ignore[return-value]  # an action without result gives None

    def _assemble(self) -> None:
        """Wait until all ranks are here; with pauses, for one of them may need the core for minutes."""
        request, backoff = self.comm.Ibarrier(), Backoff(50e-6, 5e-3)
        while not request.Test():
            backoff.pause(1.0)

    def of_server(self, action: Callable[[], Result]) -> Result:
        """Do something on every rank, and give everybody rank 0's result."""
        result: Result = self.comm.bcast(self.together(action))
        return result

    def gather_hosts(self) -> list[str]:
        """The node of every rank."""
        hosts: list[str] = self.comm.allgather(self.host)
        return hosts

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.comm.Barrier()

    def abort(self) -> None:
        """End all ranks at once."""
        self.comm.Abort(1)
