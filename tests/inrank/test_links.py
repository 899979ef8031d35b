"""The two ends of the wire: orders and models pair up, models are held while they travel, a stop is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numpy.typing import NDArray
from tests.support.wires import rounds_of

from areabench.engine.client import Client, place
from areabench.engine.messages import (
    HEADER_BYTES,
    Flag,
    Order,
    ProtocolError,
    Shapes,
    Tag,
    Update,
    UpdateHeader,
    bare_order,
    pack_order,
)
from areabench.transports.clock import RealClock
from areabench.transports.mpi_server import MpiServerLink
from areabench.transports.mpi_worker import MpiWorkerLink
from areabench.transports.worker_loop import HostedClient, Worker
from areabench.transports.world import World

pytestmark = pytest.mark.mpi(min_size=3)

CLIENTS = 2
LARGE = 1_000_000  # entries: far beyond what MPI sends before the receiver is ready
PATIENCE_S = 30.0  # limit of every wait; the machine may be busy
SIZES = pytest.mark.parametrize("dimension", [1, 7840, LARGE])


def until(ready: Callable[[], Any]) -> Any:
    """Poll until something arrives, within a limit."""
    begun_s = time.perf_counter()
    while not (found := ready()):
        assert time.perf_counter() - begun_s < PATIENCE_S, "waited in vain"
        time.sleep(1e-4)
    return found


def shapes_of(dimension: int) -> Shapes:
    """Models, payloads and memories of this length, and nothing besides."""
    like = np.zeros(dimension)
    return Shapes(like, None, like, like)


def server_link(world: World, dimension: int, clients: int = CLIENTS) -> MpiServerLink:
    return MpiServerLink(world, place(clients, 3), shapes_of(dimension))


def worker_link(world: World, dimension: int, clients: int = CLIENTS) -> MpiWorkerLink:
    return MpiWorkerLink(world, place(clients, 3).hosted(world.rank), shapes_of(dimension))


def one_order(link: MpiWorkerLink) -> Order:
    """The next order, which must be the only one."""
    (order,) = until(link.orders)
    assert isinstance(order, Order)
    return order


def some_orders(link: MpiWorkerLink, count: int) -> list[Order]:
    """That many orders; what is lent is copied."""
    orders: list[Order] = []
    while len(orders) < count:
        orders += [order._replace(model=order.model.copy()) for order in until(link.orders)]
    return orders


def reply(link: MpiWorkerLink, header: UpdateHeader, payload: NDArray[Any]) -> None:
    link.load(header.client, payload)
    link.send(header)


def order_to(client: int, model: NDArray[Any], version: int = 0) -> Order:
    return Order(client, model, 0.125 * version, version, 2 * version, Flag.REPLY, 3 + version)


def take(link: MpiServerLink, count: int) -> list[Update]:
    """That many updates; what is lent is copied."""
    updates: list[Update] = []
    while len(updates) < count:
        updates += [update._replace(payload=update.payload.copy()) for update in until(link.arrivals)]
    return updates


def dismiss(link: MpiServerLink, clients: int = CLIENTS) -> None:
    """Stop all clients, receive their last messages, close."""
    link.stop_all()
    last_messages = take(link, clients)
    assert {update.header.flags for update in last_messages} == {Flag.LEAVING}
    assert sorted(update.header.client for update in last_messages) == list(range(clients))
    link.close()


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
                assert header[3:] == (0.25, 0.5, 0.0625, 0.125, Flag.OVERRUN, 3 + version)
                np.testing.assert_array_equal(update.payload, model + 100 * header.client + 0.5)
        dismiss(link)
    else:
        end, number = worker_link(world, dimension), world.rank - 1
        for version in range(rounds):
            order = one_order(end)
            assert order[2:6] == (0.125 * version, version, 2 * version, Flag.REPLY)
            assert (order.local_steps, order.attached) == (3 + version, None)
            assert order.client == number
            assert not end.stopped
            np.testing.assert_array_equal(order.model, np.full(dimension, version + 100.0 * number))
            header = UpdateHeader(number, version, version, 0.25, 0.5, 0.0625, 0.125, Flag.OVERRUN, order.local_steps)
            reply(end, header, order.model + 0.5)
        end.leave()


@SIZES
def test_an_array_may_change_while_an_order_is_in_flight(world: World, dimension: int) -> None:
    """The order is sent as it was, although the array changes: client 0 looks late."""
    if world.rank == 0:
        link = server_link(world, dimension)
        model = np.ones(dimension)
        for client in range(CLIENTS):
            link.order(order_to(client, model))
        model[:] = 7.0
        world.barrier()
        for update in take(link, CLIENTS):
            np.testing.assert_array_equal(update.payload, np.ones(dimension))
        dismiss(link)
    else:
        world.barrier()
        end, number = worker_link(world, dimension), world.rank - 1
        reply(end, UpdateHeader(number, 0, 0), one_order(end).model)
        end.leave()


@SIZES
def test_an_order_may_follow_a_cancelled_one_that_is_still_in_flight(world: World, dimension: int) -> None:
    """The client looks late: a large order waits for it, so that the next one needs another buffer."""
    if world.rank == 0:
        link = server_link(world, dimension)
        for client in range(CLIENTS):
            link.order(order_to(client, np.ones(dimension), 1))
            link.order(Order(client, np.empty(0), 0.0, 7, 5, Flag.CANCEL))
            link.order(order_to(client, np.full(dimension, 2.0), 2))
            link.order(Order(client, np.empty(0), 0.0, 8, 5, Flag.CONTACT))
        if dimension == LARGE:
            assert sum(len(message) > HEADER_BYTES for _, message in link._in_flight) == CLIENTS
        world.barrier()
        for update in take(link, CLIENTS):
            np.testing.assert_array_equal(update.payload, np.full(dimension, 3.0))
        for client in range(CLIENTS):  # the usual buffer is free again
            link.order(order_to(client, np.full(dimension, 4.0), 3))
        dismiss(link)
    else:
        world.barrier()
        end, number = worker_link(world, dimension), world.rank - 1
        first, cancel, second, contact = some_orders(end, 4)
        assert [(order.flags, order.version) for order in (first, cancel, second, contact)] == [
            (Flag.REPLY, 1), (Flag.CANCEL, 7), (Flag.REPLY, 2), (Flag.CONTACT, 8),
        ]  # fmt: skip
        np.testing.assert_array_equal(first.model, np.ones(dimension))
        np.testing.assert_array_equal(second.model, np.full(dimension, 2.0))
        reply(end, UpdateHeader(number, 8, 2), np.full(dimension, 3.0))
        np.testing.assert_array_equal(one_order(end).model, np.full(dimension, 4.0))
        end.leave()


@SIZES
def test_arrays_of_any_shape_travel_with_models_and_in_updates_and_memories(world: World, dimension: int) -> None:
    """An order carries a float32 matrix with its model, an update three vectors, a memory two."""
    attached = np.arange(2 * dimension, dtype=np.float32).reshape(2, dimension)
    shapes = Shapes(np.empty(dimension), attached, np.empty((3, dimension)), np.empty((2, dimension)))
    if world.rank == 0:
        link = MpiServerLink(world, place(CLIENTS, 3), shapes)
        for client in range(CLIENTS):
            link.order(order_to(client, np.full(dimension, 1.0 + client))._replace(attached=attached + client))
        for update in take(link, CLIENTS):
            assert update.payload.shape == (3, dimension)
            for number, row in enumerate(update.payload):
                np.testing.assert_array_equal(row, np.full(dimension, 10.0 * number + update.header.client))
        link.recall.ask({1: 4})
        client, memory = until(link.recall.answer)
        assert (client, memory.dtype) == (1, np.float64)
        np.testing.assert_array_equal(memory, [np.full(dimension, 5.0), np.full(dimension, 6.0)])
        dismiss(link)
    else:
        end, number = MpiWorkerLink(world, place(CLIENTS, 3).hosted(world.rank), shapes), world.rank - 1
        order = one_order(end)
        assert order.attached is not None
        assert order.attached.dtype == np.float32
        np.testing.assert_array_equal(order.model, np.full(dimension, 1.0 + number))
        np.testing.assert_array_equal(order.attached, attached + number)
        payload = np.stack([np.full(dimension, 10.0 * row + number) for row in range(3)])
        reply(end, UpdateHeader(number, 0, 0), payload)
        if number == 1:
            question = one_order(end)
            assert (question.flags, question.client, question.version) == (Flag.RECALL, 1, 4)
            end.answer(question, np.stack([np.full(dimension, 5.0), np.full(dimension, 6.0)]))
        end.leave()


@SIZES
def test_the_starting_point_does_not_travel(world: World, dimension: int) -> None:
    """Each rank has its own; here it differs from the server's."""
    if world.rank == 0:
        link = server_link(world, dimension)
        start = link._shapes.model
        for client in range(CLIENTS):
            link.order(Order(client, start, 0.5, 0, 3, Flag.FIRST, 2))
            link.order(Order(client, start + 0.0, 0.25, 1, 4, Flag.FIRST, 2))
        dismiss(link)
    else:
        shapes = shapes_of(dimension)._replace(model=np.full(dimension, 7.0))
        end = MpiWorkerLink(world, place(CLIENTS, 3).hosted(world.rank), shapes)
        known, sent = some_orders(end, 2)
        assert (known.client, *known[2:8]) == (world.rank - 1, 0.5, 0, 3, Flag.FIRST, 2, None)
        np.testing.assert_array_equal(known.model, shapes.model)
        np.testing.assert_array_equal(sent.model, np.zeros(dimension))
        end.leave()


