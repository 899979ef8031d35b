"""The limit: a bare mpi4py loop with persistent requests and numpy buffers, no Python object made for a message."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI
from mpi_plan import Piece
from numpy.typing import NDArray

_GO, _STOP = 0, 1  # the first byte of what the server sends
_TAG = 99

_MOMENT_S = 10e-6  # of a server
_SHORTEST_S, _LONGEST_S = 20e-6, 5e-3  # of a client

Wait = Callable[[Sequence[MPI.Request]], None]
Poll = Callable[[list[MPI.Prequest]], list[int] | None]


def wait_blocking(requests: Sequence[MPI.Request]) -> None:
    """Wait inside MPI: spins, or yields the core where the library knows that ranks outnumber cores."""
    MPI.Request.Waitall(requests)


def wait_yielding(requests: Sequence[MPI.Request]) -> None:
    """Poll, and offer the core to others between two polls."""
    while not MPI.Request.Testall(requests):
        os.sched_yield()


class Sleeper:
    """Polls with pauses; the first is half of what the last wait took, so that a crowd does not poll in vain."""

    def __init__(self) -> None:
        self._last_s = 100e-6

    def __call__(self, requests: Sequence[MPI.Request]) -> None:
        """Wait for all of them."""
        begun_s, pause_s = time.perf_counter(), max(_SHORTEST_S, 0.5 * self._last_s)
        while not MPI.Request.Testall(requests):
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_S)
        self._last_s = min(time.perf_counter() - begun_s, _LONGEST_S)


WAITS: dict[str, Wait] = {"blocking": wait_blocking, "yielding": wait_yielding, "sleeping": Sleeper()}


def some_blocking(requests: list[MPI.Prequest]) -> list[int] | None:
    """What has come in; waits inside MPI until something has."""
    return MPI.Request.Waitsome(requests)


def some_yielding(requests: list[MPI.Prequest]) -> list[int] | None:
    """What has come in; offers the core to others where nothing has."""
    done = MPI.Request.Testsome(requests)
    if not done:
        os.sched_yield()
    return done


def some_sleeping(requests: list[MPI.Prequest]) -> list[int] | None:
    """What has come in; sleeps for a moment where nothing has."""
    done = MPI.Request.Testsome(requests)
    if not done:
        time.sleep(_MOMENT_S)
    return done


POLLS: dict[str, Poll] = {"blocking": some_blocking, "yielding": some_yielding, "sleeping": some_sleeping}


def serve_bare(comm: MPI.Comm, piece: Piece, wait: str) -> int:
    """Rank 0: answer every message with one as long; returns how many came in within the piece."""
    incoming = [np.zeros(piece.size, np.uint8) for _ in range(piece.clients)]
    outgoing = [np.zeros(piece.size, np.uint8) for _ in range(piece.clients)]
    receives = [comm.Recv_init(buffer, source=client + 1, tag=_TAG) for client, buffer in enumerate(incoming)]
    sends = [comm.Send_init(buffer, dest=client + 1, tag=_TAG) for client, buffer in enumerate(outgoing)]
    MPI.Prequest.Startall(receives)
    MPI.Prequest.Startall(sends)
    count = _echo(receives, sends, POLLS[wait], piece.duration_s)
    _dismiss(receives, sends, outgoing)
    return count


def _echo(receives: list[MPI.Prequest], sends: list[MPI.Prequest], poll: Poll, duration_s: float) -> int:
    count, end_s = 0, time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        for slot in (done := poll(receives) or ()):
            sends[slot].Wait()  # complete already: the client has answered
            receives[slot].Start()
            sends[slot].Start()
        count += len(done)
    return count


def _dismiss(receives: list[MPI.Prequest], sends: list[MPI.Prequest], outgoing: Sequence[NDArray[np.uint8]]) -> None:
    """Answer each client's last message with a stop."""
    left = len(receives)
    while left:
        done = MPI.Request.Testsome(receives) or ()
        for slot in done:
            sends[slot].Wait()
            outgoing[slot][0] = _STOP
            sends[slot].Start()
        left -= len(done)
        os.sched_yield()
    Sleeper()(sends)
    for request in (*receives, *sends):
        request.Free()


def work_bare(comm: MPI.Comm, size: int, wait: str) -> None:
    """A client's rank: answer until told to stop."""
    incoming, outgoing = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    flag = incoming.data
    receive, send = comm.Recv_init(incoming, source=0, tag=_TAG), comm.Send_init(outgoing, dest=0, tag=_TAG)
    both, wait_for = [receive, send], WAITS[wait]
    receive.Start()
    wait_for([receive])
    while flag[0] == _GO:
        MPI.Prequest.Startall(both)
        wait_for(both)
    receive.Free()
    send.Free()
