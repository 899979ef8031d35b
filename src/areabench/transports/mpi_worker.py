"""The wire, a worker rank's end: buffers and requests of all clients that it hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from areabench.arrays import Vector
from areabench.engine.messages import (
    Flag,
    Order,
    Tag,
    UpdateHeader,
    pack_update,
    tag_of,
    unpack_order,
)
from areabench.errors import ServerGone
from areabench.transports.clock import Backoff
from areabench.transports.mpi_server import Buffer, completed
from areabench.transports.world import World

_LONGEST_WAIT_S = 0.5  # without a look at anything else


def receive_memories(world: World, clients: Sequence[int], dimension: int, dtype: np.dtype[Any]) -> dict[int, Vector]:
    """Before the start of a run that is resumed, on a worker's rank: what these clients remember."""
    memories = {}
    for client in clients:
        memories[client] = np.empty(dimension, dtype)
        world.wait(world.comm.Irecv([memories[client], MPI.BYTE], 0, tag_of(Tag.MEMORY, client)))
    return memories


class _Line:
    """One client's part of a worker's link.

    Orders come into two buffers by turns: while the client works from one, the receive of the next is posted into the
    other, so that a stop is noticed.
    """

    def __init__(self, comm: MPI.Intracomm, client: int, dimension: int, dtype: np.dtype[Any]) -> None:
        self.client, self.stopped, self.shrunk, self.failed = client, False, False, False
        self.question: tuple[int, int] | None = None  # the round that is asked about, and the question's number
        self._buffers = [Buffer(dimension, dtype) for _ in range(2)]
        self._receives = [
            comm.Recv_init([buffer.whole, MPI.BYTE], source=0, tag=tag_of(Tag.ORDER, client))
            for buffer in self._buffers
        ]
        self.outgoing, self._turn = Buffer(dimension, dtype), 0
        self.send = comm.Send_init([self.outgoing.whole, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, client))
        self.next_order.Start()

    @property
    def next_order(self) -> MPI.Prequest:
        """The receive that is posted."""
        return self._receives[self._turn]

    def take(self) -> Order | None:
        """An order is here: post the receive of the next; None for a stop."""
        buffer = self._buffers[self._turn]
        header = unpack_order(buffer.header)
        if Flag.STOP in header.flags:
            self.stopped, self.shrunk = True, Flag.SHRUNK in header.flags
            return None
        if header.flags is Flag.RECALL:
            self.question = (header.version, header.iteration)
            self.next_order.Start()
            return None
        self._turn = 1 - self._turn
        self.next_order.Start()
        return Order(self.client, buffer.vector, header.step_size, header.version, header.iteration, header.flags)

    def close(self) -> None:
        """Give the requests back."""
        for request in (*self._receives, self.send):
            request.Free()


class MpiWorkerLink:
    """A worker rank's end, for all clients that it hosts."""

    def __init__(self, world: World, clients: Sequence[int], dimension: int, dtype: np.dtype[Any]) -> None:
        self._comm, self._yielded = world.comm, world.cores.yielded
        self._lines = [_Line(world.comm, client, dimension, dtype) for client in clients]
        self._by_client = {line.client: line for line in self._lines}
        self._next_orders = [line.next_order for line in self._lines]
        self._answers: list[tuple[MPI.Request, Buffer]] = []  # under way, and what they send
        self._asked: list[tuple[int, int]] = []
        self.stopped = self.shrunk = False

    def orders(self, *, wait: bool = False) -> list[Order]:
        """All orders that are here now; where there is none, those that come first, if they are worth the wait."""
        try:
            done = self._wait_for_some() if wait else completed(self._next_orders)
        except MPI.Exception as error:  # all messages are the server's
            raise ServerGone(f"the server's rank is gone: {error}") from error
        return [order for slot in done if (order := self._take(slot)) is not None]

    def _wait_for_some(self) -> Sequence[int]:
        """The first that come. MPICH would wait for ever for a server that has died, so it is looked at itself."""
        if self._yielded:
            return MPI.Request.Waitsome(self._next_orders) or ()
        end_s = time.perf_counter() + _LONGEST_WAIT_S
        while not (done := completed(self._next_orders)) and time.perf_counter() < end_s:
            pass
        return done

    def _take(self, slot: int) -> Order | None:
        line = self._lines[slot]
        order = line.take()
        self._next_orders[slot] = line.next_order
        self.stopped = self.stopped or line.stopped
        self.shrunk = self.shrunk or line.shrunk
        if line.question is not None:
            self._asked.append((line.client, line.question[0]))
        return order

    def questions(self) -> list[tuple[int, int]]:
        """The clients that were asked what they remembered, since the last call, and when which round began."""
        asked, self._asked = self._asked, []
        return asked

    def answer(self, client: int, memory: Vector) -> None:
        """Tell what a client that was asked remembered."""
        buffer = Buffer(len(memory), memory.dtype)
        np.copyto(buffer.vector, memory)
        self._answer(client, buffer, Flag.NONE)

    def _answer(self, client: int, buffer: Buffer, flags: Flag) -> None:
        line = self._by_client[client]
        assert line.question is not None
        (number, question), line.question = line.question, None
        pack_update(buffer.header, UpdateHeader(client, question, number, flags=flags), buffer.vector.nbytes)
        self._answers = [sent for sent in self._answers if not sent[0].Test()]
        request = self._comm.Isend([buffer.whole, MPI.BYTE], dest=0, tag=tag_of(Tag.MEMORY, client))
        self._answers.append((request, buffer))

    def load(self, client: int, payload: Vector) -> None:
        """Keep what will be sent."""
        line = self._by_client[client]
        line.send.Wait()  # complete already: the server has answered
        np.copyto(line.outgoing.vector, payload)

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded."""
        line = self._by_client[header.client]
        pack_update(line.outgoing.header, header, line.outgoing.vector.nbytes)
        line.send.Start()

    def fail(self, client: int, text: str) -> None:
        """Tell the server that a client has failed; it will say stop."""
        line = self._by_client[client]
        line.failed = True
        self._last_words(line, Flag.FAILED)
        self._comm.send(text, dest=0, tag=tag_of(Tag.FAILURE, client))

    def depart(self, server_gone: Callable[[], bool] = lambda: False) -> None:
        """Wait until the server has said stop to every client, and say farewell for each."""
        backoff = Backoff(50e-6, 5e-3)
        while not all(line.stopped for line in self._lines):
            self.orders()
            self._shrug()
            if server_gone():
                raise ServerGone("the server's rank or the launcher is gone")
            backoff.pause(1.0)
        self._shrug()
        for line in self._lines:
            if not line.failed:
                self._last_words(line, Flag.FAREWELL)
            line.close()
        MPI.Request.Waitall([request for request, _ in self._answers])  # the server takes them in before it leaves

    def _shrug(self) -> None:
        """Answer questions that came too late with nothing: the server waits for answers, whatever they say."""
        for client, _ in self.questions():
            self._answer(client, Buffer(0, np.dtype(np.uint8)), Flag.FAILED)

    def _last_words(self, line: _Line, flag: Flag) -> None:
        line.send.Wait()
        pack_update(line.outgoing.header, UpdateHeader(line.client, -1, -1, flags=flag))
        self._comm.Send([line.outgoing.header, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, line.client))
