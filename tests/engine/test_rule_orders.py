"""What a rule may say besides who works next: replies after the step, given orders, queues, interrupts, own times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.methods.table import Table, answer
from tests.support.quadratics import GivenQuadratic
from tests.support.texts import quadratic

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.events import Kind, Reason, State
from areabench.engine.messages import AGAIN, Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import build_scenario
from areabench.engine.server import Server
from areabench.engine.state import OpenOrder, refusal_reason
from areabench.errors import RunFailure
from areabench.experiment.parse import parse_experiment
from areabench.methods.base import Arrival, Call, Method, Report, Step, Work, remember_nothing
from areabench.methods.s_fedavg import s_fedavg

START = np.array([8.0])


class RuleState(NamedTuple):
    """The model, how many updates have arrived, and when to step by the clock."""

    model: Vector
    received: int = 0
    next_s: float = math.inf


Receive = Callable[[RuleState, Arrival], Step]


def problem(local_steps: int = 1) -> GivenQuadratic:
    """With alpha = 1/2 a local step of client 0 is x -> x/2, one of client 1 x -> (x + 4)/2; start 8."""
    return GivenQuadratic([[[1]], [[1]]], [[0], [4]], [8], local_steps)


def rule(receive: Receive | None = None, calls: tuple[int | Call, ...] = (0, 1), **parts: Any) -> Method:
    """A rule that calls the sender again and adds one to the model at each step; `parts` replace what it does."""

    def report(_memory: None, work: Work) -> Report:
        return Report(work.local - work.model, None)

    def taken(state: RuleState, arrival: Arrival) -> Step:
        return Step(state._replace(received=state.received + 1), (arrival.client,))

    method = Method(
        "tried", remember_nothing, report, lambda model: Step(RuleState(model), calls), receive or taken,
        lambda state: Step(state._replace(model=state.model + 1)),
    )  # fmt: skip
    return replace(method, **parts)


def silent(state: RuleState, _arrival: Arrival) -> Step:
    """Take an update in and call nobody."""
    return Step(state._replace(received=state.received + 1))


def keep(arrivals: list[Arrival]) -> Receive:
    """Keep what the rule gets."""

    def receive(state: RuleState, arrival: Arrival) -> Step:
        arrivals.append(arrival._replace(payload=arrival.payload.copy()))
        return Step(state)

    return receive


def served(method: Method, local_steps: int = 1) -> tuple[Server, list[Order]]:
    """A server of two clients, and what it tells them after the first answer."""
    server = Server(method, lambda _iteration, _time_s: 0.5, START, 2, local_steps)
    first = server.begin()[0]
    return server, server.receive(answer(first, START), first, 1.0)


def kinds(table: Table) -> list[Kind]:
    return [event.kind for event in table.recorder.events]


# ---------------------------------------------------------------------------------------------------- replies


def test_a_reply_after_the_step_carries_the_new_model() -> None:
    table = Table(rule(reply="after"), problem(), delta=2)
    table.deliver(0)  # k=1, no step: the reply leaves all the same
    assert (table.holds(0), table.orders[0].flags) == (([8], 0, 1), Flag.REPLY)
    table.deliver(1)  # k=2, the step k=3
    assert (table.holds(1), table.orders[1].flags) == (([9], 1, 3), Flag.REPLY)
    assert kinds(table) == [Kind.UPDATE, Kind.UPDATE, Kind.STEP]


def test_replies_after_the_step_come_before_the_calls_of_the_step() -> None:
    method = rule(reply="after", aggregate=lambda state: Step(state._replace(model=state.model + 1), (1,)))
    server, told = served(method)
    assert told == []
    orders = server.aggregate(1.0)
    assert [(order.client, order.version, order.flags) for order in orders] == [(0, 1, Flag.REPLY), (1, 1, Flag.NONE)]
    assert server.replies() == []  # once only


def test_only_the_order_to_the_sender_is_a_reply() -> None:
    method = rule(lambda state, arrival: Step(state, (1, arrival.client)), calls=(0,))
    table = Table(method, problem(), delta=9)
    table.deliver(0)
    assert [table.orders[client].flags for client in (0, 1)] == [Flag.REPLY, Flag.NONE]


# ---------------------------------------------------------------------------------------------------- given orders


def test_a_call_may_give_the_model_the_step_size_and_the_local_steps() -> None:
    arrivals = list[Arrival]()
    calls = (Call(0, np.array([2.0]), 0.25, 3), Call(1, local_steps=2))
    table = Table(rule(keep(arrivals), calls), problem(), delta=9)
    assert [order.given for order in table.orders.values()] == [True, False]
    table.deliver(0, 1)  # 2 -> 1.5 -> 1.125 -> 0.84375; 8 -> 6 -> 5
    assert [each.payload.tolist() for each in arrivals] == [[-1.15625], [-3]]
    assert [each.model.tolist() for each in arrivals] == [[2], [8]]
    assert [(each.step_size, each.local_steps, each.round, each.time_s) for each in arrivals] == [
        (0.25, 3, 0, 1.0),
        (0.5, 2, 0, 2.0),
    ]


def test_a_given_order_is_sent_again_as_it_was_and_others_with_the_current_model() -> None:
    given = Call(0, np.array([2.0]), local_steps=3, waits=True)
    table = Table(rule(silent, (given, Call(1, local_steps=2))), problem())
    table.conductor.timer(1.0)  # the step k=1: x_s = 9
    for client in (0, 1):
        table.orders.pop(client)
        table.conductor.refuse(client, Reason.NOT_FINITE, 2.0)
    assert (table.holds(0), table.holds(1)) == (([2], 0, 1), ([9], 1, 1))
    assert [(order.flags, order.local_steps) for order in table.orders.values()] == [
        (AGAIN | Flag.WAITS, 3),
        (AGAIN, 2),
    ]
    assert [order.step_size for order in table.orders.values()] == [0.5, 0.5]


def test_staleness_is_counted_in_server_steps() -> None:
    arrivals = list[Arrival]()
    table = Table(rule(keep(arrivals)), problem())
    table.conductor.timer(1.0)
    table.conductor.timer(2.0)
    table.deliver(0, time_s=3.0)
    assert [(each.version, each.staleness) for each in arrivals] == [(0, 2)]


# ---------------------------------------------------------------------------------------------------- queues


def test_a_busy_client_takes_its_orders_first_in_first_out() -> None:
    calls = (0, Call(0, step_size=0.25), Call(0, local_steps=2), 1)
    table = Table(rule(silent, calls), problem())
    taken = [table.orders[0]]
    for _ in range(2):
        table.deliver(0)  # a server step follows
        taken.append(table.orders[0])
    assert [(order.step_size, order.local_steps) for order in taken] == [(0.5, 1), (0.25, 1), (0.5, 2)]
    assert [order.flags for order in taken] == [Flag.FIRST, Flag.REPLY, Flag.REPLY]
    assert [order.version for order in taken] == [0, 0, 0]  # of when they were given
    assert [event.staleness for event in table.recorder.events if event.kind == Kind.UPDATE] == [0, 1]
    table.deliver(0)
    assert 0 not in table.orders


def test_a_reply_waits_behind_what_is_queued() -> None:
    table = Table(rule(calls=(0, Call(0, step_size=0.25))), problem())
    table.deliver(0)
    assert table.orders[0].step_size == 0.25
    table.deliver(0)  # the reply to the first update, from before its step
    assert (table.holds(0), table.orders[0].flags) == (([8], 0, 1), Flag.REPLY)


def test_queued_orders_are_in_the_state_of_a_run_and_lost_with_their_client() -> None:
    lost = list[int]()

    def lose(state: RuleState, _client: int, orders: int) -> Step:
        lost.append(orders)
        return Step(state)

    calls = (0, 0, Call(0, step_size=0.25), 1)
    table = Table(rule(silent, calls, lose=lose), problem())
    state = table.conductor.run_state(0.0)
    assert [order.step_size for order in state.queued] == [0.5, 0.25]
    again = Table(rule(silent, (), lose=lose), problem())
    again.conductor.resume(state)
    again.orders = {open_order.order.client: open_order.order for open_order in state.open_orders}
    again.deliver(0, 0)
    assert again.orders[0].step_size == 0.25
    table.lose(0)
    again.lose(0)
    assert lost == [3, 1]


# ---------------------------------------------------------------------------------------------------- steps


def test_a_rule_that_does_not_step_leaves_the_counters() -> None:
    method = rule(reply="after", aggregate=lambda state: Step(state, stepped=False))
    table = Table(method, problem(), delta=2)
    table.deliver(0, 1, 0)
    assert kinds(table) == [Kind.UPDATE, Kind.UPDATE, Kind.NO_STEP, Kind.UPDATE, Kind.NO_STEP]
    assert table.counters() == (3, 0)
    assert table.server.updates_since_step == 3
    assert [(event.iteration, event.version) for event in table.recorder.events] == [(k, 0) for k in (1, 2, 2, 3, 3)]
    assert table.recorder.tally.status(State.DONE, "").server_steps == 0
    assert table.holds(0) == ([8], 0, 3)  # answered all the same


def test_a_rule_may_say_when_a_step_is_due() -> None:
    method = rule(due=lambda state: state.received == 3, aggregate=lambda state: Step(RuleState(state.model + 1)))
    table = Table(method, problem())
    versions = []
    for client in (0, 0, 1, 0, 1, 1):
        table.deliver(client)
        versions.append(table.server.version)
    assert versions == [0, 0, 1, 1, 1, 2]


def test_a_loss_may_make_a_step_due() -> None:
    table = Table(s_fedavg(2, clients_per_round=2, seed=0), problem())
    table.deliver(0)  # 8 -> 4
    table.lose(1)  # nobody else can be drawn: the round is full
    assert (kinds(table), table.model()) == ([Kind.UPDATE, Kind.LOST, Kind.STEP], [4])
    assert sorted(table.orders) == [0]


def waking(**parts: Any) -> Method:
    """A rule that steps at 2 s, and then two seconds after each step and at least one second after each update."""

    def receive(state: RuleState, arrival: Arrival) -> Step:
        return Step(state._replace(next_s=max(state.next_s, arrival.time_s + 1)), (arrival.client,))

    return rule(
        receive,
        start=lambda model: Step(RuleState(model, next_s=2.0), (0, 1)),
        aggregate=lambda state: Step(RuleState(state.model + 1, next_s=state.next_s + 2)),
        wake=lambda state: state.next_s,
        **parts,
    )


def test_a_rule_may_say_when_it_wakes() -> None:
    table = Table(waking(), problem())
    assert table.conductor.timer_s == 2.0
    table.deliver(0, time_s=1.5)  # asked after every event; no update makes it step
    assert (table.conductor.timer_s, table.server.version) == (2.5, 0)
    table.wake()
    assert (table.time_s, table.conductor.timer_s, table.model()) == (2.5, 4.5, [9])
    table.conductor.lose([1], 3.0)
    assert table.conductor.timer_s == 4.5


def test_a_resumed_run_asks_when_to_wake() -> None:
    table, resumed = Table(waking(), problem()), Table(waking(), problem())
    table.wake()
    resumed.conductor.resume(table.conductor.run_state(2.0))
    assert resumed.conductor.timer_s == 4.0


def test_a_rule_must_not_wake_at_a_time_that_is_over() -> None:
    table = Table(waking(), problem())
    stuck = Table(replace(waking(), wake=lambda _state: 2.0), problem())
    table.wake()
    said = 'method "tried" asks at 2 s to be woken at 2 s, which is over; let `wake` return a later time after each'
    with pytest.raises(RunFailure, match=said):
        stuck.wake()


# ---------------------------------------------------------------------------------------------------- interrupts


def interrupting(**told: Any) -> Method:
    """A rule that tells clients something when an update of client 0 arrives."""
    return rule(lambda state, arrival: Step(state, **(told if arrival.client == 0 else {})), interrupts=True)


def test_a_cancelled_order_is_dropped_and_its_late_update_ignored() -> None:
    table = Table(interrupting(cancels=(1,), calls=(0, 1)), problem(), delta=9)
    table.deliver(0, time_s=1.5)
    assert (table.cancelled, table.contacted) == ([1], [])
    assert [order.version for order in table.interrupts] == [0]  # names the round
    (row,) = [event for event in table.recorder.events if event.kind == Kind.CANCELLED]
    assert (row.client, row.round, row.base_version, row.realised_delay_s, row.local_steps) == (1, 0, 0, 1.5, 0)
    assert table.orders[1].flags == Flag.NONE  # no reply: the client has sent nothing
    assert table.conductor.round_of(1) == table.clients[1].round == 1
    late = Update(UpdateHeader(1, 0, 0, local_steps=1), np.array([-2.0]))
    before = len(table.recorder.events)
    table.conductor.update(late, 2.0)
    table.conductor.discard(late, 3.0)
    assert (len(table.recorder.events), table.counters()) == (before, (1, 0))
    table.deliver(1)
    assert kinds(table)[-1] == Kind.UPDATE


def test_a_cancelled_order_leaves_the_next_one_in_the_queue_to_its_client() -> None:
    def receive(state: RuleState, _arrival: Arrival) -> Step:
        return Step(state, cancels=(1,))

    table = Table(rule(receive, (0, 1, Call(1, step_size=0.25)), interrupts=True), problem(), delta=9)
    table.deliver(0)
    assert (table.orders[1].step_size, table.orders[1].flags) == (0.25, Flag.NONE)


def test_a_contacted_client_sends_what_its_local_steps_have_led_to() -> None:
    arrivals = list[Arrival]()

    def receive(state: RuleState, arrival: Arrival) -> Step:
        arrivals.append(arrival._replace(payload=arrival.payload.copy()))
        return Step(state, contacts=(1,) if arrival.client == 0 else ())

    calls = (0, Call(1, waits=True))
    table = Table(rule(receive, calls, interrupts=True), problem(local_steps=3), delta=9, stepwise=True)
    assert table.orders[1].flags == Flag.FIRST | Flag.WAITS
    table.deliver(0)
    assert table.contacted == [1]
    assert 1 in table.orders  # the order is still open
    table.deliver(1, made=2)  # 8 -> 6 -> 5, and not on to 4.5
    assert (arrivals[1].payload.tolist(), arrivals[1].local_steps) == ([-3], 2)
    assert table.recorder.events[-1].local_steps == 2


def test_cancels_come_before_calls_and_contacts_after_them() -> None:
    _, orders = served(interrupting(cancels=(1,), calls=(0, 1), contacts=(1,)))
    assert [(order.client, order.flags) for order in orders] == [
        (1, Flag.CANCEL), (0, Flag.REPLY), (1, Flag.NONE), (1, Flag.CONTACT),
    ]  # fmt: skip


def test_the_row_of_a_step_has_the_step_size_of_its_orders() -> None:
    method = rule(interrupts=True, aggregate=lambda state: Step(state, (1,), cancels=(1,)))
    table = Table(method, problem())
    table.deliver(0)
    (row,) = [event for event in table.recorder.events if event.kind == Kind.STEP]
    assert row.step_size == 0.5


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"cancels": (0,)}, "cancels the order of client 0, which has no order; call it first"),
        ({"contacts": (0,)}, "contacts client 0, which has no order; call it first"),
        ({"cancels": (2,)}, "cancels client 2, which does not exist; name clients from 0 to 1"),
        ({"contacts": (-1,)}, "contacts client -1, which does not exist; name clients from 0 to 1"),
        ({"calls": (2,)}, "calls client 2, which does not exist; name clients from 0 to 1"),
        ({"calls": (Call(7),)}, "calls client 7, which does not exist"),
        ({"calls": (True,)}, r"calls client True, which is not of type int; write int\(client\)"),
        ({"calls": (Call(np.int64(1)),)}, r"calls client np.int64\(1\), which is not of type int"),  # type: ignore[arg-type]
        ({"calls": (Call(1, local_steps=0),)}, "calls client 1 for 0 local steps; give a whole number >= 1"),
        ({"calls": (Call(1, local_steps=1.5),)}, "calls client 1 for 1.5 local steps"),  # type: ignore[arg-type]
    ],
)
def test_clients_that_cannot_be_told_anything_are_named(told: dict[str, Any], said: str) -> None:
    table = Table(interrupting(**told), problem())
    with pytest.raises(RunFailure, match=f'^method "tried" {said}'):
        table.deliver(0)


def test_a_lost_client_must_not_be_called() -> None:
    table = Table(interrupting(calls=(1,)), problem())
    table.lose(1)
    with pytest.raises(RunFailure, match='method "tried" calls client 1, which is lost; let its function `lose` note'):
        table.deliver(0)


def test_a_client_that_chooses_its_local_steps_is_not_interrupted() -> None:
    with pytest.raises(RunFailure, match='method "tried" interrupts client 1, which chooses its local steps itself; '):
        served(interrupting(contacts=(1,)), local_steps=0)


# ---------------------------------------------------------------------------------------------------- shapes


def test_the_shapes_of_what_travels_are_those_of_the_method(tmp_path: Path) -> None:
    scenario = build_scenario(parse_experiment(quadratic()), tmp_path)
    plain = scenario.shapes
    assert plain.attached is None
    assert (plain.payload.shape, plain.payload.dtype) == ((3,), np.dtype(np.float64))
    method = rule(
        remember=lambda start: np.zeros((4, len(start)), np.float32),
        attach=lambda state: state.model[:2],
        payload_like=lambda start: np.stack([start, start]),
    )
    shapes = replace(scenario, method=method).shapes
    assert shapes.attached is not None
    assert shapes.memory is not None
    assert [each.shape for each in (shapes.model, shapes.attached, shapes.payload, shapes.memory)] == [
        (3,), (2,), (2, 3), (4, 3),
    ]  # fmt: skip
    assert shapes.memory.dtype == np.dtype(np.float32)
    assert shapes.largest_bytes == 64 + 48  # 4·3 floats in single precision, 2·3 or 3 + 2 in double


def test_what_is_attached_reaches_the_local_steps() -> None:
    method = rule(
        attach=lambda state: 2 * state.model, correct=lambda _memory, work, gradient: gradient + work.attached
    )
    table = Table(method, problem())
    assert table.orders[0].attached == [16]
    table.deliver(0)  # the step: x_s = 9
    table.refresh()
    assert table.orders[0].attached == [18]
    arrivals = list[Arrival]()
    corrected = Table(replace(method, receive=keep(arrivals)), problem())
    corrected.deliver(0)  # 8 - (8 + 16)/2 = -4
    assert arrivals[0].payload.tolist() == [-12]


def test_a_memory_of_what_was_attached_is_the_clients_own() -> None:
    method = rule(remember=np.zeros_like, report=lambda _memory, work: Report(work.local - work.model, work.attached))
    client, lent = Client(method, problem().local(0), START), np.array([3.0])
    client.work(Order(0, START, 0.5, 0, 0, local_steps=1, attached=lent))
    lent[:] = 7  # the transport uses its buffer again
    assert client.memory == [3]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (np.array([[1.0], [2.0]]), Reason.NONE),
        (np.array([[1.0], [math.nan]]), Reason.NOT_FINITE),
        (np.array([1.0]), Reason.LENGTH),
        (np.array([1.0, 2.0]), Reason.LENGTH),
    ],
)
def test_a_payload_has_the_shape_that_the_method_says(payload: Vector, reason: Reason) -> None:
    order = Order(0, START, 0.5, 0, 0, local_steps=1)
    assert refusal_reason(answer(order, payload), OpenOrder(order, 0, 0.0), np.zeros((2, 1))) is reason
