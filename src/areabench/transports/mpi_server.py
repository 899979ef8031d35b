"""The server's end of the wire: buffers and requests. Only this module, `mpi_worker` and `world` import mpi4py."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from areabench.arrays import Vector
from areabench.engine.client import Placement
from areabench.engine.events import Reason
from areabench.engine.messages import (
    FINAL_FLAGS,
    HEADER_BYTES,
    INTERRUPTS,
    Flag,
    Order,
    Shapes,
    Tag,
    Update,
    bare_order,
    clear_update,
    is_written,
    named_client,
    pack_order,
    read_update,
    unpack_update,
)
from areabench.errors import RunFailure
from areabench.transports.clock import Backoff
from areabench.transports.world import World

_MOST_AT_ONCE = 3  # messages of a rank that one poll takes, and orders to a rank in flight before new buffers are made
_LONGEST_REFUSAL = 255  # bytes
_LIVENESS_INTERVAL_S = 1.0  # between two looks whether the helper is alive
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


class PersistentMessage(MessageBuffer):
    """A message that travels again and again between the same two ranks: its request and its buffer."""

    request: MPI.Prequest


class PersistentReceive(PersistentMessage):
    """Such a message at the rank that receives it."""

    def __init__(
        self, comm: MPI.Intracomm, source: int, tag: Tag, like: Vector, attached: Vector | None = None
    ) -> None:
        super().__init__(like, attached)
        self.request = comm.Recv_init([self.whole, MPI.BYTE], source=source, tag=tag)

    def cancel(self) -> None:
        """Take a receive back that was started, for which no message is on its way."""
        self.request.Cancel()
        self.request.Wait()


class PersistentSend(PersistentMessage):
    """Such a message at the rank that sends it.

    One that was never started is not waited for: Open MPI 5 with fault tolerance looks at an error code that it has not
    set yet, and may report a failure.
    """

    def __init__(self, comm: MPI.Intracomm, dest: int, tag: Tag, like: Vector, attached: Vector | None = None) -> None:
        super().__init__(like, attached)
        self.started = False
        self.request = comm.Send_init([self.whole, MPI.BYTE], dest=dest, tag=tag)

    def start(self) -> None:
        """Send what is in the buffer."""
        self.request.Start()
        self.started = True


def completed(requests: Sequence[MPI.Request]) -> list[int]:
    """Which requests are complete. Open MPI moves messages on after it has tested them, so it is asked twice."""
    return MPI.Request.Testsome(requests) or MPI.Request.Testsome(requests) or []


class _Channel:
    """Rank 0's line to one worker rank, for all clients that the rank hosts.

    Receives are posted ahead and complete in turn; one more than a poll takes, so that one is posted while the messages
    of a poll are lent. Sends are started in turn too, each from its own buffer.
    """

    def __init__(self, comm: MPI.Intracomm, rank: int, clients: range, shapes: Shapes) -> None:
        self.rank = rank
        self.clients = clients
        self.alive = True
        self._failed: set[int] = set()  # clients
        at_once = min(len(clients), _MOST_AT_ONCE)
        self.posted = deque(PersistentReceive(comm, rank, Tag.UPDATE, shapes.payload) for _ in range(at_once + 1))
        self.sends = deque(PersistentSend(comm, rank, Tag.ORDER, shapes.model, shapes.attached) for _ in range(at_once))

    def client_of(self, header: memoryview) -> int | None:
        """Whose message it is that cannot be read: the client that it names, or the only one; None where that fails."""
        client = named_client(header)
        if client in self.clients:
            return client
        return self.clients[0] if len(self.clients) == 1 else None

    def last_messages(self, message: Update) -> list[Update]:
        """A failure, or in place of the rank's last message one of each client that has not failed."""
        header, payload = message
        if header.flags == Flag.FAILED:
            self._failed.add(header.client)
            return [message]
        left = (client for client in self.clients if client not in self._failed)
        return [Update(header._replace(client=client), payload) for client in left]

    def close(self) -> None:
        """Free the requests; no message is on its way."""
        for receive in self.posted:
            receive.cancel()
        for each in (*self.posted, *self.sends):
            each.request.Free()


