"""The two ends of the wire: orders and models pair up, models are held while they travel, a stop is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numpy.typing import NDArray

from areabench.client import Client
from areabench.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    OrderHeader,
    ProtocolError,
    Tag,
    Update,
    UpdateHeader,
    pack_order,
    pack_update,
)
from areabench.transports.mpi import MpiClientLink, MpiServerLink, World
from areabench.transports.work import work

pytestmark = pytest.mark.mpi(min_size=3)

CLIENTS = 2
FLOAT = np.dtype(np.float64)
LARGE = 1_000_000  # entries: far beyond what MPI sends before the receiver is ready
PATIENCE_S = 30.0  # for whatever must come; the machine may be busy
SIZES = pytest.mark.parametrize("dimension", [1, 7840, LARGE])


def until(ready: Callable[[], Any]) -> Any:
    """Poll until there is something, but not for ever."""
    begun_s = time.perf_counter()
    while not (found := ready()):
        assert time.perf_counter() - begun_s < PATIENCE_S, "waited in vain"
        time.sleep(1e-4)
    return found


def server_link(world: World, dimension: int) -> MpiServerLink:
    return MpiServerLink(world, CLIENTS, dimension, FLOAT)


def client_link(world: World, dimension: int) -> MpiClientLink:
    return MpiClientLink(world, dimension, FLOAT)


def order_to(client: int, model: NDArray[Any], version: int = 0) -> Order:
    return Order(client, model, 0.125 * version, version, 2 * version, Flag.REPLY)


def take(link: MpiServerLink, count: int) -> list[Update]:
    """That many updates, not rearmed."""
    updates: list[Update] = []
    while len(updates) < count:
        updates += until(link.arrivals)
    return updates


def dismiss(link: MpiServerLink) -> None:
    """Stop both clients, take their farewells, close."""
    link.stop_all()
    assert {update.header.flags for update in take(link, CLIENTS)} == {Flag.FAREWELL}
    link.close()


def depart(link: MpiClientLink, number: int) -> None:
    until(link.stopped)
    link.depart(number)


# ---------------------------------------------------------------------------------------------------- orders


@SIZES
def test_every_order_comes_with_its_own_model(world: World, dimension: int) -> None:
    rounds = 5
    if world.rank == 0:
        link = server_link(world, dimension)
        for version in range(rounds):
            model = np.full(dimension, float(version))
            for client in range(CLIENTS):
                link.order(order_to(client, model + 100 * client, version))
            for update in take(link, CLIENTS):
                header = update.header
                assert (header.round, header.base_version) == (version, version)
                assert (header.drawn_delay_s, header.realised_delay_s, header.compute_s) == (0.25, 0.5, 0.125)
                assert header.flags == Flag.OVERRUN
                np.testing.assert_array_equal(update.payload, model + 100 * header.client + 0.5)
                link.rearm(header.client)
        dismiss(link)
    else:
        end, number = client_link(world, dimension), world.rank - 1
        for version in range(rounds):
            assert until(end.poll) == OrderHeader(0.125 * version, version, 2 * version, Flag.REPLY)
            assert not end.stopped()
            np.testing.assert_array_equal(end.model, np.full(dimension, version + 100.0 * number))
            end.send(UpdateHeader(number, version, version, 0.25, 0.5, 0.125, Flag.OVERRUN), end.model + 0.5)
        depart(end, number)


@SIZES
def test_one_frozen_model_serves_two_clients_and_is_let_go_when_it_has_left(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        model = np.arange(float(dimension))
        model.flags.writeable = False
        for client in range(CLIENTS):
            link.order(order_to(client, model))
        assert set(link._models) == {0, 1}
        updates = take(link, CLIENTS)
        until(lambda: link.release() and not link._models)
        assert link._sends == {}
        assert not link.release()
        for update in updates:
            np.testing.assert_array_equal(update.payload, model)
            link.rearm(update.header.client)
        np.testing.assert_array_equal(model, np.arange(float(dimension)))
        dismiss(link)
    else:
        end, number = client_link(world, dimension), world.rank - 1
        until(end.poll)
        end.send(UpdateHeader(number, 0, 0), end.model)
        depart(end, number)


def test_a_model_on_its_way_is_held(world: World) -> None:
    if world.rank == 0:
        link = server_link(world, LARGE)
        link.order(order_to(0, np.ones(LARGE)))
        assert not link.release()  # client 0 has posted nothing yet, and a million entries do not fit in between
        assert set(link._models) == {0}
        world.barrier()
        until(link.release)
        assert link._models == {}
        dismiss(link)
    else:
        world.barrier()
        end = client_link(world, LARGE)
        if world.rank == 1:
            until(end.poll)
            np.testing.assert_array_equal(end.model, np.ones(LARGE))
        depart(end, world.rank - 1)


# ---------------------------------------------------------------------------------------------------- updates


def test_one_poll_takes_all_updates_that_are_here(world: World) -> None:
    if world.rank == 0:
        for client in range(CLIENTS):
            world.comm.Probe(source=client + 1, tag=Tag.UPDATE)
        link = server_link(world, 3)  # both messages are here before it is
        updates = link.arrivals()
        assert sorted(update.header.client for update in updates) == [0, 1]
        assert list(link.arrivals()) == []  # nothing is armed
        for update in updates:
            np.testing.assert_array_equal(update.payload, np.full(3, float(update.header.client)))
            link.rearm(update.header.client)
        dismiss(link)
    else:
        end, number = client_link(world, 3), world.rank - 1
        end._model_request.Cancel()  # as if an order had come
        end._model_request.Wait()
        end.send(UpdateHeader(number, 0, 0), np.full(3, float(number)))
        depart(end, number)


@pytest.mark.parametrize("length", [10, 1_000_000])
def test_the_text_of_a_failure_arrives_whole_from_each_client(world: World, length: int) -> None:
    if world.rank == 0:
        link = server_link(world, 3)
        for update in take(link, CLIENTS):
            assert update.header.flags == Flag.FAILED
            assert link.failure(update.header.client) == str(update.header.client) * length
        link.stop_all()
        link.close()
    else:
        client_link(world, 3).depart(world.rank - 1, str(world.rank - 1) * length)


# ---------------------------------------------------------------------------------------------------- stop


@SIZES
def test_a_stop_finds_clients_that_never_had_an_order(world: World, dimension: int) -> None:
    if world.rank == 0:
        dismiss(server_link(world, dimension))
    else:
        depart(client_link(world, dimension), world.rank - 1)


@SIZES
def test_a_stop_right_behind_an_order_lets_the_order_pass_first(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        link.order(order_to(0, np.ones(dimension), 1))
        link.order(order_to(1, np.ones(dimension), 1))
        dismiss(link)
    else:
        end = client_link(world, dimension)
        assert until(end.poll).version == 1
        depart(end, world.rank - 1)


@SIZES
def test_an_update_that_crosses_the_stop_is_received(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        for client in range(CLIENTS):
            link.order(order_to(client, np.ones(dimension), 1))
        link.stop_all()
        for update in take(link, CLIENTS):
            np.testing.assert_array_equal(update.payload, np.full(dimension, 3.0))
            link.rearm(update.header.client)
        assert {update.header.flags for update in take(link, CLIENTS)} == {Flag.FAREWELL}
        link.close()
    else:
        end, number = client_link(world, dimension), world.rank - 1
        until(end.poll)
        end.send(UpdateHeader(number, 0, 1), np.full(dimension, 3.0))
        depart(end, number)


class Idle(Client):
    """Returns the model as it is."""

    def __init__(self) -> None:
        self.round = 0

    def work(self, model: NDArray[Any], step_size: float) -> NDArray[Any]:
        return model


def test_clients_in_a_long_delay_notice_a_stop(world: World) -> None:
    delay_s, soon_s = 60.0, 10.0
    if world.rank == 0:
        link = server_link(world, 3)
        link.order(order_to(0, np.ones(3)))  # client 0 sleeps, client 1 waits for an order
        until(link.release)
        begun_s = time.perf_counter()
        dismiss(link)
        assert time.perf_counter() - begun_s < soon_s
    else:
        end = client_link(world, 3)
        work(end, Idle(), world.rank - 1, lambda: delay_s)
        depart(end, world.rank - 1)


# ---------------------------------------------------------------------------------------------------- protocol


def foreign(pack: Callable[[bytearray], None]) -> bytearray:
    """A header of another protocol version."""
    header = bytearray(HEADER_BYTES)
    pack(header)
    header[0] = 99
    return header


def test_the_server_refuses_a_message_of_another_version(world: World) -> None:
    if world.rank == 0:
        link = server_link(world, 3)
        with pytest.raises(ProtocolError, match="protocol version 99"):
            until(link.arrivals)
        link.close()
    elif world.rank == 2:
        header = foreign(lambda buffer: pack_update(buffer, UpdateHeader(1, 0, 0)))
        world.comm.Send([header, MPI.BYTE], dest=0, tag=Tag.UPDATE)


def test_a_client_refuses_a_message_of_another_version(world: World) -> None:
    if world.rank == 0:
        header = foreign(lambda buffer: pack_order(buffer, OrderHeader(0.0, 0, 0, Flag.STOP)))
        for rank in (1, 2):
            world.comm.Send([header, MPI.BYTE], dest=rank, tag=Tag.ORDER)
    else:
        end = client_link(world, 3)
        with pytest.raises(ProtocolError, match="protocol version 99"):
            until(end.stopped)
        end._close()
