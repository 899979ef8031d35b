"""A worker rank's end of the wire: the orders of all clients that it hosts, and what each of them sends.

`keep_masks` is the helper's end, in a run with secure aggregation.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    Shapes,
    Tag,
    UpdateHeader,
    pack_update,
    unpack_order,
)
from areabench.errors import ServerGone
from areabench.privacy.masks import MaskKeeper, MaskRefusal
from areabench.transports.clock import Backoff
from areabench.transports.mpi_server import MaskBuffer, MessageBuffer, PersistentReceive, PersistentSend
from areabench.transports.world import World

_LONGEST_WAIT_S = 0.5  # inside MPI, without a look at anything else
_MOST_POSTED = 4  # receives, however many clients there are
_MOST_AT_ONCE = 32  # orders, so that what is due meanwhile is not kept waiting


def receive_memories(world: World, clients: Sequence[int], like: Vector | None) -> dict[int, Vector]:
    """On a worker's rank, before the start of a resumed run: the memories of these clients, each like `like`."""
    memories: dict[int, Vector] = {}
    for client in clients:
        assert like is not None
        memories[client] = np.empty_like(like)
        world.wait(world.comm.Irecv([memories[client], MPI.BYTE], 0, Tag.MEMORY))
    return memories


def keep_masks(world: World, keeper: MaskKeeper, like: Vector) -> bool:
    """On the helper's rank: give sums of masks until the server says that the run is over; whether ranks were lost."""
    comm = world.comm
    answer = MaskBuffer(like)
    try:
        while True:
            asked = _next_question(world)
            if len(asked) == 1:
                return bool(asked[0])
            try:
                np.copyto(
                    answer.total, keeper.total([(client, number) for client, number in asked.reshape(-1, 2).tolist()])
                )
                answer.refusal = ""
            except MaskRefusal as refusal:
                answer.refusal = str(refusal)
            comm.Send([answer.whole, MPI.BYTE], 0, Tag.MASKS)
    except MPI.Exception as error:  # all messages are the server's
        raise ServerGone(f"the server's rank is gone: {error}") from error


def _next_question(world: World) -> NDArray[np.int64]:
    """What the server sends the helper next: client and round of each update, or one number at the end."""
    backoff = Backoff(20e-6, 1e-3)
    status = MPI.Status()
    while (message := world.comm.Improbe(0, Tag.MASKS, status)) is None:
        if world.liveness.server_gone():
            raise ServerGone("the server's rank or the launcher is gone")
        backoff.pause(1.0)
    asked = np.empty(status.Get_count(MPI.INT64_T), np.int64)
    message.Recv([asked, MPI.INT64_T])
    return asked


