"""The wire: the one module that imports mpi4py. Rank 0 is the server, the other ranks host the clients."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from areabench.errors import RunFailure, UserError
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


class Unshareable(RunFailure):
    """A failure that leaves ranks behind which no longer listen: only an abort ends them."""


class World:
    """All ranks of this launch, or the first of them, with messages of their own."""

    def __init__(self, comm: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        self.comm = comm
        self.rank, self.size = self.comm.rank, self.comm.size
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_on_node = node.rank == 0
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


def _completed(requests: list[MPI.Request] | list[MPI.Prequest]) -> list[int]:
    """Which requests are complete: Open MPI moves messages on after it has looked, so an empty look is looked again."""
    return MPI.Request.Testsome(requests) or MPI.Request.Testsome(requests) or []


class MpiServerLink:
    """Rank 0's end: one persistent receive a client, replies straight from the model versions."""

    def __init__(self, world: World, placement: Placement, dimension: int, dtype: np.dtype[Any]) -> None:
        clients = placement.clients
        self._comm = world.comm
        self._ranks = [placement.rank(client) for client in range(clients)]
        size = HEADER_BYTES + dimension * dtype.itemsize
        self._buffers = [np.zeros(size, np.uint8) for _ in range(clients)]
        self._views = [buffer.data for buffer in self._buffers]
        self._payloads = [buffer[HEADER_BYTES:].view(dtype) for buffer in self._buffers]
        self._receives: list[MPI.Prequest] = [
            self._comm.Recv_init([buffer, MPI.BYTE], source=self._ranks[client], tag=tag_of(Tag.UPDATE, client))
            for client, buffer in enumerate(self._buffers)
        ]
        self._headers = [bytearray(HEADER_BYTES) for _ in range(clients)]
        self._sends: dict[int, list[MPI.Request]] = {}  # under way, by client
        self._models: dict[int, Vector] = {}  # what they send: held until they have left
        self._armed = [True] * clients
        MPI.Prequest.Startall(self._receives)

    def arrivals(self) -> list[Update]:
        """All updates that are here now."""
        done = _completed(self._receives)
        for slot in done:
            self._armed[slot] = False
        return [Update(unpack_update(self._views[slot]), self._payloads[slot]) for slot in done]

    def rearm(self, client: int) -> None:
        """Receive the client's next message into the same buffer."""
        self._receives[client].Start()
        self._armed[client] = True

    def order(self, order: Order) -> None:
        """Send header and model without waiting for the client."""
        header = OrderHeader(order.step_size, order.version, order.iteration, order.flags)
        request = self._send_header(order.client, header)
        model = self._comm.Isend(order.model, dest=self._ranks[order.client], tag=tag_of(Tag.MODEL, order.client))
        self._sends[order.client] = [request, model]
        self._models[order.client] = order.model

    def release(self) -> bool:
        """Let go of models that have left; returns whether some had."""
        done = [client for client, requests in self._sends.items() if MPI.Request.Testall(requests)]
        for client in done:
            del self._sends[client]
            self._models.pop(client, None)
        return bool(done)

    def stop_all(self) -> None:
        """Tell every client to stop, and be ready for the last message of each."""
        for client, armed in enumerate(self._armed):
            if not armed:
                self.rearm(client)
            request = self._send_header(client, OrderHeader(0.0, 0, 0, Flag.STOP), bytearray(HEADER_BYTES))
            self._sends.setdefault(client, []).append(request)

    def failure(self, client: int) -> str:
        """What a client that has failed says about it."""
        text: str = self._comm.recv(source=self._ranks[client], tag=tag_of(Tag.FAILURE, client))
        return text

    def close(self) -> None:
        """Complete all sends and give the receives back."""
        for requests in self._sends.values():
            MPI.Request.Waitall(requests)
        for request, armed in zip(self._receives, self._armed, strict=True):
            if armed:  # a client that has failed sends nothing more
                request.Cancel()
                request.Wait()
            request.Free()

    def _send_header(self, client: int, header: OrderHeader, buffer: bytearray | None = None) -> MPI.Request:
        """Send an order header from the client's own buffer, which its last order has left, or from a new one."""
        if buffer is None:
            buffer = self._headers[client]
            MPI.Request.Waitall(self._sends.pop(client, []))  # complete already: the client has answered
        pack_order(buffer, header)
        return self._comm.Isend([buffer, MPI.BYTE], dest=self._ranks[client], tag=tag_of(Tag.ORDER, client))


