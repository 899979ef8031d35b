"""Ringmaster, Rennala, Malenia and Ringleader: what their papers promise, and what lost clients leave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from tests.methods.every_method import Recorded, experiment_of, updates
from tests.methods.table import Table, arrival
from tests.support.quadratics import bowls, two_clients

from areabench.engine.events import Kind
from areabench.methods.async_sgd import async_sgd, full_step
from areabench.methods.base import Method
from areabench.methods.malenia import harmonic_mean, malenia
from areabench.methods.rennala import rennala
from areabench.methods.ringleader import ringleader
from areabench.methods.ringmaster import ringmaster
from areabench.timing.exponential import ExponentialDelays

NUMBERS = st.lists(st.integers(0, 3), max_size=60)


# ---------------------------------------------------------------------------------------------------- Ringmaster


def test_ringmaster_stops_late_clients_by_hand() -> None:
    table = Table(ringmaster(2, max_delay=2, stops=True), two_clients(), stepwise=True)
    table.deliver(0)
    assert table.cancelled == []
    table.deliver(0)  # version 2 is (5,2); client 1 works on version 0
    assert table.cancelled == [1]
    assert table.holds(1) == ([5, 2], 2, 4)
    table.deliver(0)  # (5,2) - (0.5,1)
    table.deliver(1)  # one version old: (4.5,1) - (5,-3)
    assert table.model() == [-0.5, 4]
    assert table.holds(1) == ([-0.5, 4], 4, 8)
    assert table.clients[1].round == 2  # the cancelled round counts


@drawn(numbers=NUMBERS)
def test_ringmaster_without_a_threshold_is_asynchronous_sgd(numbers: list[int]) -> None:
    tables = [
        Table(method, bowls(4)) for method in (ringmaster(4, 10**9, stops=False), async_sgd(4, 4, full_step, None))
    ]
    for table in tables:
        table.deliver(*numbers)
    assert tables[0].model() == tables[1].model()
    assert tables[0].counters() == tables[1].counters()


@pytest.mark.parametrize("stops", [False, True])
@drawn(numbers=NUMBERS, max_delay=st.integers(1, 6))
def test_ringmaster_uses_nothing_older_than_its_threshold(stops: bool, numbers: list[int], max_delay: int) -> None:
    table = Table(ringmaster(4, max_delay, stops), bowls(4), stepwise=stops)
    for number in numbers:
        version, age = table.server.version, table.server.version - table.orders[number].version
        table.deliver(number)
        assert table.server.version == version + (age < max_delay)
        if stops:
            assert all(table.server.version - order.version < max_delay for order in table.orders.values())


def test_ringmaster_does_not_stop_a_lost_client() -> None:
    table = Table(ringmaster(3, max_delay=2, stops=True), bowls(3), stepwise=True)
    table.lose(2)
    table.deliver(0, 0)
    assert table.cancelled == [1]


def test_ringmaster_knows_the_order_that_follows_a_refused_update() -> None:
    table = Table(ringmaster(2, max_delay=2, stops=True), two_clients(), stepwise=True)
    table.deliver(0)
    table.refuse(1)  # it works again, from version 1
    assert table.holds(1)[1] == 1
    table.deliver(0)  # version 2: one version old
    assert table.cancelled == []
    table.deliver(0)  # version 3: two versions old
    assert table.cancelled == [1]
    assert table.holds(1)[1] == 3


def test_stops_are_recorded(record: Recorded) -> None:
    """A cancelled round gives no update, and an update has all its local steps."""
    run = record(experiment_of("ringmaster", max_delay=3, stops=True, delays=ExponentialDelays(per="step")))
    events = run.events_array
    stopped, used = (
        {(int(row["client"]), int(row["round"])) for row in events[events["kind"] == kind]}
        for kind in (Kind.CANCELLED, Kind.UPDATE)
    )
    assert len(stopped) > 3
    assert not stopped & used
    assert updates(run)["staleness"].max() == 2  # below R = 3
    assert (updates(run)["local_steps"] == 2).all()


# ---------------------------------------------------------------------------------------------------- Rennala


@drawn(numbers=NUMBERS, batch=st.integers(1, 5))
def test_rennala_uses_exactly_s_updates_that_began_at_its_model(numbers: list[int], batch: int) -> None:
    table, fresh = Table(rennala(4, batch), bowls(4)), 0
    for number in numbers:
        fresh += table.orders[number].version == table.server.version
        table.deliver(number)
        assert divmod(fresh, batch) == (table.server.version, table.server.state.buffer.size)


# ---------------------------------------------------------------------------------------------------- Malenia


@pytest.mark.parametrize(("counts", "mean"), [((1, 1), 1.0), ((2, 1, 1), 1.2), ((4, 4), 4.0), ((3, 6), 4.0)])
def test_harmonic_means(counts: tuple[int, ...], mean: float) -> None:
    assert harmonic_mean(counts) == pytest.approx(mean, rel=1e-15)


@drawn(numbers=NUMBERS)
def test_malenia_weighs_all_clients_alike(numbers: list[int]) -> None:
    """Without noise each step is one of gradient descent on the mean, whoever sends how often."""
    table = Table(malenia(4, batch=6), bowls(4))
    for number in numbers:
        before, version = np.array(table.model()), table.server.version
        table.deliver(number)
        if table.server.version > version:  # the mean of the centres is (1.5,-1.5)
            np.testing.assert_allclose(table.model(), before - (before - [1.5, -1.5]) / 2, atol=1e-12)


def test_malenia_steps_without_a_lost_client() -> None:
    table = Table(malenia(2, batch=1), two_clients())
    table.deliver(0)
    table.lose(1)  # those who are left have given enough: (8,8) - (2,4)
    assert table.model() == [6, 4]
    assert table.counters() == (2, 1)


# ---------------------------------------------------------------------------------------------------- Ringleader


@pytest.mark.parametrize("method", [malenia(2, batch=2), ringleader(2)], ids=lambda method: method.name)
def test_a_table_has_the_mean_of_each_client(method: Method) -> None:
    state = method.start(np.array([8.0, 8.0])).state
    for client, payload in ((0, [4.0, 0.0]), (0, [0.0, 2.0]), (1, [6.0, 3.0])):
        state = method.receive(state, arrival(client, np.array(payload))).state
    assert method.due is not None
    assert method.due(state)
    assert method.aggregate(state).state.model.tolist() == [8 - 4, 8 - 2]  # ((2,1) + (6,3))/2


@pytest.mark.parametrize("clients", [1, 2, 4])
@drawn(numbers=NUMBERS)
def test_ringleader_uses_gradients_at_most_2n_minus_2_versions_old(clients: int, numbers: list[int]) -> None:
    """And all of a client's gradients in a table began at the same model, and each round has n steps."""
    table = Table(ringleader(clients), bowls(clients))
    current, later = dict[int, int](), dict[int, int]()  # version that each client's entry began at
    steps = 0  # of the round
    for number in (each % clients for each in numbers):
        awaited, began, version = table.server.state.awaited, table.orders[number].version, table.server.version
        entries = current if not awaited or number in awaited else later
        assert entries.setdefault(number, began) == began
        table.deliver(number)
        if table.server.version == version:
            continue
        steps += 1
        assert len(current) == clients
        assert max(version - began for began in current.values()) <= 2 * clients - 2
        if not table.server.state.awaited:
            assert steps == clients
            current, later, steps = later, {}, 0


