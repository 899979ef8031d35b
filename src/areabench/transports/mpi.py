"""The wire: the one module that imports mpi4py. Rank 0 is the server, rank i + 1 is client i."""

from __future__ import annotations

import traceback
from collections.abc import Callable
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
    unpack_order,
    unpack_update,
)
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
    """All ranks of this launch."""

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self._node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_on_node = self._node.rank == 0

    @property
    def library(self) -> str:
        """The MPI library, in one line."""
        return MPI.Get_library_version().splitlines()[0].strip("\0 ")

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


class MpiServerLink:
    """Rank 0's end: one persistent receive a client, replies straight from the model versions."""

    def __init__(self, world: World, clients: int, dimension: int, dtype: np.dtype[Any]) -> None:
        self._comm = world.comm
        size = HEADER_BYTES + dimension * dtype.itemsize
        self._buffers = [np.zeros(size, np.uint8) for _ in range(clients)]
        self._views = [buffer.data for buffer in self._buffers]
        self._payloads = [buffer[HEADER_BYTES:].view(dtype) for buffer in self._buffers]
        self._receives: list[MPI.Prequest] = [
            self._comm.Recv_init([buffer, MPI.BYTE], source=client + 1, tag=Tag.UPDATE)
            for client, buffer in enumerate(self._buffers)
        ]
        self._headers = [bytearray(HEADER_BYTES) for _ in range(clients)]
        self._sends: dict[int, list[MPI.Request]] = {}  # under way, by client
        self._models: dict[int, Vector] = {}  # what they send: held until they have left
        self._armed = [True] * clients
        MPI.Prequest.Startall(self._receives)

    def arrivals(self) -> list[Update]:
        """All updates that are here now."""
        done = MPI.Request.Testsome(self._receives) or ()
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
        model = self._comm.Isend(order.model, dest=order.client + 1, tag=Tag.MODEL)
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
        text: str = self._comm.recv(source=client + 1, tag=Tag.FAILURE)
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
        return self._comm.Isend([buffer, MPI.BYTE], dest=client + 1, tag=Tag.ORDER)


class MpiClientLink:
    """A client rank's end: the next order's receives are posted ahead, so that a stop is always noticed."""

    def __init__(self, world: World, dimension: int, dtype: np.dtype[Any]) -> None:
        self._comm = world.comm
        self._header = bytearray(HEADER_BYTES)
        self._model = np.zeros(dimension, dtype)
        self._outgoing = np.zeros(HEADER_BYTES + dimension * dtype.itemsize, np.uint8)
        self._payload = self._outgoing[HEADER_BYTES:].view(dtype)
        self._order_request = self._comm.Recv_init([self._header, MPI.BYTE], source=0, tag=Tag.ORDER)
        self._model_request = self._comm.Recv_init(self._model, source=0, tag=Tag.MODEL)
        self._send_request: MPI.Request = MPI.REQUEST_NULL
        self._order: OrderHeader | None = None  # an order whose model is still under way
        self._stopped = False
        self._expecting = True  # a model: its receive is posted
        self._order_request.Start()
        self._model_request.Start()

    @property
    def model(self) -> Vector:
        """The model of the last order."""
        return self._model

    def poll(self) -> OrderHeader | None:
        """The next order if it is here with its model."""
        if self._order is None and not self._take_header():
            return None
        if not self._model_request.Test():
            return None
        self._expecting = False
        order, self._order = self._order, None
        return order

    def stopped(self) -> bool:
        """Whether the server has said stop."""
        if not self._stopped and self._order is None:
            self._take_header()
        return self._stopped

    def send(self, header: UpdateHeader, payload: Vector) -> None:
        """Send an update; the model's buffer is free from here on."""
        self._send_request.Wait()  # complete already: the server has answered
        pack_update(self._outgoing.data, header)
        np.copyto(self._payload, payload)
        self._model_request.Start()
        self._expecting = True
        self._send_request = self._comm.Isend([self._outgoing, MPI.BYTE], dest=0, tag=Tag.UPDATE)

    def depart(self, number: int, failure: str = "") -> None:
        """Say farewell, or what failed, and wait for the server's stop."""
        flags = Flag.FAILED if failure else Flag.FAREWELL
        self._send_request.Wait()
        pack_update(self._outgoing.data, UpdateHeader(number, -1, -1, flags=flags))
        self._comm.Send([self._outgoing[:HEADER_BYTES], MPI.BYTE], dest=0, tag=Tag.UPDATE)
        if failure:
            self._comm.send(failure, dest=0, tag=Tag.FAILURE)
        while not self._stopped:
            self._order_request.Wait()
            self._note_header()
        self._close()

    def _take_header(self) -> bool:
        """Take an order header if one is here; True when it is an order to work."""
        if not self._order_request.Test():
            return False
        self._note_header()
        return self._order is not None

    def _note_header(self) -> None:
        header = unpack_order(self._header)
        self._stopped = Flag.STOP in header.flags
        if not self._stopped:
            self._order = header
            self._order_request.Start()

    def _close(self) -> None:
        """Give the receives back; one for a model that will not come is cancelled first."""
        if self._expecting:
            self._model_request.Cancel()
            self._model_request.Wait()
        self._model_request.Free()
        self._order_request.Free()
