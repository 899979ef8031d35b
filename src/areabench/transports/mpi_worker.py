"""A worker rank's end of the wire: buffers and requests of all clients that it hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from areabench.arrays import Vector
from areabench.engine.messages import (
    INTERRUPTS,
    Flag,
    Order,
    Shapes,
    Tag,
    UpdateHeader,
    pack_update,
    tag_of,
    unpack_order,
)
from areabench.errors import ServerGone
from areabench.transports.clock import Backoff
from areabench.transports.mpi_server import MessageBuffer, completed
from areabench.transports.world import World

_LONGEST_WAIT_S = 0.5  # inside MPI, without a look at anything else


def receive_memories(world: World, clients: Sequence[int], like: Vector | None) -> dict[int, Vector]:
    """On a worker's rank, before the start of a resumed run: the memories of these clients, each like `like`."""
    memories: dict[int, Vector] = {}
    for client in clients:
        assert like is not None
        memories[client] = np.empty_like(like)
        world.wait(world.comm.Irecv([memories[client], MPI.BYTE], 0, tag_of(Tag.MEMORY, client)))
    return memories


class _ClientChannel:
    """One client's part of a worker's link.

    Orders are received into two buffers in turn: while the client works from one, the next receive is posted into the
    other, so that a stop is noticed.
    """

    def __init__(self, comm: MPI.Intracomm, client: int, shapes: Shapes) -> None:
        self.client, self.stopped, self.shrunk, self.failed = client, False, False, False
        self.question: tuple[int, int] | None = None  # the round that is asked about, and the number of the question
        self._buffers = [MessageBuffer(shapes.model, shapes.attached) for _ in range(2)]
        self._receives = [
            comm.Recv_init([buffer.whole, MPI.BYTE], source=0, tag=tag_of(Tag.ORDER, client))
            for buffer in self._buffers
        ]
        self.outgoing, self._turn = MessageBuffer(shapes.payload), 0
        self.send = comm.Send_init([self.outgoing.whole, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, client))
        self.next_order.Start()

    @property
    def next_order(self) -> MPI.Prequest:
        """The receive that is posted."""
        return self._receives[self._turn]

    def take(self) -> Order | None:
        """The order that is here, None for a stop or a question; posts the receive of the next one."""
        buffer = self._buffers[self._turn]
        header = unpack_order(buffer.header)
        if Flag.STOP in header.flags:
            self.stopped, self.shrunk = True, Flag.SHRUNK in header.flags
            return None
        if header.flags is Flag.RECALL:
            self.question = (header.version, header.iteration)
            self.next_order.Start()
            return None
        if header.flags not in INTERRUPTS:  # those carry no model: the buffer is free
            self._turn = 1 - self._turn
        self.next_order.Start()
        return Order(
            self.client, buffer.vector, header.step_size, header.version, header.iteration, header.flags,
            header.local_steps, buffer.attached,
        )  # fmt: skip

    def close(self) -> None:
        """Free the requests."""
        for request in (*self._receives, self.send):
            request.Free()


class MpiWorkerLink:
    """A worker rank's end, for all clients that it hosts."""

    def __init__(self, world: World, clients: Sequence[int], shapes: Shapes) -> None:
        self._comm, self._yielded = world.comm, world.cores.yielded
        self._channels = [_ClientChannel(world.comm, client, shapes) for client in clients]
        self._by_client = {channel.client: channel for channel in self._channels}
        self._next_orders = [channel.next_order for channel in self._channels]
        self._answers: list[tuple[MPI.Request, MessageBuffer]] = []  # in flight
        self._asked: list[tuple[int, int]] = []
        self.stopped = self.shrunk = False

    def orders(self, *, wait: bool = False) -> list[Order]:
        """All orders that are here now; with `wait`, the first that come."""
        try:
            done = self._wait_for_some() if wait else completed(self._next_orders)
        except MPI.Exception as error:  # all messages are the server's
            raise ServerGone(f"the server's rank is gone: {error}") from error
        return [order for slot in done if (order := self._take(slot)) is not None]

    def _wait_for_some(self) -> Sequence[int]:
        """Wait for the first orders. MPICH would wait forever for a server that has died, so there it is polled."""
        if self._yielded:
            return MPI.Request.Waitsome(self._next_orders) or ()
        end_s = time.perf_counter() + _LONGEST_WAIT_S
        while not (done := completed(self._next_orders)) and time.perf_counter() < end_s:
            pass
        return done

    def _take(self, slot: int) -> Order | None:
        channel = self._channels[slot]
        order = channel.take()
        self._next_orders[slot] = channel.next_order
        self.stopped = self.stopped or channel.stopped
        self.shrunk = self.shrunk or channel.shrunk
        if channel.question is not None:
            self._asked.append((channel.client, channel.question[0]))
        return order

    def questions(self) -> list[tuple[int, int]]:
        """The clients that were asked for their memory since the last call, each with the round that is asked about."""
        asked, self._asked = self._asked, []
        return asked

    def answer(self, client: int, memory: Vector) -> None:
        """Send the memory of a client that was asked for it."""
        buffer = MessageBuffer(memory)
        np.copyto(buffer.vector, memory)
        self._answer(client, buffer, Flag.NONE)

    def _answer(self, client: int, buffer: MessageBuffer, flags: Flag) -> None:
        channel = self._by_client[client]
        assert channel.question is not None
        (number, question), channel.question = channel.question, None
        pack_update(buffer.header, UpdateHeader(client, question, number, flags=flags), buffer.vector.nbytes)
        self._answers = [sent for sent in self._answers if not sent[0].Test()]
        request = self._comm.Isend([buffer.whole, MPI.BYTE], dest=0, tag=tag_of(Tag.MEMORY, client))
        self._answers.append((request, buffer))

    def load(self, client: int, payload: Vector) -> None:
        """Keep the result of a client's round until it is sent."""
        channel = self._by_client[client]
        channel.send.Wait()  # complete already: the server has answered
        np.copyto(channel.outgoing.vector, payload)

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded for the header's client; returns at once."""
        channel = self._by_client[header.client]
        pack_update(channel.outgoing.header, header, channel.outgoing.vector.nbytes)
        channel.send.Start()

    def fail(self, client: int, text: str) -> None:
        """Report to the server that a client has failed; the server will send a stop."""
        channel = self._by_client[client]
        channel.failed = True
        self._send_last_message(channel, Flag.FAILED)
        self._comm.send(text, dest=0, tag=tag_of(Tag.FAILURE, client))

    def leave(self, server_gone: Callable[[], bool] = lambda: False) -> None:
        """Wait until the server has stopped every client, and send the last message of each."""
        backoff = Backoff(50e-6, 5e-3)
        while not all(channel.stopped for channel in self._channels):
            self.orders()
            self._decline_questions()
            if server_gone():
                raise ServerGone("the server's rank or the launcher is gone")
            backoff.pause(1.0)
        self._decline_questions()
        for channel in self._channels:
            if not channel.failed:
                self._send_last_message(channel, Flag.LEAVING)
            channel.close()
        MPI.Request.Waitall([request for request, _ in self._answers])  # the server receives them before it leaves

    def _decline_questions(self) -> None:
        """Answer questions that came too late without a memory: the server waits for every answer."""
        for client, _ in self.questions():
            self._answer(client, MessageBuffer(np.empty(0, np.uint8)), Flag.FAILED)

    def _send_last_message(self, channel: _ClientChannel, flag: Flag) -> None:
        channel.send.Wait()
        pack_update(channel.outgoing.header, UpdateHeader(channel.client, -1, -1, flags=flag))
        self._comm.Send([channel.outgoing.header, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, channel.client))