class MpiServerLink:
    """Rank 0's end: a poll looks at one receive of each worker rank, however many clients the ranks host."""

    def __init__(self, world: World, placement: Placement, shapes: Shapes, helper: MpiHelperLink | None = None) -> None:
        self._comm = world.comm
        self._world = world
        self._shapes = shapes
        self._helper = helper
        self._start = shapes.model
        self._payload_bytes = shapes.payload.nbytes
        self._channels = [
            _Channel(world.comm, rank, placement.hosted(rank), shapes) for rank in range(1, placement.workers + 1)
        ]
        self._ranks = [placement.rank(client) for client in range(placement.clients)]
        self._heads = [channel.posted[0].request for channel in self._channels]  # what completes next, by channel
        self._lent: list[tuple[_Channel, PersistentReceive]] = []  # whose messages the last poll has returned
        self.shrunk = False  # whether the stop told the workers that ranks were lost
        self._in_flight: deque[tuple[MPI.Request, Any]] = deque()  # sent from buffers of their own
        self._lost: list[int] = []  # clients whose ranks have died, and that `lost` has not returned yet
        self._unreadable: list[tuple[int, Reason]] = []
        self._nameless: _Channel | None = None  # has sent a message that belongs to no client
        memory = MessageBuffer(shapes.model if shapes.memory is None else shapes.memory)
        self.recall = MpiRecall(self._comm, self._ranks, memory, self._send_header)
        for channel in self._channels:
            for receive in channel.posted:
                _post(receive)

    def arrivals(self) -> list[Update]:
        """The updates that are here now, each rank's in its order; they are lent until the next call.

        One message of every rank is taken before a second one of any, and few of each rank. Messages that cannot be
        read are reported by `unreadable`.
        """
        for channel, receive in self._lent:
            _post(receive)
            channel.posted.append(receive)
        self._lent.clear()
        found: list[Update] = []
        here: Sequence[int]
        try:
            here = completed(self._heads)
        except MPI.Exception as error:
            here = self._completed_after(error, range(len(self._heads)))
        while here:
            for slot in here:
                self._take(slot, found)
            here = self._next_of(here)
        if self._lost:
            found = [update for update in found if self._channel(update.header.client).alive]
        return found

    def _take(self, slot: int, found: list[Update]) -> None:
        """Take the message that a channel's first receive has brought."""
        channel = self._channels[slot]
        receive = channel.posted.popleft()
        self._lent.append((channel, receive))
        self._heads[slot] = channel.posted[0].request
        header = read_update(receive.header, channel.clients, self._payload_bytes)
        if isinstance(header, Reason):
            client = channel.client_of(receive.header)
            if client is None:
                self._nameless = channel
            else:
                self._unreadable.append((client, header))
        elif header.flags < FINAL_FLAGS:
            found.append(Update(header, receive.vector))
        else:
            found += channel.last_messages(Update(header, receive.vector))

    def _next_of(self, slots: Sequence[int]) -> Sequence[int]:
        """Those of these channels of which the next message is here too; one receive of each stays posted."""
        several = [slot for slot in slots if len(self._channels[slot].posted) > 1]
        try:
            return [slot for slot in several if self._heads[slot].Test()]
        except MPI.Exception as error:
            return self._completed_after(error, several)

    def unreadable(self) -> list[tuple[int, Reason]]:
        """The clients whose messages could not be read since the last call, and why.

        A RunFailure where it is not known whose message it was: its client would wait for an order in vain.
        """
        if self._nameless is not None:
            rank = self._nameless.rank
            clients = len(self._nameless.clients)
            raise RunFailure(
                f"rank {rank} sent a message that names none of its {clients:,} clients; start all ranks from one "
                "installation, or one rank per client, which can do without such a message"
            )
        unreadable = self._unreadable
        self._unreadable = []
        return unreadable

    def lost(self) -> list[int]:
        """The clients whose ranks have died since the last call."""
        lost = self._lost
        self._lost = []
        return lost

    def _completed_after(self, error: MPI.Exception, slots: Sequence[int]) -> list[int]:
        """The channels with a message after MPI has reported an error: a rank has died, or a message was too long.

        A receive that has failed is complete too, but nothing was written: its rank has died, even where MPI does not
        say so yet.
        """
        channels = self._channels
        ended = [slot for slot in slots if channels[slot].alive and self._is_complete(slot)]
        silent = {channels[slot].rank for slot in ended if not is_written(channels[slot].posted[0].header)}
        ranks = self._world.lost(silent)
        newly_dead = [slot for slot, channel in enumerate(channels) if channel.alive and channel.rank in ranks]
        for slot in newly_dead:
            self._drop(slot)
        done = [slot for slot in ended if channels[slot].alive and channels[slot].rank not in silent]
        if not newly_dead and not done:
            raise error
        return done

    def _drop(self, slot: int) -> None:
        """Receive nothing more from this rank, and send nothing more to it."""
        channel = self._channels[slot]
        channel.alive = False
        self._lost += channel.clients
        self._heads[slot] = MPI.Prequest()  # Testsome skips this one
        lent = [receive for each, receive in self._lent if each is channel]
        for receive in (*channel.posted, *lent):
            with suppress(MPI.Exception):
                receive.request.Free()
        self._lent = [(each, receive) for each, receive in self._lent if each is not channel]

    def _is_complete(self, slot: int) -> bool:
        """Whether the channel's next message is here; one that was too long is, and its header says so."""
        try:
            return self._heads[slot].Test()
        except MPI.Exception:
            return True

    def _channel(self, client: int) -> _Channel:
        return self._channels[self._ranks[client] - 1]

    def order(self, order: Order) -> None:
        """Send an order without waiting for its client; without the model where every rank knows it."""
        if order.flags in INTERRUPTS or (order.model is self._start and order.attached is None):
            self._send_header(order)
            return
        channel = self._channel(order.client)
        if not channel.alive:
            return
        # The buffer that was started longest ago is the first to be free.
        send = channel.sends[0]
        if not send.started or send.request.Test():
            channel.sends.rotate(-1)
            _fill(send, order)
            send.start()
        else:  # the rank is slow to receive
            spare = MessageBuffer(self._shapes.model, self._shapes.attached)
            _fill(spare, order)
            self._send_whole(channel.rank, spare.whole)

    def stop_all(self) -> None:
        """Tell every rank to stop."""
        helper_lost = self._helper is not None and not self._helper.alive
        self.shrunk = helper_lost or not all(channel.alive for channel in self._channels)
        flags = _STOP_SHRUNK if self.shrunk else Flag.STOP
        for channel in self._channels:
            self._send_header(bare_order(channel.clients[0], flags))

    def _send_header(self, order: Order) -> None:
        """Send the header of an order."""
        channel = self._channel(order.client)
        if channel.alive:
            packed = bytearray(HEADER_BYTES)
            pack_order(packed, order)
            self._send_whole(channel.rank, packed)

    def _send_whole(self, rank: int, message: Any) -> None:
        """Send a message from a buffer of its own."""
        request = self._comm.Isend([message, MPI.BYTE], dest=rank, tag=Tag.ORDER)
        sent = self._in_flight
        sent.append((request, message))
        while sent and _is_over(sent[0][0]):
            sent.popleft()

    def failure(self, client: int) -> str:
        """The text that a client that has failed sends about it."""
        text: str = self._comm.recv(source=self._ranks[client], tag=Tag.FAILURE)
        return text

    def close(self) -> None:
        """Complete all sends and free the requests."""
        # Without a wait, a message that is still on its way would be lost when its buffer goes.
        alive = [channel for channel in self._channels if channel.alive]
        if len(alive) == len(self._channels):  # a send to a dead rank never completes
            sends = [send.request for channel in alive for send in channel.sends if send.started]
            MPI.Request.Waitall([*(request for request, _ in self._in_flight), *sends])
        for _, receive in self._lent:
            receive.request.Free()
        for channel in alive:
            channel.close()


