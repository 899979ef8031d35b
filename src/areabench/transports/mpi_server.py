"""The server's end of the wire: buffers and requests. Only this module, `mpi_worker` and `world` import mpi4py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from areabench.arrays import Vector
from areabench.engine.client import Placement
from areabench.engine.events import Reason
from areabench.engine.messages import (
    HEADER_BYTES,
    INTERRUPTS,
    Flag,
    Order,
    OrderHeader,
    Shapes,
    Tag,
    Update,
    message_refusal_reason,
    pack_order,
    tag_of,
    unpack_update,
)
from areabench.transports.world import World

_STOP_SHRUNK = Flag.STOP | Flag.SHRUNK


class MessageBuffer:
    """Memory of one message: a header, an array like `like` behind it, and another one like `attached`."""

    def __init__(self, like: Vector, attached: Vector | None = None) -> None:
        end = HEADER_BYTES + like.nbytes
        size = end + (0 if attached is None else attached.nbytes)
        self.whole = np.full(size, 0, np.uint8)  # filled, so that no page is first touched on the clock
        self.header = self.whole[:HEADER_BYTES].data
        self.vector: Vector = self.whole[HEADER_BYTES:end].view(like.dtype).reshape(like.shape)
        self.attached = None if attached is None else self.whole[end:].view(attached.dtype).reshape(attached.shape)


def completed(requests: Sequence[MPI.Request]) -> list[int]:
    """Which requests are complete. Open MPI moves messages on after it has tested them, so it is asked twice."""
    return MPI.Request.Testsome(requests) or MPI.Request.Testsome(requests) or []


class MpiServerLink:
    """Rank 0's end: one persistent receive and one persistent send per client, each with its own buffer."""

    def __init__(self, world: World, placement: Placement, shapes: Shapes) -> None:
        self._comm, clients = world.comm, range(placement.clients)
        self._ranks = [placement.rank(client) for client in clients]
        incoming = [MessageBuffer(shapes.payload) for _ in clients]
        self._updates = [buffer.header for buffer in incoming]
        self._payloads = [buffer.vector for buffer in incoming]
        self._receives = [
            self._comm.Recv_init([buffer.whole, MPI.BYTE], source=self._ranks[client], tag=tag_of(Tag.UPDATE, client))
            for client, buffer in enumerate(incoming)
        ]
        outgoing = [MessageBuffer(shapes.model, shapes.attached) for _ in clients]
        self._orders, self._shapes = outgoing, shapes
        self._sends = [
            self._comm.Send_init([buffer.whole, MPI.BYTE], dest=self._ranks[client], tag=tag_of(Tag.ORDER, client))
            for client, buffer in enumerate(outgoing)
        ]
        self.shrunk = False  # whether the stop told the workers that ranks were lost
        self._world, self._payload_bytes = world, shapes.payload.nbytes
        self._headers: list[tuple[MPI.Request, Any]] = []  # in flight: stops, questions, and orders after a cancel
        self._armed = [True] * placement.clients  # whether the receive is posted
        self._dead: set[int] = set()  # clients whose rank has died
        self._lost: list[int] = []  # of those, the ones that `lost` has not returned yet
        self._unreadable: list[tuple[int, Reason]] = []
        memory = MessageBuffer(shapes.model if shapes.memory is None else shapes.memory)
        self.recall = MpiRecall(self._comm, self._ranks, memory, self._send_header)
        MPI.Prequest.Startall(self._receives)

    def arrivals(self) -> list[Update]:
        """All updates that are here now; messages that cannot be read are reported by `unreadable`."""
        try:
            done = completed(self._receives)
        except MPI.Exception as error:
            done = self._completed_after(error)
        found = []
        for slot in done:
            self._armed[slot] = False
            if reason := message_refusal_reason(self._updates[slot], slot, self._payload_bytes):
                self._unreadable.append((slot, reason))
            else:
                found.append(Update(unpack_update(self._updates[slot]), self._payloads[slot]))
        return found

    def unreadable(self) -> list[tuple[int, Reason]]:
        """The clients whose messages could not be read since the last call, and why."""
        unreadable, self._unreadable = self._unreadable, []
        return unreadable

    def lost(self) -> list[int]:
        """The clients whose ranks have died since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def _completed_after(self, error: MPI.Exception) -> list[int]:
        """The complete receives after MPI has reported an error: a rank has died, or a message was too long.

        A receive that has failed is complete too, but nothing was written: its rank has died, even where MPI does not
        say so yet.
        """
        ended = [client for client, armed in enumerate(self._armed) if armed and self._is_complete(client)]
        silent = {self._ranks[client] for client in ended if not self._updates[client][0]}
        ranks = self._world.lost(silent)
        newly_dead = [client for client, rank in enumerate(self._ranks) if rank in ranks and client not in self._dead]
        for client in newly_dead:
            self._drop_client(client)
        done = [client for client in ended if self._armed[client] and self._updates[client][0]]
        if not newly_dead and not done:
            raise error
        return done

    def _drop_client(self, client: int) -> None:
        """Receive nothing more from this client, and send nothing more to it."""
        self._dead.add(client)
        self._lost.append(client)
        self._armed[client] = False
        request, self._receives[client] = self._receives[client], MPI.Prequest()  # Testsome skips this one
        with suppress(MPI.Exception):
            request.Free()

    def _is_complete(self, client: int) -> bool:
        """Whether the client's message is here; one that was too long is, and its header says so."""
        try:
            return self._receives[client].Test()
        except MPI.Exception:
            return True

    def rearm(self, client: int) -> None:
        """Receive the client's next message into the same buffer."""
        if client not in self._dead:
            self._updates[client][0] = 0  # until a message is here
            self._receives[client].Start()
            self._armed[client] = True

    def order(self, order: Order) -> None:
        """Send header and model without waiting for the client."""
        client = order.client
        if client in self._dead:
            return
        if order.flags in INTERRUPTS:
            self._send_header(client, OrderHeader(0.0, order.version, order.iteration, order.flags))
            return
        send = self._sends[client]
        if send.Test():  # nearly always: the client has answered
            _fill(self._orders[client], order)
            send.Start()
        else:  # the order before was cancelled, and is still in flight
            spare = MessageBuffer(self._shapes.model, self._shapes.attached)
            _fill(spare, order)
            self._send_whole(client, spare.whole)

    def stop_all(self) -> None:
        """Tell every client to stop, and receive the last message of each."""
        self.shrunk = bool(self._dead)
        flags = _STOP_SHRUNK if self.shrunk else Flag.STOP
        for client, armed in enumerate(self._armed):
            if not armed:
                self.rearm(client)
            self._send_header(client, OrderHeader(0.0, 0, 0, flags))

    def _send_header(self, client: int, header: OrderHeader) -> None:
        """Send a header without a model."""
        if client not in self._dead:
            packed = bytearray(HEADER_BYTES)
            pack_order(packed, header)
            self._send_whole(client, packed)

    def _send_whole(self, client: int, message: Any) -> None:
        """Send a message from a buffer of its own."""
        request = self._comm.Isend([message, MPI.BYTE], dest=self._ranks[client], tag=tag_of(Tag.ORDER, client))
        self._headers = [sent for sent in self._headers if not _is_over(sent[0])]
        self._headers.append((request, message))

    def failure(self, client: int) -> str:
        """The text that a client that has failed sends about it."""
        text: str = self._comm.recv(source=self._ranks[client], tag=tag_of(Tag.FAILURE, client))
        return text

    def close(self) -> None:
        """Complete all sends and free the requests."""
        if not self._dead:  # a send to a dead rank never completes
            MPI.Request.Waitall([*(request for request, _ in self._headers), *self._sends])
        for request, armed in zip(self._receives, self._armed, strict=True):
            if armed:  # a client that has failed sends nothing more
                request.Cancel()
                request.Wait()
        for client, request in enumerate(self._receives + self._sends):
            if client % len(self._receives) not in self._dead:
                request.Free()