@drawn(numbers=st.lists(st.integers(0, 3), min_size=200, max_size=300))
def test_ringleader_keeps_the_sum_of_its_rows(numbers: list[int]) -> None:
    table = Table(ringleader(4), bowls(4))
    for number in numbers:
        table.deliver(number)
        state = table.server.state
        if not state.awaited:
            rows = [state.rows[client] for client in range(4) if state.counts[client]]
            np.testing.assert_allclose(state.total, np.sum(rows, axis=0) if rows else 0 * state.total, atol=1e-9)


def test_ringleader_goes_on_without_a_client_that_is_lost_in_phase_1() -> None:
    table = Table(ringleader(3), bowls(3))
    table.deliver(0, 1)
    table.lose(2)  # the table is complete: the others have their steps at their next updates
    assert table.counters() == (2, 0)
    # At (8,8) the pseudo-gradients are (4,4) and (3.5,4.5).
    table.deliver(1)
    assert table.model() == [8 - 3.75, 8 - 4.25]
    table.deliver(0)
    assert table.model() == [8 - 7.5, 8 - 8.5]
    assert table.server.state.awaited == ()


def test_ringleader_takes_the_row_of_a_lost_client_out() -> None:
    table = Table(ringleader(3), bowls(3))
    table.deliver(2, 0, 1)  # the table is complete: client 1 has its step
    assert table.server.state.awaited == (0, 2)
    table.lose(2)
    before = np.array(table.model())
    table.deliver(0)
    np.testing.assert_allclose(before - table.model(), [3.75, 4.25], atol=1e-12)
    assert table.server.state.entries == 2
    table.deliver(0, 1)  # the next round has two steps
    table.deliver(1, 0)
    assert np.isfinite(table.model()).all()


def test_ringleader_takes_a_lost_client_out_of_the_next_table_too() -> None:
    """Gradients are (x - c)/2, with centres (0,0), (1,-1), (2,-2)."""
    table = Table(ringleader(3), bowls(3))
    table.deliver(2, 0, 1)  # (8,8) - ((3,5) + (4,4) + (3.5,4.5))/3
    assert table.model() == [4.5, 3.5]
    table.deliver(1)  # (1.75,2.25) is for the next table
    table.lose(1)
    table.deliver(0, 2)  # their own steps: (4.5,3.5) - 2·(3.5,4.5)
    assert table.model() == [-2.5, -5.5]
    table.deliver(0, 2)  # (0.5,-0.5) from (1,-1), (-2.25,-1.75) from (-2.5,-5.5): a table of two
    assert table.model() == [-2.5 + 1.75 / 2, -5.5 + 2.25 / 2]


@settings(max_examples=25)
@drawn(events=st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=60))
def test_ringleader_survives_any_loss(events: list[tuple[bool, int]]) -> None:
    """Two clients of four are lost at any time; the others go on and agree on the mean of what is left."""
    table, lost = Table(ringleader(4), bowls(4), step_size=0.1), 0
    for wanted, number in events:
        client = sorted(table.orders)[number % len(table.orders)]
        if wanted and lost < 2:
            lost += 1
            table.lose(client)
        else:
            table.deliver(client)
    for _ in range(300):
        for client in sorted(table.orders):
            table.deliver(client)
    left = np.mean(list(table.orders))
    np.testing.assert_allclose(table.model(), [left, -left], atol=1e-6)


def test_a_refused_order_of_ringleader_keeps_its_model() -> None:
    table = Table(ringleader(2), two_clients())
    table.deliver(0, 1, 1)  # client 1 works on version 1 for the second time
    assert table.holds(1)[:2] == ([4 - 1, 6], 1)
    table.refuse(1)
    assert table.holds(1)[:2] == ([3, 6], 1)