def _post(receive: PersistentReceive) -> None:
    """Receive an update."""
    clear_update(receive.header)
    receive.request.Start()


def _fill(buffer: MessageBuffer, order: Order) -> None:
    """Write an order into a buffer."""
    pack_order(buffer.header, order, buffer.whole.nbytes - HEADER_BYTES)
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
        world.wait(world.comm.Isend([memory, MPI.BYTE], placement.rank(client), Tag.MEMORY))


class MaskBuffer:
    """Memory of the helper's answer: a sum of masks like `like`, or the text of a refusal."""

    def __init__(self, like: Vector) -> None:
        self.whole = np.zeros(HEADER_BYTES + max(like.nbytes, _LONGEST_REFUSAL), np.uint8)
        self._rest = self.whole[HEADER_BYTES:]
        self.total: Vector = self._rest[: like.nbytes].view(like.dtype).reshape(like.shape)

    @property
    def refusal(self) -> str:
        """Why there is no sum; empty where there is one."""
        return bytes(self._rest[: self.whole[0]]).decode(errors="replace")

    @refusal.setter
    def refusal(self, text: str) -> None:
        written = text.encode()[:_LONGEST_REFUSAL]
        self.whole[0] = len(written)
        self._rest[: len(written)] = np.frombuffer(written, np.uint8)


