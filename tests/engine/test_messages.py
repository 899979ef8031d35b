"""Headers survive packing; digests distinguish vectors."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areabench.engine.messages import (
    HEADER_BYTES,
    PROTOCOL_VERSION,
    Flag,
    Order,
    ProtocolError,
    Shapes,
    Tag,
    UpdateHeader,
    bare_order,
    check_limits,
    digest,
    pack_order,
    pack_update,
    unpack_order,
    unpack_update,
)
from areabench.errors import UserError

WHOLE = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**32 - 1)
REAL = st.floats(allow_nan=False)
FLAGS = st.integers(0, 2**13 - 1).map(Flag)


MODEL, ATTACHED, START = np.zeros(2), np.zeros(3), np.zeros(2)


@given(
    order=st.builds(
        Order, client=COUNTS, model=st.just(MODEL), step_size=REAL, version=WHOLE, iteration=WHOLE, flags=FLAGS,
        local_steps=COUNTS, attached=st.just(ATTACHED),
    )
)  # fmt: skip
def test_order_header_survives(order: Order) -> None:
    buffer = bytearray(HEADER_BYTES)
    pack_order(buffer, order, 40)
    assert len(buffer) == HEADER_BYTES
    found = unpack_order(buffer, MODEL, ATTACHED, START)
    assert found[2:7] == order[2:7]
    assert (found.client, found.flags is order.flags, found.given) == (order.client, True, False)
    assert found.model is MODEL
    assert found.attached is ATTACHED


def test_an_order_that_carries_nothing_has_the_starting_point() -> None:
    buffer = bytearray(HEADER_BYTES)
    pack_order(buffer, bare_order(3, Flag.FIRST))
    found = unpack_order(buffer, MODEL, ATTACHED, START)
    assert (found.client, found.flags, found.attached) == (3, Flag.FIRST, None)
    assert found.model is START


@given(
    header=st.builds(
        UpdateHeader, client=COUNTS, round=WHOLE, base_version=WHOLE, drawn_delay_s=REAL, realised_delay_s=REAL,
        reply_s=REAL, compute_s=REAL, flags=FLAGS.map(int), local_steps=COUNTS,
    )
)  # fmt: skip
def test_update_header_survives_in_front_of_a_payload(header: UpdateHeader) -> None:
    message = np.full(HEADER_BYTES + 16, 7, np.uint8)
    pack_update(message.data, header)
    assert unpack_update(message.data) == header
    assert (message[HEADER_BYTES:] == 7).all()


def test_message_of_another_protocol_version_is_refused() -> None:
    buffer = bytearray(HEADER_BYTES)
    pack_order(buffer, bare_order(0, Flag.NONE))
    struct.pack_into("<H", buffer, 0, PROTOCOL_VERSION + 1)
    with pytest.raises(ProtocolError, match=f"version {PROTOCOL_VERSION + 1} reached .* version {PROTOCOL_VERSION};"):
        unpack_order(buffer, MODEL, None, START)
    with pytest.raises(ProtocolError, match="one installation"):
        unpack_update(buffer)


def test_the_numbers_on_the_wire_belong_to_the_protocol_version() -> None:
    """Who changes one raises the version: ranks of two installations must not understand each other half."""
    assert PROTOCOL_VERSION == 6
    assert HEADER_BYTES == 64
    tags = ["ORDER", "UPDATE", "FAILURE", "MEMORY", "MASKS"]
    assert [(tag.name, tag.value) for tag in Tag] == [(name, 11 + number) for number, name in enumerate(tags)]
    names = [
        "OVERRUN", "CLIPPED", "OUTSIDE", "STOP", "REPLY", "AGAIN", "RECALL", "RESUMED", "SHRUNK", "FIRST", "CANCEL",
        "CONTACT", "WAITS", "LEAVING", "FAILED",
    ]  # fmt: skip
    assert {flag.name: flag.value for flag in Flag} == {name: 2**number for number, name in enumerate(names)}


def test_the_bytes_of_headers_belong_to_the_protocol_version() -> None:
    buffer = bytearray(HEADER_BYTES)
    pack_order(buffer, Order(2, MODEL, 0.5, 7, 9, Flag.REPLY, 3), 40)
    assert buffer[:40] == struct.pack("<HHIIIqqd", 6, 16, 3, 2, 40, 7, 9, 0.5)
    pack_update(buffer, UpdateHeader(2, 5, 7, 0.25, 0.5, 0.125, 2.0, Flag.OVERRUN, 3), 800)
    assert buffer == struct.pack("<HIIqqddddHI", 6, 800, 2, 5, 7, 0.25, 0.5, 0.125, 2.0, 1, 3)


def shapes(model: int, attached: int | None = None, payload: int = 1, memory: int | None = None) -> Shapes:
    """Arrays of this many bytes, none of which is filled."""
    sizes = (None if size is None else np.broadcast_to(np.int8(0), size) for size in (attached, memory))
    attachment, remembered = sizes
    return Shapes(np.broadcast_to(np.int8(0), model), attachment, np.broadcast_to(np.int8(0), payload), remembered)


def floats(count: int) -> Shapes:
    """Models and payloads of this many numbers in single precision."""
    vector = np.broadcast_to(np.float32(0), count)
    return Shapes(vector, None, vector, None)


def test_a_model_must_fit_into_one_message() -> None:
    fits = (2**31 - 1 - 64) // 4
    check_limits(floats(fits))
    with pytest.raises(UserError, match=r"is a message of 2,147,483,648 bytes, MPI takes at most 2,147,483,647; use"):
        check_limits(floats(fits + 1))
    check_limits(shapes(2**31 - 1 - 64))  # to the byte


def test_what_travels_with_a_model_must_fit_too() -> None:
    most = 2**31 - 1 - 64
    check_limits(shapes(most - 9, attached=9, payload=most, memory=most))
    for too_large in (
        shapes(most - 9, attached=10), shapes(1, payload=most + 1), shapes(1, memory=most + 1)
    ):  # fmt: skip
        with pytest.raises(UserError, match="is a message of 2,147,483,648 bytes"):
            check_limits(too_large)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 101])
def test_digest_sees_every_bit(dtype: type[np.floating], size: int) -> None:
    vector = np.random.default_rng(0).standard_normal(size).astype(dtype)
    expected = digest(vector)
    assert digest(vector.copy()) == expected
    assert 0 <= expected < 2**32
    for bit in range(0, vector.nbytes * 8, 5):
        changed = vector.copy()
        changed.view(np.uint8)[bit // 8] ^= 1 << (bit % 8)
        assert digest(changed) != expected


def test_digest_is_the_known_checksum() -> None:
    assert digest(np.frombuffer(b"12345678", np.float64)) == 0x9AE0DAAF  # CRC-32 of the text 12345678