# ---------------------------------------------------------------------------------------------------- updates


def test_one_poll_takes_all_updates_that_are_here(world: World) -> None:
    if world.rank == 0:
        for client in range(CLIENTS):
            world.comm.Probe(source=client + 1, tag=Tag.UPDATE)
        link = server_link(world, 3)  # both messages are here before it is
        updates = link.arrivals()
        assert sorted(update.header.client for update in updates) == [0, 1]
        for update in updates:
            np.testing.assert_array_equal(update.payload, np.full(3, float(update.header.client)))
        assert list(link.arrivals()) == []
        dismiss(link)
    else:
        end, number = worker_link(world, 3), world.rank - 1
        reply(end, UpdateHeader(number, 0, 0), np.full(3, float(number)))
        end.leave()


def test_a_poll_takes_turns_between_ranks_and_keeps_the_order_of_each(world: World) -> None:
    """Seven clients send; a poll takes three messages of a rank, and the next one takes the others."""
    clients, marker = 7, 99
    if world.rank == 0:
        for rank in (1, 2):
            world.comm.recv(source=rank, tag=marker)  # sent after the updates
        link = server_link(world, 3, clients)
        polls = [[update.header.client for update in link.arrivals()] for _ in range(3)]
        assert polls == [[6, 5, 4, 3, 2, 1], [0], []]
        dismiss(link, clients)
    else:
        end = worker_link(world, 3, clients)
        for client in reversed(place(clients, 3).hosted(world.rank)):
            reply(end, UpdateHeader(client, 0, 0), np.full(3, float(client)))
        world.comm.send(None, dest=0, tag=marker)
        end.leave()


