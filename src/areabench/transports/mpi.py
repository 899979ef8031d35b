"""The wire: buffers and requests of both ends. This module and `world` alone import mpi4py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from areabench.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    OrderHeader,
    Tag,
    Update,
    UpdateHeader,
    pack_order,
    pack_update,
    tag_of,
    unpack_order,
    unpack_update,
)
from areabench.placement import Placement
from areabench.problems.base import Vector
from areabench.transports.waiting import Backoff
from areabench.transports.world import World


class Buffer:
    """Room for a message: a header, and a vector behind it."""

    def __init__(self, dimension: int, dtype: np.dtype[Any]) -> None:
        size = HEADER_BYTES + dimension * dtype.itemsize
        self.whole = np.full(size, 0, np.uint8)  # filled, so that no page is first touched on the clock
        self.header = self.whole[:HEADER_BYTES].data
        self.vector: Vector = self.whole[HEADER_BYTES:].view(dtype)


def _completed(requests: Sequence[MPI.Request]) -> list[int]:
    """Which requests are complete: Open MPI moves messages on after it has looked, so an empty look is looked again."""
    return MPI.Request.Testsome(requests) or MPI.Request.Testsome(requests) or []


class MpiServerLink:
    """Rank 0's end: a persistent receive and a persistent send a client, each with a buffer of its own."""

    def __init__(self, world: World, placement: Placement, dimension: int, dtype: np.dtype[Any]) -> None:
        self._comm, clients = world.comm, range(placement.clients)
        self._ranks = [placement.rank(client) for client in clients]
        incoming = [Buffer(dimension, dtype) for _ in clients]
        self._updates = [buffer.header for buffer in incoming]
        self._payloads = [buffer.vector for buffer in incoming]
        self._receives = [
            self._comm.Recv_init([buffer.whole, MPI.BYTE], source=self._ranks[client], tag=tag_of(Tag.UPDATE, client))
            for client, buffer in enumerate(incoming)
        ]
        outgoing = [Buffer(dimension, dtype) for _ in clients]
        self._orders = [buffer.header for buffer in outgoing]
        self._models = [buffer.vector for buffer in outgoing]
        self._sends = [
            self._comm.Send_init([buffer.whole, MPI.BYTE], dest=self._ranks[client], tag=tag_of(Tag.ORDER, client))
            for client, buffer in enumerate(outgoing)
        ]
        self._stops: list[tuple[MPI.Request, bytearray]] = []  # under way, and what they send
        self._armed = [True] * placement.clients
        MPI.Prequest.Startall(self._receives)

    def arrivals(self) -> list[Update]:
        """All updates that are here now."""
        done = _completed(self._receives)
        for slot in done:
            self._armed[slot] = False
        return [Update(unpack_update(self._updates[slot]), self._payloads[slot]) for slot in done]

    def rearm(self, client: int) -> None:
        """Receive the client's next message into the same buffer."""
        self._receives[client].Start()
        self._armed[client] = True

    def order(self, order: Order) -> None:
        """Send header and model without waiting for the client."""
        send = self._sends[order.client]
        send.Wait()  # complete already: the client has answered
        pack_order(self._orders[order.client], order)
        np.copyto(self._models[order.client], order.model)
        send.Start()

    def stop_all(self) -> None:
        """Tell every client to stop, and be ready for the last message of each."""
        for client, armed in enumerate(self._armed):
            if not armed:
                self.rearm(client)
            stop = bytearray(HEADER_BYTES)
            pack_order(stop, OrderHeader(0.0, 0, 0, Flag.STOP))
            request = self._comm.Isend([stop, MPI.BYTE], dest=self._ranks[client], tag=tag_of(Tag.ORDER, client))
            self._stops.append((request, stop))

    def failure(self, client: int) -> str:
        """What a client that has failed says about it."""
        text: str = self._comm.recv(source=self._ranks[client], tag=tag_of(Tag.FAILURE, client))
        return text

    def close(self) -> None:
        """Complete all sends and give the requests back."""
        MPI.Request.Waitall([*(request for request, _ in self._stops), *self._sends])
        for request, armed in zip(self._receives, self._armed, strict=True):
            if armed:  # a client that has failed sends nothing more
                request.Cancel()
                request.Wait()
        for request in self._receives + self._sends:
            request.Free()


class _Line:
    """One client's part of a worker's link.

    Orders come into two buffers by turns: while the client works from one, the receive of the next is posted into the
    other, so that a stop is noticed.
    """

    def __init__(self, comm: MPI.Intracomm, client: int, dimension: int, dtype: np.dtype[Any]) -> None:
        self.client, self.stopped, self.failed = client, False, False
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
        if header.flags is Flag.STOP:
            self.stopped = True
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
        self._comm = world.comm
        self._lines = [_Line(world.comm, client, dimension, dtype) for client in clients]
        self._by_client = {line.client: line for line in self._lines}
        self._next_orders = [line.next_order for line in self._lines]
        self.stopped = False

    def orders(self, *, wait: bool = False) -> list[Order]:
        """All orders that are here now; where there is none, those that come first, if they are worth the wait."""
        done = MPI.Request.Waitsome(self._next_orders) or () if wait else _completed(self._next_orders)
        return [order for slot in done if (order := self._take(slot)) is not None]

    def _take(self, slot: int) -> Order | None:
        line = self._lines[slot]
        order = line.take()
        self._next_orders[slot] = line.next_order
        self.stopped = self.stopped or line.stopped
        return order

    def load(self, client: int, payload: Vector) -> None:
        """Keep what will be sent."""
        line = self._by_client[client]
        line.send.Wait()  # complete already: the server has answered
        np.copyto(line.outgoing.vector, payload)

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded."""
        line = self._by_client[header.client]
        pack_update(line.outgoing.header, header)
        line.send.Start()

    def fail(self, client: int, text: str) -> None:
        """Tell the server that a client has failed; it will say stop."""
        line = self._by_client[client]
        line.failed = True
        self._last_words(line, Flag.FAILED)
        self._comm.send(text, dest=0, tag=tag_of(Tag.FAILURE, client))

    def depart(self) -> None:
        """Wait until the server has said stop to every client, and say farewell for each."""
        backoff = Backoff(50e-6, 5e-3)
        while not all(line.stopped for line in self._lines):
            self.orders()
            backoff.pause(1.0)
        for line in self._lines:
            if not line.failed:
                self._last_words(line, Flag.FAREWELL)
            line.close()

    def _last_words(self, line: _Line, flag: Flag) -> None:
        line.send.Wait()
        pack_update(line.outgoing.header, UpdateHeader(line.client, -1, -1, flags=flag))
        self._comm.Send([line.outgoing.header, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, line.client))