class MpiHelperLink:
    """The server's line to the helper: the names of updates go out, the sum of their masks comes back."""

    def __init__(self, world: World, rank: int, like: Vector) -> None:
        self._world = world
        self._rank = rank
        self._buffer = MaskBuffer(like)
        self.alive = True

    def total(self, names: Sequence[tuple[int, int]]) -> Vector:
        """The sum of the masks of these updates, lent until the next call; a RunFailure where there is none."""
        comm = self._world.comm
        question = np.array(names, np.int64)
        try:
            sent = comm.Isend([question, MPI.INT64_T], self._rank, Tag.MASKS)
            self._wait(comm.Irecv([self._buffer.whole, MPI.BYTE], self._rank, Tag.MASKS))
            sent.Wait()
        except MPI.Exception:
            self._lose()
        if refusal := self._buffer.refusal:
            raise RunFailure(f"the helper gives no sum of {len(names)} masks: {refusal}")
        return self._buffer.total

    def _wait(self, request: MPI.Request) -> None:
        """Wait for the answer, but not for a helper that has died."""
        backoff = Backoff(10e-6, 200e-6)
        looked_s = time.monotonic()
        while not request.Test():
            backoff.pause(1.0)
            if time.monotonic() - looked_s > _LIVENESS_INTERVAL_S:
                looked_s = time.monotonic()
                if self._rank in self._world.liveness.gone():
                    self._lose()

    def _lose(self) -> NoReturn:
        self.alive = False
        raise RunFailure(
            f"the helper's rank {self._rank} is gone, and masked updates are of no use without it; resume the run from "
            "its last checkpoint, or run it again"
        )

    def stop(self, *, shrunk: bool) -> None:
        """Tell the helper that the run is over, and whether ranks were lost."""
        if self.alive:
            with suppress(MPI.Exception):
                self._world.comm.Send([np.array([shrunk], np.int64), MPI.INT64_T], self._rank, Tag.MASKS)


class MpiRecall:
    """The memories of clients at the beginning of given rounds: all are asked at once, and answer one after the other.

    One vector is received at a time, whatever the number of clients, and from the ranks in turn: one that is silent
    holds up no other. A question has a number, so that answers to an earlier question that was given up are recognised.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        ranks: Sequence[int],
        buffer: MessageBuffer,
        send_header: Callable[[Order], None],
    ) -> None:
        self._comm = comm
        self._ranks = ranks
        self._buffer = buffer
        self._send_header = send_header
        self._number = 0
        self._in_order = False
        self._awaited: deque[tuple[int, int]] = deque()  # client, and number of the question; whose turn it is first
        self._receive: MPI.Request | None = None  # from the rank of the first of them

    def ask(self, rounds: Mapping[int, int], *, in_order: bool = False) -> None:
        """Ask clients for their memories at the beginning of these rounds."""
        self._number = self._number + 1
        self._in_order = in_order
        for client, number in rounds.items():
            self._send_header(bare_order(client, Flag.RECALL, number, self._number))
            self._awaited.append((client, self._number))

    def give_up(self, lost: Collection[int]) -> None:
        """These clients will not answer; the answers of the others to earlier questions are dropped."""
        if self._receive is not None and self._awaited[0][0] in lost:
            with suppress(MPI.Exception):
                self._receive.Cancel()
                self._receive.Free()
            self._receive = None
        self._awaited = deque(each for each in self._awaited if each[0] not in lost)
        self._number = self._number + 1
        self._in_order = False

    @property
    def awaited(self) -> bool:
        """Whether answers are still to come."""
        return bool(self._awaited)

    @property
    def owing(self) -> set[int]:
        """The clients of which answers are still to come, be it to earlier questions."""
        return {client for client, _ in self._awaited}

    def answer(self) -> tuple[int, Vector] | None:
        """The next client and its memory, if the answer is here; the vector is lent until the next call."""
        while self._awaited:
            if self._receive is None and not self._begin_receive():
                if not self._in_order:
                    self._awaited.rotate(-1)
                return None
            if not self._arrived():
                return None
            self._receive = None
            header = unpack_update(self._buffer.header)
            self._awaited.remove((header.client, header.round))
            declined = header.flags == Flag.FAILED  # by a client that has stopped
            if header.round == self._number and not declined:
                return header.client, self._buffer.vector
        return None

    def _begin_receive(self) -> bool:
        """Receive from the rank whose turn it is, if it has sent something."""
        rank = self._ranks[self._awaited[0][0]]
        with suppress(MPI.Exception):  # that it is lost is found elsewhere
            if (message := self._comm.Improbe(rank, Tag.MEMORY)) is not None:
                self._receive = message.Irecv([self._buffer.whole, MPI.BYTE])
        return self._receive is not None

    def _arrived(self) -> bool:
        """Whether the answer is here; that its client is lost is found elsewhere."""
        assert self._receive is not None
        try:
            return self._receive.Test()
        except MPI.Exception:
            return False