def test_what_a_poll_returns_is_lent_until_the_next_one(world: World) -> None:
    """Although more messages of its rank are on their way than receives are posted."""
    clients, rounds = 8, 20
    if world.rank == 0:
        link, expected = server_link(world, 3, clients), dict.fromkeys(range(clients), 0)
        for client in range(clients):
            link.order(order_to(client, np.zeros(3)))
        while min(expected.values()) < rounds:
            updates = link.arrivals()
            time.sleep(1e-4)  # others arrive meanwhile
            for update in updates:
                client, number = update.header[:2]
                assert number == expected[client]
                np.testing.assert_array_equal(update.payload, np.full(3, 100.0 * client + number))
                expected[client] += 1
                if expected[client] < rounds:
                    link.order(order_to(client, np.full(3, float(number + 1)), number + 1))
        dismiss(link, clients)
    else:
        end, hosted = worker_link(world, 3, clients), place(clients, 3).hosted(world.rank)
        done = 0
        while done < rounds * len(hosted):
            for order in until(end.orders):
                np.testing.assert_array_equal(order.model, np.full(3, float(order.version)))
                header = UpdateHeader(order.client, order.version, order.version)
                reply(end, header, order.model + 100 * order.client)
                done += 1
        assert len(end._posted) == 4
        assert not end._lent
        assert len(end._free) <= len(hosted)  # no more than one per client beside those that are posted
        end.leave()


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
        end, number = worker_link(world, 3), world.rank - 1
        end.fail(number, str(number) * length)
        end.leave()


