"""The protocol between server and clients: tags, headers and the content of each message.

    tag     from -> to         content
    ORDER   server -> rank     an order header, the model and what is attached to it in one message, or a header alone:
                               an order whose model is the starting point, which every rank knows; stop, cancel,
                               contact, question
    UPDATE  rank -> server     an update header and the payload in one message, or a header alone (failure, leave)
    FAILURE rank -> server     the text that belongs to a failure, pickled: the only message that is
    MEMORY  rank -> server     a header and what a client remembers, when it is asked to recall it; `round` is the
                               number of the question, `base_version` the round that was asked about
            server -> rank     what a client remembers when a run is resumed, a vector alone, before the start
    MASKS   server -> helper   client and round of each update whose masks the server wants the sum of; nothing: a stop
            helper -> server   a header and that sum, or the text of a refusal behind it

Headers name the client, because a rank may host several. A stop and a leave are those of the whole rank. Messages of
one tag between two ranks never overtake each other, so a stop comes after all orders.
The records are named tuples: several are made for every update, and a frozen dataclass takes five times as long. Where
every nanosecond counts they are made by `tuple.__new__`, in half the time.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np

from areabench.arrays import Vector, crc32
from areabench.engine.events import Reason
from areabench.errors import UserError

PROTOCOL_VERSION = 6
LARGEST_MESSAGE_BYTES = 2**31 - 1  # MPI counts in 32 bits
HEADER_BYTES = 64  # both headers are padded to this; keeps the payload behind it aligned


class Tag(IntEnum):
    """MPI tags."""

    ORDER = 11
    UPDATE = 12
    FAILURE = 13
    MEMORY = 14
    MASKS = 15


class Shapes(NamedTuple):
    """Arrays with the shapes and types of what travels: models, what goes with them, updates, and memories."""

    model: Vector  # x_{s,0} itself: an order that carries this very array travels without it
    attached: Vector | None
    payload: Vector
    memory: Vector | None

    @property
    def largest_bytes(self) -> int:
        """The size of the largest message."""
        order = self.model.nbytes + (0 if self.attached is None else self.attached.nbytes)
        memory = 0 if self.memory is None else self.memory.nbytes
        return HEADER_BYTES + max(order, self.payload.nbytes, memory)


def check_limits(shapes: Shapes) -> None:
    """A model must fit into one message."""
    size = shapes.largest_bytes
    model = shapes.model
    if size > LARGEST_MESSAGE_BYTES:
        raise UserError(
            f"a model of {model.size:,} parameters ({model.dtype.name}) is a message of {size:,} bytes, MPI takes at "
            f"most {LARGEST_MESSAGE_BYTES:,}; use a smaller model or a shorter type, or `areabench simulate`"
        )


class Flag(IntFlag):
    """What is special about a message."""

    NONE = 0
    OVERRUN = 1  # client: the update was not ready when its delay was over
    CLIPPED = 2  # client: entries of the update were cut to the range of [privacy]
    OUTSIDE = 4  # client: the update does not fit into that range and was not sent; the payload is zero
    STOP = 8  # server, to a rank: stop working
    REPLY = 16  # server: a direct answer to an update; the client's next delay runs from when it sent that update
    AGAIN = 32  # server: your last update was refused; forget it, and work again
    RECALL = 64  # server: send what you remembered when the round named by `version` began; no model
    RESUMED = 128  # server: an order of before the run was stopped; its delay began when the checkpoint says
    SHRUNK = 256  # server, with STOP: ranks were lost, so the others meet without them
    FIRST = 512  # server: goes out at the start, from which the client's delay runs
    CANCEL = 1024  # server: drop the round named by `version`; no model
    CONTACT = 2048  # server: send at once what the local steps of the round named by `version` have led to; no model
    WAITS = 4096  # server: keep the update until you are contacted
    LEAVING = 8192  # rank: the last message of all its clients that have not failed; no payload
    FAILED = 16384  # client: my last message, after an exception; no payload


AGAIN = Flag.REPLY | Flag.AGAIN  # as `Server.again` sends it
INTERRUPTS = (Flag.CANCEL, Flag.CONTACT)
FINAL_FLAGS = int(Flag.LEAVING)  # messages of clients with this flag or a higher one are their last
USUAL = (Flag.REPLY, Flag.NONE, Flag.FIRST)  # of nearly all orders


class _Flags(dict[int, Flag]):
    """Flags by number: looked up, not made, which takes a third of a microsecond."""

    def __missing__(self, value: int) -> Flag:
        self[value] = flag = Flag(value)
        return flag


_FLAGS = _Flags()


class Order(NamedTuple):
    """The server tells a client to work; or, with a flag and without a model, to drop its round or to send it now."""

    client: int
    model: Vector
    step_size: float
    version: int  # number of server steps that led to `model`
    iteration: int  # k when the order went out
    flags: Flag = Flag.NONE
    local_steps: int = 0  # to make; 0: the client chooses
    attached: Vector | None = None  # goes with the model
    given: bool = False  # whether the rule itself gave the model or the step size


class UpdateHeader(NamedTuple):
    """What a client says about its update; times in seconds of the experiment, on the client's own clock."""

    client: int
    round: int
    base_version: int
    drawn_delay_s: float = 0.0
    realised_delay_s: float = 0.0
    reply_s: float = 0.0  # from its last update until the reply to it was here; NaN where the order was no reply
    compute_s: float = 0.0
    flags: int = 0  # a Flag, as a plain integer
    local_steps: int = 0  # that the update is made of