def _fill(buffer: MessageBuffer, order: Order) -> None:
    """Write an order into a buffer."""
    pack_order(buffer.header, order)
    np.copyto(buffer.vector, order.model)
    if buffer.attached is not None and order.attached is not None:
        np.copyto(buffer.attached, order.attached)


def _is_over(request: MPI.Request) -> bool:
    """Whether a request is complete, or its rank is dead."""
    try:
        return request.Test()
    except MPI.Exception:
        return True


def send_memories(world: World, placement: Placement, memories: Mapping[int, Vector]) -> None:
    """On rank 0, before the start of a resumed run: send the clients their memories (see `receive_memories`)."""
    for client in sorted(memories):  # the order in which each rank receives them
        memory = np.ascontiguousarray(memories[client])
        world.wait(world.comm.Isend([memory, MPI.BYTE], placement.rank(client), tag_of(Tag.MEMORY, client)))


class MpiRecall:
    """The memories of clients at the beginning of given rounds: all are asked at once, and answer one after the other.

    One vector is in flight at a time, whatever the number of clients. A question has a number, so that answers to an
    earlier question that was given up are recognised.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        ranks: Sequence[int],
        buffer: MessageBuffer,
        send_header: Callable[[int, OrderHeader], None],
    ) -> None:
        self._comm, self._ranks, self._buffer, self._send_header = comm, ranks, buffer, send_header
        self._number = 0
        self._awaited: deque[tuple[int, int]] = deque()  # client, and number of the question
        self._receive: MPI.Request | None = None

    def ask(self, rounds: Mapping[int, int]) -> None:
        """Ask clients for their memories at the beginning of these rounds; the answers come in this order."""
        self._number += 1
        for client, number in rounds.items():
            self._send_header(client, OrderHeader(0.0, number, self._number, Flag.RECALL))
            self._awaited.append((client, self._number))

    def give_up(self, lost: Collection[int]) -> None:
        """These clients will not answer; the answers of the others to earlier questions are dropped."""
        if self._receive is not None and self._awaited[0][0] in lost:
            with suppress(MPI.Exception):
                self._receive.Cancel()
                self._receive.Free()
            self._receive = None
        self._awaited = deque(each for each in self._awaited if each[0] not in lost)
        self._number += 1

    @property
    def awaited(self) -> bool:
        """Whether answers are still to come."""
        return bool(self._awaited)

    def answer(self) -> tuple[int, Vector] | None:
        """The next client and its memory, if the answer is here; the vector is lent until the next call."""
        while self._awaited:
            client, number = self._awaited[0]
            if self._receive is None:
                tag = tag_of(Tag.MEMORY, client)
                self._receive = self._comm.Irecv([self._buffer.whole, MPI.BYTE], self._ranks[client], tag)
            if not self._arrived():
                return None
            self._receive = None
            self._awaited.popleft()
            declined = unpack_update(self._buffer.header).flags is Flag.FAILED  # by a client that has stopped
            if number == self._number and not declined:
                return client, self._buffer.vector
        return None

    def _arrived(self) -> bool:
        """Whether the answer is here; that its client is lost is found elsewhere."""
        assert self._receive is not None
        try:
            return self._receive.Test()
        except MPI.Exception:
            return False