class NeverStarted:
    """A request about which MPI may say anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a request that was never started")


def test_a_send_that_was_never_started_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI 5 with fault tolerance may report that it failed."""
    if world.rank == 0:
        link = server_link(world, 3)
        np.testing.assert_array_equal([update.payload for update in take(link, CLIENTS)], np.ones((CLIENTS, 3)))
        dismiss(link)
    else:
        end, number = worker_link(world, 3), world.rank - 1
        with monkeypatch.context() as patch:
            patch.setattr(end._sends[number], "request", NeverStarted())
            end.load(number, np.ones(3))
        end.send(UpdateHeader(number, 0, 0))
        end.leave()


# ---------------------------------------------------------------------------------------------------- several a rank


@SIZES
def test_clients_that_share_a_rank_do_not_see_each_others_messages(world: World, dimension: int) -> None:
    clients = 5  # 0, 2 and 4 on one rank, 1 and 3 on the other
    if world.rank == 0:
        link = server_link(world, dimension, clients)
        for client in reversed(range(clients)):
            link.order(order_to(client, np.full(dimension, float(client)), client))
        for update in take(link, clients):
            header = update.header
            assert header.round == header.base_version == header.client
            np.testing.assert_array_equal(update.payload, np.full(dimension, header.client + 0.25))
        dismiss(link, clients)
    else:
        end, hosted = worker_link(world, dimension, clients), place(clients, 3).hosted(world.rank)
        orders: dict[int, Order] = {}
        while len(orders) < len(hosted):
            orders |= {order.client: order for order in until(end.orders)}
        assert sorted(orders) == list(hosted)
        for client, order in orders.items():
            reply(end, UpdateHeader(client, client, order.version), order.model + 0.25)
        end.leave()


def test_a_client_that_fails_leaves_the_last_messages_of_its_rank_to_the_others(world: World) -> None:
    clients = 4
    if world.rank == 0:
        link = server_link(world, 3, clients)
        (failed,) = take(link, 1)
        assert (failed.header.client, failed.header.flags) == (2, Flag.FAILED)
        assert link.failure(2) == "out of sorts"
        link.stop_all()
        assert sorted(update.header.client for update in take(link, clients - 1)) == [0, 1, 3]
        link.close()
    else:
        end = worker_link(world, 3, clients)
        if world.rank == 1:
            end.fail(2, "out of sorts")
        end.leave()


def test_a_world_of_the_first_ranks_receives_no_message_of_the_whole(world: World) -> None:
    part = world.first(2)
    if world.rank == 2:
        assert part is None
        return
    assert part is not None
    assert (part.rank, part.size) == (world.rank, 2)
    if world.rank == 0:
        world.comm.send("to the whole", dest=1)
        part.comm.send("to the part", dest=1)
    else:
        assert part.comm.recv(source=0) == "to the part"
        assert world.comm.recv(source=0) == "to the whole"
    part.leave()