class _Line:
    """One client's part of a worker's link: buffers, and receives that are posted ahead so that a stop is noticed."""

    def __init__(self, comm: MPI.Intracomm, client: int, dimension: int, dtype: np.dtype[Any]) -> None:
        self.client = client
        self.header = bytearray(HEADER_BYTES)
        self.model = np.zeros(dimension, dtype)
        self.outgoing = np.zeros(HEADER_BYTES + dimension * dtype.itemsize, np.uint8)
        self.payload = self.outgoing[HEADER_BYTES:].view(dtype)
        self.next_order = comm.Recv_init([self.header, MPI.BYTE], source=0, tag=tag_of(Tag.ORDER, client))
        self.next_model = comm.Recv_init(self.model, source=0, tag=tag_of(Tag.MODEL, client))
        self.update = comm.Send_init([self.outgoing, MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, client))
        self.expecting = True  # a model: its receive is posted
        self.stopped = self.failed = False
        MPI.Prequest.Startall([self.next_order, self.next_model])

    def note(self) -> OrderHeader | None:
        """An order header is here: to work, or None for a stop."""
        header = unpack_order(self.header)
        self.stopped = Flag.STOP in header.flags
        if self.stopped:
            return None
        self.next_order.Start()
        return header

    def close(self) -> None:
        """Give the requests back; one for a model that will not come is cancelled first."""
        if self.expecting:
            self.next_model.Cancel()
            self.next_model.Wait()
        for request in (self.next_model, self.next_order, self.update):
            request.Free()


class MpiWorkerLink:
    """A worker rank's end, for all clients that it hosts."""

    def __init__(self, world: World, clients: Sequence[int], dimension: int, dtype: np.dtype[Any]) -> None:
        self._comm = world.comm
        self._lines = [_Line(world.comm, client, dimension, dtype) for client in clients]
        self._by_client = {line.client: line for line in self._lines}
        self._next_orders: list[MPI.Request] = [line.next_order for line in self._lines]
        self._announced: dict[int, OrderHeader] = {}  # orders whose model is still under way, by line
        self.stopped = False

    def orders(self) -> list[Order]:
        """All orders that are here now with their models."""
        for slot in _completed(self._next_orders):
            if header := self._lines[slot].note():
                self._announced[slot] = header
            else:
                self.stopped = True
        return [self._take(slot) for slot in list(self._announced) if self._lines[slot].next_model.Test()]

    def _take(self, slot: int) -> Order:
        header, line = self._announced.pop(slot), self._lines[slot]
        line.expecting = False
        return Order(line.client, line.model, header.step_size, header.version, header.iteration, header.flags)

    def load(self, client: int, payload: Vector) -> None:
        """Keep what will be sent; the model's buffer is free from here on."""
        line = self._by_client[client]
        line.update.Wait()  # complete already: the server has answered
        np.copyto(line.payload, payload)
        line.next_model.Start()
        line.expecting = True

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded."""
        line = self._by_client[header.client]
        pack_update(line.outgoing.data, header)
        line.update.Start()

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
        line.update.Wait()
        pack_update(line.outgoing.data, UpdateHeader(line.client, -1, -1, flags=flag))
        self._comm.Send([line.outgoing[:HEADER_BYTES], MPI.BYTE], dest=0, tag=tag_of(Tag.UPDATE, line.client))
