"""The server's counters, the orders it gives and the client around its local problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.methods.table import answer
from tests.support.quadratics import GivenQuadratic

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.messages import Flag, Order
from areabench.engine.server import ErgodicMean, Server
from areabench.engine.state import FirstOrders, OpenOrder, OpenOrders
from areabench.errors import RunFailure
from areabench.methods.area import AreaState, area
from areabench.methods.as_fedavg import as_fedavg
from areabench.methods.base import Buffer, Call, Step
from areabench.methods.s_fedavg import s_fedavg
from areabench.methods.schedules import (
    ConstantSchedule,
    InverseRootSchedule,
    InverseRootTimeSchedule,
    InverseSchedule,
    InverseTimeSchedule,
    Schedule,
    ScheduleSettings,
    build_schedule,
)

START = np.array([8.0, 8.0])
HALVING: Schedule = build_schedule(InverseSchedule(offset=1.0), 8.0)  # alpha_k = 8/(1 + k)


def facts(orders: list[Order]) -> list[tuple[int, float, int, int, Flag]]:
    """Everything about orders but their models."""
    return [(order.client, order.step_size, order.version, order.iteration, order.flags) for order in orders]


def reply(server: Server, order: Order, payload: Vector) -> list[Order]:
    """The server's reply to the answer to an order."""
    return server.receive(answer(order, payload), order, 0.0)


def test_begin_calls_all_clients_with_the_first_step_size() -> None:
    server = Server(area(2), HALVING, START, clients=2)
    orders = server.begin()
    assert facts(orders) == [(0, 8, 0, 0, Flag.FIRST), (1, 8, 0, 0, Flag.FIRST)]
    assert all(np.array_equal(order.model, START) for order in orders)
    assert (server.iteration, server.version, server.updates_since_step) == (0, 0, 0)


@pytest.mark.parametrize("calls", [(2, 0), (0, 0), (Call(0, local_steps=2), 1), ()])
def test_first_orders_that_are_alike_are_kept_as_one(calls: tuple[int | Call, ...]) -> None:
    method = replace(area(3), start=lambda model: Step(AreaState(model, Buffer(), 3), calls))
    orders = Server(method, HALVING, START, clients=3, local_steps=5).first_orders()
    assert isinstance(orders, FirstOrders) == (calls == (2, 0))
    expected = [(call.client, 2) if isinstance(call, Call) else (call, 5) for call in calls]
    assert [(order.client, order.local_steps) for order in orders] == expected
    assert {(order.step_size, order.version, order.flags) for order in orders} <= {(8, 0, Flag.FIRST)}


@pytest.mark.parametrize(("client", "said"), [(3, "does not exist"), (-1, "does not exist"), (True, "not of type int")])
def test_the_rule_must_not_begin_with_any_client(client: int, said: str) -> None:
    method = replace(area(3), start=lambda model: Step(AreaState(model, Buffer(), 3), (0, client)))
    with pytest.raises(RunFailure, match=f"calls client {client}, which .*{said}"):
        Server(method, HALVING, START, clients=3).begin()


def first_of_three() -> OpenOrders:
    """Clients 3, 0 and 1 have got the same order at the start."""
    orders = OpenOrders()
    orders.begin_first(FirstOrders(Order(-1, START, 8.0, 0, 0, Flag.FIRST, 5), np.array([3, 0, 1])))
    return orders


def test_an_order_of_the_start_is_found_like_any_other() -> None:
    orders = first_of_three()
    found = orders.find(3)
    assert found == OpenOrder(Order(3, START, 8.0, 0, 0, Flag.FIRST, 5), 0, 0.0)
    assert orders.find(3) is found
    assert [orders.find(client) for client in (2, 4)] == [None, None]  # 2 was not called, 4 is beyond
    assert orders.end(1) is not None
    assert (orders.rounds, orders.local_steps) == ({1: 1}, {1: 5})
    assert (orders.find(1), orders.end(1)) == (None, None)


def test_orders_of_the_start_are_counted_with_the_others() -> None:
    orders = first_of_three()
    orders.find(3)
    assert sorted(orders.clients()) == [0, 1, 3]
    assert sorted(open_order.order.client for open_order in orders.all()) == [0, 1, 3]
    orders.begin(Order(2, START, 8.0, 0, 0), 1.0)
    assert not orders.begin(Order(0, START, 8.0, 0, 0), 1.0)  # waits for the one of the start
    assert [orders.drop(client) for client in (0, 1, 0)] == [2, 1, 0]
    assert sorted(orders.clients()) == [2, 3]


def test_reply_carries_the_step_size_of_its_own_iteration() -> None:
    server = Server(area(2), HALVING, START, clients=2)
    orders, zero = server.begin(), np.zeros(2)
    assert facts(reply(server, orders[1], zero)) == [(1, 4, 0, 1, Flag.REPLY)]  # k=1: 8/2
    assert server.aggregate(0.0) == []  # k=2
    assert facts(reply(server, orders[0], zero)) == [(0, 2, 1, 3, Flag.REPLY)]  # k=3: 8/4
    for _ in range(3):  # k=4, 5, 6
        reply(server, orders[0], zero)
    assert facts(reply(server, orders[1], zero)) == [(1, 1, 1, 7, Flag.REPLY)]  # k=7: 8/8
    assert (server.iteration, server.version, server.updates_since_step) == (7, 1, 5)