# ---------------------------------------------------------------------------------------------------- stop


@SIZES
def test_a_stop_finds_clients_that_never_had_an_order(world: World, dimension: int) -> None:
    if world.rank == 0:
        dismiss(server_link(world, dimension))
    else:
        worker_link(world, dimension).leave()


@SIZES
def test_a_stop_right_behind_an_order_lets_the_order_pass_first(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        link.order(order_to(0, np.ones(dimension), 1))
        link.order(order_to(1, np.ones(dimension), 1))
        dismiss(link)
    else:
        end = worker_link(world, dimension)
        assert one_order(end).version == 1
        end.leave()


@SIZES
def test_an_update_that_crosses_the_stop_is_received(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        for client in range(CLIENTS):
            link.order(order_to(client, np.ones(dimension), 1))
        link.stop_all()
        messages = take(link, 2 * CLIENTS)
        updates = [update for update in messages if update.header.flags == Flag.NONE]
        assert sorted(update.header.client for update in updates) == [0, 1]
        for update in updates:
            np.testing.assert_array_equal(update.payload, np.full(dimension, 3.0))
        assert sum(update.header.flags == Flag.LEAVING for update in messages) == CLIENTS
        link.close()
    else:
        end, number = worker_link(world, dimension), world.rank - 1
        one_order(end)
        reply(end, UpdateHeader(number, 0, 1), np.full(dimension, 3.0))
        end.leave()


class Idle(Client):
    """Returns the model as it is."""

    trains = True

    def __init__(self) -> None:
        self.round = 0

    def work(self, order: Order, made: int | None = None) -> NDArray[Any]:
        return order.model


def test_clients_in_a_long_delay_notice_a_stop(world: World) -> None:
    delay_s, soon_s = 60.0, 10.0
    if world.rank == 0:
        link = server_link(world, 3)
        link.order(order_to(0, np.ones(3)))  # client 0 sleeps, client 1 waits for an order
        begun_s = time.perf_counter()
        dismiss(link)
        assert time.perf_counter() - begun_s < soon_s
    else:
        end = worker_link(world, 3)
        Worker(end, {world.rank - 1: HostedClient(Idle(), rounds_of(delay_s))}, RealClock()).work()
        end.leave()


# ---------------------------------------------------------------------------------------------------- protocol


def foreign(pack: Callable[[bytearray], None]) -> bytearray:
    """A header of another protocol version."""
    header = bytearray(HEADER_BYTES)
    pack(header)
    header[0] = 99
    return header


def test_a_client_refuses_a_message_of_another_version(world: World) -> None:
    if world.rank == 0:
        header = foreign(lambda buffer: pack_order(buffer, bare_order(0, Flag.STOP)))
        for rank in (1, 2):
            world.comm.Send([header, MPI.BYTE], dest=rank, tag=Tag.ORDER)
    else:
        end = worker_link(world, 3)
        with pytest.raises(ProtocolError, match="protocol version 99"):
            until(end.orders)
        end.close()


def test_a_receive_that_fails_without_a_message_means_that_its_rank_has_died(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI may report the failure of a receive before it lists the rank among those that have failed."""

    def fails(_requests: Any) -> list[int]:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    if world.rank:
        end = worker_link(world, 1)
        reply(end, UpdateHeader(world.rank - 1, 0, 0), np.ones(1))
        end.leave()
        return

    def lost(silent: set[int]) -> list[int]:
        told.append(silent)
        return []

    link, told = server_link(world, 1), list[set[int]]()
    take(link, CLIENTS)
    with monkeypatch.context() as patch:
        patch.setattr("areabench.transports.mpi_server.completed", fails)
        patch.setattr(link, "_is_complete", lambda slot: slot == 0)
        patch.setattr(world, "lost", lost)
        with pytest.raises(MPI.Exception):
            link.arrivals()
    assert told == [{1}]  # and its last message is not taken for a new one
    dismiss(link)