class Update(NamedTuple):
    """A client tells the server the outcome of a round; the payload is lent until the next poll."""

    header: UpdateHeader
    payload: Vector


_NO_MODEL = np.empty(0)


def bare_order(client: int, flags: Flag, version: int = 0, iteration: int = 0) -> Order:
    """An order without a model: a stop, or a question."""
    return Order(client, _NO_MODEL, 0.0, version, iteration, flags)


# protocol version, flags, local steps, client, bytes behind the header, version, iteration, step size
_ORDER = struct.Struct("<HHIIIqqd")
_UPDATE = struct.Struct("<HIIqqddddHI")  # protocol version, payload's bytes, and the fields of UpdateHeader
_UNWRITTEN = bytes([0xFF] * 10)  # protocol version, payload's bytes and client of no message
_UPDATE_FLAGS = int(Flag.OVERRUN | Flag.CLIPPED | Flag.OUTSIDE)
_FINAL_FLAGS = (int(Flag.LEAVING), int(Flag.FAILED))
_new = tuple.__new__


class ProtocolError(RuntimeError):
    """A message that does not belong to this protocol."""


def pack_order(buffer: bytearray | memoryview, order: Order, carried_bytes: int = 0) -> None:
    """Write an order's header to the front of a buffer; `carried_bytes` follow it."""
    client, _, step_size, version, iteration, flags, local_steps, _, _ = order
    _ORDER.pack_into(
        buffer, 0, PROTOCOL_VERSION, flags, local_steps, client, carried_bytes, version, iteration, step_size
    )


def unpack_order(buffer: bytearray | memoryview, carried: Vector, attached: Vector | None, start: Vector) -> Order:
    """Read an order from the front of a buffer: with the model behind its header, or with `start` if nothing is."""
    protocol, flags, local_steps, client, size, version, iteration, step_size = _ORDER.unpack_from(buffer)
    if protocol != PROTOCOL_VERSION:
        raise _foreign(protocol)
    model, goes_with = (carried, attached) if size else (start, None)
    return _new(Order, (client, model, step_size, version, iteration, _FLAGS[flags], local_steps, goes_with, False))


def pack_update(buffer: bytearray | memoryview, header: UpdateHeader, payload_bytes: int = 0) -> None:
    """Write an update header to the front of a buffer."""
    _UPDATE.pack_into(buffer, 0, PROTOCOL_VERSION, payload_bytes, *header)


def unpack_update(buffer: bytearray | memoryview) -> UpdateHeader:
    """Read an update header from the front of a buffer."""
    fields = _UPDATE.unpack_from(buffer)
    if fields[0] != PROTOCOL_VERSION:
        raise _foreign(fields[0])
    return _new(UpdateHeader, fields[2:])


def read_update(buffer: bytearray | memoryview, clients: Container[int], payload_bytes: int) -> UpdateHeader | Reason:
    """The header of an update, failure or last message of one of these clients, or why a message is none of them."""
    fields = _UPDATE.unpack_from(buffer)
    protocol, size, client = fields[:3]
    flags = fields[9]
    if protocol != PROTOCOL_VERSION or (flags > _UPDATE_FLAGS and flags not in _FINAL_FLAGS):
        return Reason.PROTOCOL
    if client not in clients:
        return Reason.CLIENT
    if size != (payload_bytes if flags <= _UPDATE_FLAGS else 0):
        return Reason.LENGTH
    return _new(UpdateHeader, fields[2:])


def clear_update(buffer: bytearray | memoryview) -> None:
    """Make a buffer recognisable as one into which no message was written."""
    buffer[: len(_UNWRITTEN)] = _UNWRITTEN


def is_written(buffer: bytearray | memoryview) -> bool:
    """Whether something was written into a buffer since it was cleared."""
    return buffer[0] != _UNWRITTEN[0]


def named_client(buffer: bytearray | memoryview) -> int:
    """The client that a message names, which may be none, whatever else is wrong with it."""
    client: int = _UPDATE.unpack_from(buffer)[2]
    return client


def _foreign(protocol: int) -> ProtocolError:
    return ProtocolError(
        f"a message of protocol version {protocol} reached a rank of version {PROTOCOL_VERSION}; "
        "start all ranks from one installation"
    )


def digest(vector: Vector) -> int:
    """The CRC-32 of a vector's bytes: vectors that differ in a bit, a sign or their order have different ones."""
    return crc32(vector.data)