def test_calls_of_a_synchronous_round_are_no_replies() -> None:
    server = Server(s_fedavg(3, 3, seed=0), HALVING, START, clients=3)
    first = server.begin()
    assert {order.flags for order in first} == {Flag.FIRST}
    for order in first:
        assert reply(server, order, START) == []  # k=1, 2, 3
    orders = server.aggregate(0.0)  # k=4: 8/5
    assert sorted(facts(orders)) == [(client, 1.6, 1, 4, Flag.NONE) for client in range(3)]
    assert server.updates_since_step == 0


def test_model_that_was_sent_out_never_changes() -> None:
    server = Server(as_fedavg(2), build_schedule(ConstantSchedule(), 1.0), START, clients=2)
    orders = server.begin()
    sent = orders[0].model
    reply(server, orders[0], np.array([2.0, 2.0]))
    second = reply(server, orders[1], np.array([4.0, 0.0]))[0].model
    server.aggregate(0.0)
    np.testing.assert_array_equal(sent, [8, 8])
    np.testing.assert_array_equal(second, [8, 8])
    np.testing.assert_array_equal(server.model, [3, 1])


def test_average_counts_every_iteration_with_the_model_it_had() -> None:
    """x_{s,0..2} = 8, after the step at k = 3 x_s = 2, at k = 5 x_s = 4."""
    start = np.array([8.0])
    server = Server(as_fedavg(2), HALVING, start, clients=2, mean=ErgodicMean(start))
    orders = server.begin()
    averages = [server.average]  # K = 0: nothing to average yet
    for client, payload in ((0, 1.0), (0, 3.0), (None, 0.0), (1, 4.0), (None, 0.0), (1, 0.0)):
        if client is None:
            server.aggregate(0.0)
        else:
            reply(server, orders[client], np.array([payload]))
        averages.append(server.average)
    sums = [8 + 8 + 8, 8 + 8 + 8 + 2, 8 + 8 + 8 + 2 + 2, 8 + 8 + 8 + 2 + 2 + 4]  # of K = 3, 4, 5, 6
    expected = [8, 8, 8, *(total / count for count, total in enumerate(sums, 3))]
    assert np.array(averages).ravel().tolist() == expected
    assert Server(as_fedavg(2), HALVING, START, clients=2).average is None  # unless asked for


def test_average_of_single_precision_is_summed_in_double() -> None:
    mean, small, large = ErgodicMean(np.zeros(1, np.float32)), np.array([1e-4], np.float32), np.array([1e4], np.float32)
    mean.leave(large, 1)
    for iteration in range(2, 100_002):
        mean.leave(small, iteration)
    value = mean.value(small, 100_001)
    assert value.dtype == np.float32
    np.testing.assert_allclose(
        value, (1e4 + 1e5 * 1e-4) / 100_001, rtol=1e-6
    )  # in single precision 10 of 10010 is lost


@pytest.mark.parametrize(
    ("settings", "alpha", "expected"),
    [
        (ConstantSchedule(), 3.0, [3, 3, 3]),
        (InverseSchedule(offset=4.0), 3.0, [3, 1.5, 1]),  # 3/1, 3/2, 3/3
        (InverseRootSchedule(offset=4 / 3), 4.0, [4, 2, 4 / np.sqrt(7)]),  # roots of 1, 4, 7
        (InverseTimeSchedule(offset_s=4.0), 3.0, [3, 1.5, 1]),
        (InverseRootTimeSchedule(offset_s=4 / 3), 4.0, [4, 2, 4 / np.sqrt(7)]),
    ],
)
def test_schedules_by_hand(settings: ScheduleSettings, alpha: float, expected: list[float]) -> None:
    """At iterations, or at seconds, 0, 4 and 8; the other does not count."""
    schedule = build_schedule(settings, alpha)
    times = isinstance(settings, InverseTimeSchedule | InverseRootTimeSchedule)
    found = [schedule(99, float(at)) if times else schedule(at, 99.0) for at in (0, 4, 8)]
    assert found == pytest.approx(expected, rel=1e-15)


def test_an_order_has_the_step_size_of_the_time_at_which_it_leaves() -> None:
    server = Server(area(2), build_schedule(InverseTimeSchedule(offset_s=1.0), 8.0), START, clients=2)
    orders = server.begin()
    assert [order.step_size for order in orders] == [8, 8]
    assert [order.step_size for order in server.receive(answer(orders[0], START), orders[0], 1.0)] == [4]
    assert server.again(orders[1], 3.0).step_size == 2


def test_client_counts_rounds_and_keeps_its_memory() -> None:
    problem = GivenQuadratic([[[1, 0], [0, 1]]], [[4, 0]], [8, 8], 1)
    client = Client(area(1), problem.local(0), START)
    np.testing.assert_array_equal(client.memory, START)
    np.testing.assert_array_equal(client.work(Order(0, START, 0.5, 0, 0, local_steps=1)), [-2, -4])  # (6,4) - (8,8)
    np.testing.assert_array_equal(client.work(Order(0, START, 0.25, 0, 0, local_steps=1)), [1, 2])  # (7,6) - (6,4)
    np.testing.assert_array_equal(client.memory, [7, 6])
    assert client.round == 2
    np.testing.assert_array_equal(START, [8, 8])