class MpiWorkerLink:
    """A worker rank's end, for all clients that it hosts.

    Orders to all clients are received in turn, into buffers of which a few are posted. One with a model is lent to
    the client that works from it, and another one is posted in its place.
    """

    def __init__(self, world: World, clients: Sequence[int], shapes: Shapes) -> None:
        self._comm = world.comm
        self._yielded = world.cores.yielded
        self._shapes = shapes
        self.clients = clients
        self._start = shapes.model
        self._payload_bytes = shapes.payload.nbytes
        self._most = min(len(clients), _MOST_AT_ONCE)
        # A client's payload waits in its buffer until its delay is over.
        self._sends = {client: PersistentSend(world.comm, 0, Tag.UPDATE, shapes.payload) for client in clients}
        self._posted: deque[PersistentReceive] = deque()
        self._lent: dict[int, PersistentReceive] = {}  # by client
        self._free: list[PersistentReceive] = []
        self._failed: set[int] = set()
        self._unanswered: deque[Order] = deque()  # questions
        self._answers: list[tuple[MPI.Request, MessageBuffer]] = []  # in flight
        self.stopped = self.shrunk = False
        for _ in range(min(len(clients), _MOST_POSTED)):
            self._post()

    def orders(self, *, wait: bool = False) -> list[Order]:
        """Orders that are here now, in their order; with `wait`, the first that come."""
        found: list[Order] = []
        try:
            here = self._wait_for_next() if wait else self._is_here() or self._is_here()  # see `completed`
            while here:
                self._take(found)
                here = not self.stopped and len(found) < self._most and self._is_here()
        except MPI.Exception as error:  # all messages are the server's
            raise ServerGone(f"the server's rank is gone: {error}") from error
        return found

    def _is_here(self) -> bool:
        return self._posted[0].request.Test()

    def _wait_for_next(self) -> bool:
        """Wait for an order. MPICH would wait forever for a server that has died, so there it is polled."""
        if self._yielded:
            self._posted[0].request.Wait()
            return True
        end_s = time.perf_counter() + _LONGEST_WAIT_S
        while not (here := self._is_here()) and time.perf_counter() < end_s:
            pass
        return here

    def _take(self, found: list[Order]) -> None:
        """Take the message that is here, and post a receive for another one."""
        receive = self._posted.popleft()
        self._free.append(receive)
        order = unpack_order(receive.header, receive.vector, receive.attached, self._start)
        if order.model is receive.vector:
            self._free.pop()
            before = self._lent.get(order.client)
            self._lent[order.client] = receive
            if before is not None:  # of an order that was cancelled
                self._free.append(before)
        elif Flag.STOP in order.flags:
            self.stopped = True
            self.shrunk = Flag.SHRUNK in order.flags
            return
        elif order.flags is Flag.RECALL:
            self._unanswered.append(order)
        self._post()
        found.append(order)

    def _post(self) -> None:
        """Post one more receive."""
        if self._free:
            receive = self._free.pop()
        else:
            receive = PersistentReceive(self._comm, 0, Tag.ORDER, self._shapes.model, self._shapes.attached)
        receive.request.Start()
        self._posted.append(receive)

    def answer(self, question: Order, memory: Vector) -> None:
        """Send the memory of a client that was asked for it; questions are answered in their order."""
        buffer = MessageBuffer(memory)
        np.copyto(buffer.vector, memory)
        self._answer(question, buffer, Flag.NONE)

    def _answer(self, question: Order, buffer: MessageBuffer, flags: Flag) -> None:
        assert question is self._unanswered.popleft()
        header = UpdateHeader(question.client, question.iteration, question.version, flags=flags)
        pack_update(buffer.header, header, buffer.vector.nbytes)
        self._answers = [sent for sent in self._answers if not sent[0].Test()]
        self._answers.append((self._comm.Isend([buffer.whole, MPI.BYTE], dest=0, tag=Tag.MEMORY), buffer))

    def load(self, client: int, payload: Vector) -> None:
        """Keep the result of a client's round until it is sent."""
        send = self._sends[client]
        if send.started:
            send.request.Wait()  # complete already: the server has answered
        np.copyto(send.vector, payload)
        if (receive := self._lent.pop(client, None)) is not None:
            self._free.append(receive)

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded for the header's client; returns at once."""
        send = self._sends[header.client]
        pack_update(send.header, header, self._payload_bytes)
        send.start()

    def fail(self, client: int, text: str) -> None:
        """Report to the server that a client has failed; the server will send a stop."""
        self._failed.add(client)
        self._send_last_message(client, Flag.FAILED)
        self._comm.send(text, dest=0, tag=Tag.FAILURE)

    def leave(self, server_gone: Callable[[], bool] = lambda: False) -> None:
        """Wait until the server has sent the stop, and send the rank's last message."""
        backoff = Backoff(50e-6, 5e-3)
        while not self.stopped:
            self.orders()
            self._decline_questions()
            if server_gone():
                raise ServerGone("the server's rank or the launcher is gone")
            backoff.pause(1.0)
        self._decline_questions()
        MPI.Request.Waitall([send.request for send in self._sends.values() if send.started])
        if len(self._failed) < len(self.clients):
            self._send_last_message(self.clients[0], Flag.LEAVING)
        self.close()
        MPI.Request.Waitall([request for request, _ in self._answers])  # the server receives them before it leaves

    def close(self) -> None:
        """Free the requests; no order is on its way."""
        for receive in self._posted:
            receive.cancel()
        for each in (*self._posted, *self._lent.values(), *self._free, *self._sends.values()):
            each.request.Free()

    def _decline_questions(self) -> None:
        """Answer questions that came too late without a memory: the server waits for every answer."""
        while self._unanswered:
            self._answer(self._unanswered[0], MessageBuffer(np.empty(0, np.uint8)), Flag.FAILED)

    def _send_last_message(self, client: int, flag: Flag) -> None:
        header = bytearray(HEADER_BYTES)
        pack_update(header, UpdateHeader(client, -1, -1, flags=flag))
        self._comm.Send([header, MPI.BYTE], dest=0, tag=Tag.UPDATE)
