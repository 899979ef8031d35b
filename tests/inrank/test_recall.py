"""The wire in bad times: clients are asked what they remember, and get it back; messages that cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numpy.typing import NDArray
from tests.inrank.test_links import (
    SIZES,
    dismiss,
    one_order,
    order_to,
    reply,
    server_link,
    take,
    until,
    worker_link,
)

from areabench.engine.client import place
from areabench.engine.events import Reason
from areabench.engine.messages import (
    HEADER_BYTES,
    Flag,
    Tag,
    Update,
    UpdateHeader,
    pack_update,
)
from areabench.errors import RunFailure
from areabench.transports.mpi_server import MpiServerLink, send_memories
from areabench.transports.mpi_worker import MpiWorkerLink, receive_memories
from areabench.transports.world import World

pytestmark = pytest.mark.mpi(min_size=3)


def memory(client: int, number: int, dimension: int) -> NDArray[Any]:
    """What a client remembers when a round begins."""
    return np.full(dimension, 100.0 * client + number)


def answer_one(end: MpiWorkerLink, dimension: int) -> None:
    """Wait for one question, and answer it."""
    question = one_order(end)
    assert question.flags is Flag.RECALL
    end.answer(question, memory(question.client, question.version, dimension))


def answers(link: MpiServerLink, count: int, dimension: int) -> list[tuple[int, float]]:
    """So many answers: the client, and what each entry of its memory is."""
    found = []
    for _ in range(count):
        client, vector = until(link.recall.answer)
        assert vector.shape == (dimension,)
        assert (vector == vector[0]).all()
        found.append((client, vector[0]))
    return found


# ---------------------------------------------------------------------------------------------------- memories


@SIZES
def test_clients_send_their_memories_in_the_order_of_asking(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        assert link.recall.answer() is None
        link.recall.ask({1: 3, 0: 5}, in_order=True)
        assert link.recall.awaited
        assert answers(link, 2, dimension) == [(1, 103.0), (0, 5.0)]
        assert not link.recall.awaited
        dismiss(link)
    else:
        end = worker_link(world, dimension)
        answer_one(end, dimension)
        end.leave()


@SIZES
def test_answers_to_a_cancelled_question_are_discarded(world: World, dimension: int) -> None:
    if world.rank == 0:
        link = server_link(world, dimension)
        link.recall.ask({0: 1, 1: 1}, in_order=True)
        assert answers(link, 1, dimension) == [(0, 1.0)]
        link.recall.give_up(())
        link.recall.ask({0: 2, 1: 2}, in_order=True)
        assert answers(link, 2, dimension) == [(0, 2.0), (1, 102.0)]
        link.recall.ask({1: 3})
        link.recall.give_up(())
        until(lambda: link.recall.answer() is None and not link.recall.awaited)
        dismiss(link)
    else:
        end = worker_link(world, dimension)
        for _ in range(1 + world.rank):  # client 1 is asked once more than client 0
            answer_one(end, dimension)
        end.leave()


@SIZES
def test_a_rank_that_is_silent_holds_up_no_other(world: World, dimension: int) -> None:
    """Its answer comes after two questions more, and is dropped."""
    if world.rank == 0:
        link = server_link(world, dimension)
        for number in (1, 2):
            link.recall.ask({0: number, 1: number} if number == 1 else {1: number})
            assert answers(link, 1, dimension) == [(1, 100.0 + number)]
            assert link.recall.owing == {0}
            link.recall.give_up(())
        world.barrier()
        link.recall.ask({0: 3})
        assert answers(link, 1, dimension) == [(0, 3.0)]
        assert not link.recall.awaited
        dismiss(link)
    else:
        end = worker_link(world, dimension)
        if world.rank == 1:
            world.barrier()
        for _ in range(2):
            answer_one(end, dimension)
        if world.rank == 2:
            world.barrier()
        end.leave()


def test_a_question_between_two_orders_disturbs_neither(world: World) -> None:
    if world.rank == 0:
        link = server_link(world, 3)
        for client in range(2):
            link.order(order_to(client, np.ones(3), 1))
        link.recall.ask({0: 0, 1: 0})
        for update in take(link, 2):
            np.testing.assert_array_equal(update.payload, [1, 1, 1])
            link.order(order_to(update.header.client, np.full(3, 2.0), 2))
        assert sorted(answers(link, 2, 3)) == [(0, 0.0), (1, 100.0)]
        for update in take(link, 2):
            np.testing.assert_array_equal(update.payload, [2, 2, 2])
        dismiss(link)
    else:
        end, number = worker_link(world, 3), world.rank - 1
        order = one_order(end)
        answer_one(end, 3)
        np.testing.assert_array_equal(order.model, [1, 1, 1])  # the question has not touched it
        reply(end, UpdateHeader(number, 0, 1), order.model)
        reply(end, UpdateHeader(number, 1, 2), one_order(end).model)
        end.leave()


def test_a_client_that_is_asked_while_it_stops_still_answers(world: World) -> None:
    """It has failed, or its rank has received the stop of another client first."""
    if world.rank == 0:
        link = server_link(world, 3)
        (failed,) = take(link, 1)
        link.recall.ask({0: 0, 1: 0})
        link.recall.give_up(())
        link.recall.ask({0: 0})
        assert link.failure(failed.header.client) == "out of sorts"
        link.recall.give_up(())
        link.stop_all()
        assert [update.header.client for update in take(link, 1)] == [1]
        until(lambda: link.recall.answer() is None and not link.recall.awaited)
        link.close()
    else:
        end = worker_link(world, 3)
        if world.rank == 1:
            end.fail(0, "out of sorts")
        end.leave()


@SIZES
def test_memories_come_back_to_their_clients(world: World, dimension: int) -> None:
    """Five clients, of which two have never worked."""
    placement, remembering = place(5, 3), (4, 0, 3)
    if world.rank == 0:
        send_memories(world, placement, {client: memory(client, 7, dimension) for client in remembering})
    else:
        mine = [client for client in placement.hosted(world.rank) if client in remembering]
        found = receive_memories(world, mine, np.empty(dimension))
        assert list(found) == mine
        for client, vector in found.items():
            np.testing.assert_array_equal(vector, memory(client, 7, dimension))


# ---------------------------------------------------------------------------------------------------- flaws


def message(header: UpdateHeader, claimed_bytes: int, length: int = HEADER_BYTES + 24) -> bytearray:
    """A message of this many bytes; one of the right kind has three numbers behind its header."""
    buffer = bytearray(max(length, HEADER_BYTES))
    pack_update(buffer, header, claimed_bytes)
    return buffer[:length]


def foreign() -> bytearray:
    """A message of another protocol version."""
    buffer = message(UpdateHeader(1, 0, 0), 24)
    buffer[0] = 99
    return buffer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (foreign, Reason.PROTOCOL),
        (lambda: message(UpdateHeader(1, 0, 0, flags=Flag.STOP), 24), Reason.PROTOCOL),
        (lambda: message(UpdateHeader(7, 0, 0), 24), Reason.CLIENT),
        (lambda: message(UpdateHeader(1, 0, 0), 16), Reason.LENGTH),
        (lambda: message(UpdateHeader(1, 0, 0), 0, HEADER_BYTES), Reason.LENGTH),  # a header alone
        (lambda: message(UpdateHeader(1, 0, 0), 24, 2), Reason.CLIENT),  # not even a header
        (lambda: message(UpdateHeader(1, 0, 0), 32, HEADER_BYTES + 32), Reason.LENGTH),  # more than there is room for
    ],
    ids=["version", "flags", "client", "claimed length", "header alone", "two bytes", "too long"],
)
def test_a_message_that_cannot_be_read_is_reported_and_the_next_one_is_read(
    world: World, make: Callable[[], bytearray], reason: Reason
) -> None:
    if world.rank == 0:
        link = server_link(world, 3)
        good: list[Update] = []
        unreadable: list[tuple[int, Reason]] = []
        while len(good) < 2 or not unreadable:
            good += [update._replace(payload=update.payload.copy()) for update in link.arrivals()]
            unreadable += link.unreadable()
            time.sleep(1e-4)
        assert unreadable == [(1, reason)]
        assert list(link.unreadable()) == []
        assert sorted(update.header.client for update in good) == [0, 1]
        for update in good:
            np.testing.assert_array_equal(update.payload, [5, 5, 5])
        dismiss(link)
    else:
        if world.rank == 2:
            world.comm.Send([make(), MPI.BYTE], dest=0, tag=Tag.UPDATE)
        end, number = worker_link(world, 3), world.rank - 1
        reply(end, UpdateHeader(number, 0, 0), np.full(3, 5.0))
        end.leave()


def test_a_rank_of_several_clients_must_say_whose_message_it_is(world: World) -> None:
    """A flaw is reported of the client that the header names; where it names none, no order can follow."""
    clients = 4
    if world.rank == 0:
        link = server_link(world, 3, clients)
        assert until(lambda: not link.arrivals() and link.unreadable()) == [(3, Reason.LENGTH)]
        world.barrier()
        with pytest.raises(RunFailure, match="rank 2 sent a message that names none of its 2 clients"):
            until(lambda: not link.arrivals() and link.unreadable())
        dismiss(link, clients)  # the third message is no obstacle
    else:
        end, good, bad = worker_link(world, 3, clients), UpdateHeader(3, 0, 0), UpdateHeader(2, 0, 0)
        if world.rank == 2:
            world.comm.Send([message(good, 16), MPI.BYTE], dest=0, tag=Tag.UPDATE)
        world.barrier()
        if world.rank == 2:
            world.comm.Send([message(bad, 24), MPI.BYTE], dest=0, tag=Tag.UPDATE)
            until(lambda: not end.orders() and end.stopped)
            world.comm.Send([message(bad, 24), MPI.BYTE], dest=0, tag=Tag.UPDATE)
        end.leave()
