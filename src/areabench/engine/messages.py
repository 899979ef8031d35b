"""The protocol between server and clients: tags, headers and the content of each message.

    tag     from -> to         content
    ORDER   server -> client   an order header, the model and what is attached to it in one message, or a header alone
                               (stop, cancel, contact, question)
    UPDATE  client -> server   an update header and the payload in one message, or a header alone (farewell, failure)
    FAILURE client -> server   the text that belongs to a failure, pickled: the only message that is
    MEMORY  client -> server   a header and what the client remembers, when it is asked to recall it; `round` is the
                               number of the question, `base_version` the round that was asked about
            server -> client   what a client remembers when a run is resumed, a vector alone, before the start

Client i's messages have the tags below plus 16 i, because a rank may host several clients. Messages of one tag between
two ranks never overtake each other, so a stop comes after all orders.
The records are named tuples: several are made for every update, and a frozen dataclass takes five times as long.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

from areabench.arrays import Vector, crc32
from areabench.engine.events import Reason
from areabench.errors import UserError

PROTOCOL_VERSION = 4
LARGEST_MESSAGE_BYTES = 2**31 - 1  # MPI counts in 32 bits
_TAGS_A_CLIENT = 16
HEADER_BYTES = 64  # both headers are padded to this; keeps the payload behind it aligned


class Tag(IntEnum):
    """MPI tags."""

    ORDER = 11
    UPDATE = 12
    FAILURE = 13
    MEMORY = 14


def tag_of(kind: Tag, client: int) -> int:
    """The tag of a client's messages of this kind."""
    return kind + _TAGS_A_CLIENT * client


class Shapes(NamedTuple):
    """Arrays with the shapes and types of what travels: models, what goes with them, updates, and memories."""

    model: Vector
    attached: Vector | None
    payload: Vector
    memory: Vector | None

    @property
    def largest_bytes(self) -> int:
        """The size of the largest message."""
        order = self.model.nbytes + (0 if self.attached is None else self.attached.nbytes)
        memory = 0 if self.memory is None else self.memory.nbytes
        return HEADER_BYTES + max(order, self.payload.nbytes, memory)


def check_limits(clients: int, shapes: Shapes, highest_tag: int) -> None:
    """A model must fit into one message, and the clients' tags into the range of this MPI."""
    size, model = shapes.largest_bytes, shapes.model
    if size > LARGEST_MESSAGE_BYTES:
        raise UserError(
            f"a model of {model.size:,} parameters ({model.dtype.name}) is a message of {size:,} bytes, MPI takes at "
            f"most {LARGEST_MESSAGE_BYTES:,}; use a smaller model or a shorter type, or `areabench simulate`"
        )
    most = (highest_tag + 1) // _TAGS_A_CLIENT
    if clients > most:
        raise UserError(f"clients.count = {clients:,}: this MPI has message tags for {most:,} clients; use fewer")


class Flag(IntFlag):
    """What is special about a message."""

    NONE = 0
    OVERRUN = 1  # client: the update was not ready when its delay was over
    LEAVING = 2  # client: my last message; no payload
    FAILED = 4  # client: my last message, after an exception; no payload
    STOP = 8  # server: stop working
    REPLY = 16  # server: a direct answer to an update; the client's next delay runs from when it sent that update
    AGAIN = 32  # server: your last update was refused; forget it, and work again
    RECALL = 64  # server: send what you remembered when the round named by `version` began; no model
    RESUMED = 128  # server: an order of before the run was stopped; its delay began when the checkpoint says
    SHRUNK = 256  # server, with STOP: ranks were lost, so the others meet without them
    FIRST = 512  # server: goes out at the start, from which the client's delay runs
    CANCEL = 1024  # server: drop the round named by `version`; no model
    CONTACT = 2048  # server: send at once what the local steps of the round named by `version` have led to; no model
    WAITS = 4096  # server: keep the update until you are contacted


AGAIN = Flag.REPLY | Flag.AGAIN  # as `Server.again` sends it
INTERRUPTS = (Flag.CANCEL, Flag.CONTACT)
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
    flags: Flag = Flag.NONE
    local_steps: int = 0  # that the update is made of


class Update(NamedTuple):
    """A client tells the server the outcome of a round; the payload is lent until the server has replied."""

    header: UpdateHeader
    payload: Vector


class OrderHeader(NamedTuple):
    """An order as it travels: everything but the model."""

    step_size: float
    version: int
    iteration: int
    flags: Flag
    local_steps: int = 0


_ORDER = struct.Struct("<HHIqqd")  # protocol version, flags, local steps, version, iteration, step size
# protocol version, flags, payload's bytes, client, local steps, round, version, four times
_UPDATE = struct.Struct("<HHIIIqqdddd")
_START = struct.Struct("<HHII")  # of an update: protocol version, flags, payload's bytes, client
_FROM_CLIENTS = frozenset((0, 1, 2, 4))  # flags of an update, a farewell and a failure


class ProtocolError(RuntimeError):
    """A message that does not belong to this protocol."""


def pack_order(buffer: bytearray | memoryview, header: OrderHeader | Order) -> None:
    """Write an order's header to the front of a buffer."""
    _ORDER.pack_into(
        buffer, 0, PROTOCOL_VERSION, header.flags, header.local_steps, header.version, header.iteration,
        header.step_size,
    )  # fmt: skip


def unpack_order(buffer: bytearray | memoryview) -> OrderHeader:
    """Read an order header from the front of a buffer."""
    protocol, flags, local_steps, version, iteration, step_size = _ORDER.unpack_from(buffer)
    _check_protocol(protocol)
    return OrderHeader(step_size, version, iteration, _FLAGS[flags], local_steps)


def pack_update(buffer: bytearray | memoryview, header: UpdateHeader, payload_bytes: int = 0) -> None:
    """Write an update header to the front of a buffer."""
    _UPDATE.pack_into(
        buffer, 0, PROTOCOL_VERSION, header.flags, payload_bytes, header.client, header.local_steps, header.round,
        header.base_version, header.drawn_delay_s, header.realised_delay_s, header.reply_s, header.compute_s,
    )  # fmt: skip


def unpack_update(buffer: bytearray | memoryview) -> UpdateHeader:
    """Read an update header from the front of a buffer."""
    protocol, flags, _, client, local_steps, *values = _UPDATE.unpack_from(buffer)
    _check_protocol(protocol)
    return UpdateHeader._make((client, *values, _FLAGS[flags], local_steps))


def message_refusal_reason(buffer: bytearray | memoryview, client: int, payload_bytes: int) -> Reason:
    """Why a message is no update, farewell or failure of this client; NONE if it is one."""
    protocol, flags, size, sender = _START.unpack_from(buffer)
    if protocol != PROTOCOL_VERSION or flags not in _FROM_CLIENTS:
        return Reason.PROTOCOL
    if sender != client:
        return Reason.CLIENT
    return Reason.NONE if size == (payload_bytes if flags <= Flag.OVERRUN else 0) else Reason.LENGTH


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"a message of protocol version {protocol} reached a rank of version {PROTOCOL_VERSION}; "
            "start all ranks from one installation"
        )


def digest(vector: Vector) -> int:
    """The CRC-32 of a vector's bytes: vectors that differ in a bit, a sign or their order have different ones."""
    return crc32(vector.data)
