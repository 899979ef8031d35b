"""The methods with memory: what the clients' memories add up to, and what becomes of those of lost clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.every_method import Recorded, experiment_of
from tests.methods.table import Table, arrival
from tests.support.quadratics import two_clients

from areabench.arrays import Vector
from areabench.engine.events import Kind
from areabench.methods.aced import aced
from areabench.methods.base import Method
from areabench.methods.ca2fl import ca2fl
from areabench.methods.gradient_tables import gradient_table
from areabench.methods.mifa import mifa
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.runfile.read import Run
from areabench.timing.rates import ListedRates

BY_THE_CLOCK = 10**9  # updates: never


def ace(clients: int = 2, step_size: float = 0.5) -> Method:
    return gradient_table("ace", clients, step_size, every_arrival=True)


def step_by_the_clock(table: Table) -> None:
    table.time_s += 1.0
    table.conductor.timer(table.time_s)


# ---------------------------------------------------------------------------------------------------- memories


Memories = Callable[[Any], Vector]
REMEMBERING: dict[str, tuple[Method, Memories]] = {  # with the server's sum of the clients' memories
    "table": (ace(4, 0.1), lambda state: state.gradients.total),
    "ca2fl": (
        ca2fl(4, 1.0),
        lambda state: 4 * state.cached + (0 if state.buffer.total is None else state.buffer.total),
    ),
    "mifa": (mifa(4, 1.0), lambda state: state.updates.total),
}
DELIVERIES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=60)
FOUR = Quadratic(dimension=3, noise=0.5)


@pytest.mark.parametrize("name", REMEMBERING)
@examples(DELIVERIES)
def test_the_server_has_the_sum_of_what_clients_remember(name: str, deliveries: list[tuple[int, int]]) -> None:
    """After every event, and through refused updates."""
    method, remembered = REMEMBERING[name]
    table = Table(
        method, QuadraticProblem(FOUR, 4, 2, seed=5), delta=BY_THE_CLOCK if name == "mifa" else 3, step_size=0.1
    )
    for client, kind in deliveries:
        if client not in table.orders:
            step_by_the_clock(table)
        elif kind == 0:
            table.refuse(client)
        else:
            table.deliver(client)
        memories = np.sum([np.asarray(each.memory) for each in table.clients], axis=0)
        np.testing.assert_allclose(remembered(table.server.state), memories, rtol=0, atol=1e-12)


@examples(DELIVERIES, st.integers(1, 8))
def test_aced_sums_the_entries_that_are_not_too_old(deliveries: list[tuple[int, int]], max_delay: int) -> None:
    table = Table(aced(4, 0.1, max_delay), QuadraticProblem(FOUR, 4, 2, seed=5), step_size=0.1)
    last: dict[int, tuple[int, Vector]] = {}  # the step before which each client's gradient came
    for client, kind in deliveries:
        if kind == 0:
            table.refuse(client)
            continue
        table.deliver(client)
        state = table.server.state
        stepped = state.pending == 0
        last[client] = (state.steps - stepped, state.table[client].copy())
        counted = [row for since, row in last.values() if state.steps - stepped - since <= max_delay]
        assert (state.size, state.awaited) == (len(counted), 4 - len(last))
        np.testing.assert_allclose(state.total, np.sum(counted, axis=0), rtol=0, atol=1e-12)


def test_aced_changes_one_row_and_copies_no_table() -> None:
    table = Table(aced(2, 0.5, max_delay=1), two_clients())
    before = table.server.state.table
    table.deliver(0, 1, 0)
    assert table.server.state.table is before


# ---------------------------------------------------------------------------------------------------- equal methods


@examples(DELIVERIES, st.integers(1, 5))
def test_ca2fl_is_its_form_with_a_cache_at_the_server(deliveries: list[tuple[int, int]], delta: int) -> None:
    """The paper's server: it stores every h_i, and clients send d_i."""
    problem = QuadraticProblem(FOUR, 4, 2, seed=5)
    table = Table(ca2fl(4, 0.5), problem, delta, step_size=0.1)
    locals_, model = [problem.local(number) for number in range(4)], problem.start()
    held, cache, mean, buffer = [model] * 4, np.zeros((4, 3)), np.zeros(3), []
    for client, _ in deliveries:
        table.deliver(client)
        update = locals_[client].descend(held[client], 0.1) - held[client]
        buffer.append(update - cache[client])
        cache[client], held[client] = update, model
        if len(buffer) == delta:
            model = model + 0.5 * (mean + np.mean(buffer, axis=0))
            mean, buffer = cache.mean(axis=0), []
        np.testing.assert_allclose(table.server.model, model, rtol=1e-12, atol=1e-12)


@examples(DELIVERIES)
def test_aced_without_a_limit_is_ace_to_the_bit(deliveries: list[tuple[int, int]]) -> None:
    one, other = (
        Table(method, QuadraticProblem(FOUR, 4, 2, seed=5), step_size=0.1) for method in (ace(4), aced(4, 0.5, 10**9))
    )
    for client, _ in deliveries:
        one.deliver(client)
        other.deliver(client)
        assert one.model() == other.model()


def test_ace_with_one_client_is_sgd() -> None:
    problem = QuadraticProblem(FOUR, 1, 1, seed=5)
    table, local, model = Table(ace(1, 0.25), problem, step_size=0.125), problem.local(0), problem.start()
    for _ in range(20):
        table.deliver(0)
        model = model - 0.25 * local.gradient(model)
        np.testing.assert_allclose(table.server.model, model, rtol=1e-12)


def test_mifa_with_all_clients_in_each_round_is_federated_averaging() -> None:
    problem = QuadraticProblem(FOUR, 4, 2, seed=5)
    table, model = Table(mifa(4, 1.0), problem, BY_THE_CLOCK, step_size=0.1), problem.start()
    locals_ = [problem.local(number) for number in range(4)]
    for _ in range(5):
        table.deliver(2, 0, 1, 3)
        step_by_the_clock(table)
        model = np.mean([local.descend(model, 0.1) for local in locals_], axis=0)
        np.testing.assert_allclose(table.server.model, model, rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- whole runs


def rows(run: Run, kind: Kind) -> np.ndarray:
    events = run.events_array
    return np.flatnonzero(events["kind"] == kind)


@pytest.mark.parametrize("name", ["afa-cs", "ia2sgd", "dude", "ace", "aced", "mifa"])
def test_first_step_comes_when_all_have_reported(record: Recorded, name: str) -> None:
    run = record(experiment_of(name))
    first = rows(run, Kind.STEP)[0]
    before = run.events_array[:first]
    assert set(before["client"][before["kind"] == Kind.UPDATE]) == set(range(5))
    assert len(rows(run, Kind.NO_STEP)) == (before["kind"] == Kind.NO_STEP).sum()
    assert bool(len(rows(run, Kind.NO_STEP))) == (name in ("afa-cs", "dude", "mifa"))  # the others say when it is due


def test_mifa_starts_all_free_clients_from_the_model_of_the_round(record: Recorded) -> None:
    """A client answers at most once in a round, and one that answers in the round it was called in is not stale."""
    run = record(experiment_of("mifa", rates=ListedRates(values=(500.0,) * 5)))  # 50 times faster than the rounds
    updates = run.events_array[rows(run, Kind.UPDATE)]
    assert (updates["staleness"] == 0).mean() > 0.99
    assert len(updates) <= 5 * (run.status.server_steps + 1)


# ---------------------------------------------------------------------------------------------------- lost clients


def test_table_does_not_wait_for_a_lost_client() -> None:
    table = Table(ace(), two_clients())
    table.deliver(0)  # G_0 = (4,8)
    table.lose(1)  # the table is complete: the mean is over client 0 alone, x_s = (8,8) - (2,4)
    assert (table.counters(), table.model()) == ((2, 1), [6, 4])
    table.deliver(0)  # G_0 = (4,8) again, from (8,8)
    assert table.model() == [4, 0]


def test_table_keeps_the_last_gradient_of_a_lost_client() -> None:
    table = Table(ace(), two_clients())
    table.deliver(0, 1)  # mean (10,4); x_s = (3,6)
    table.lose(1)
    assert (table.counters(), table.model()) == ((3, 1), [3, 6])  # a loss is no reason to step
    table.deliver(0)  # stale: the mean is (10,4) again
    assert table.model() == [-2, 4]


def test_table_removes_the_gradient_of_a_lost_client() -> None:
    method, table = ace(), Table(ace(), two_clients())
    table.deliver(0, 1)  # sum (20,8)
    assert method.remove is not None
    assert method.recalled is not None
    lost = method.recalled(table.server.state) - table.clients[0].memory
    np.testing.assert_array_equal(lost, [16, 0])
    state = method.remove(table.server.state, 1, lost)
    np.testing.assert_array_equal(state.gradients.mean(), [4, 8])


def test_table_removes_lost_clients_of_which_one_never_reported() -> None:
    """The one that never reported leaves the mean at once, and is not counted twice when lost clients are removed."""
    method = gradient_table("afa-cs", 3, 1.0)
    assert method.lose is not None
    assert method.remove is not None
    state = method.start(np.zeros(2)).state
    for client, gradient in ((0, [4.0, 8.0]), (1, [16.0, 0.0])):
        state = method.receive(state, arrival(client, np.array(gradient))).state
    state = method.lose(state, 2, 1).state
    np.testing.assert_array_equal(state.gradients.mean(), [10, 4])
    state = method.remove(method.lose(state, 1, 1).state, 2, np.array([16.0, 0.0]))
    np.testing.assert_array_equal(state.gradients.mean(), [4, 8])


def test_aced_drops_the_entry_of_a_lost_client() -> None:
    table = Table(aced(2, 0.5, max_delay=5), two_clients())
    table.deliver(0, 1)  # mean (10,4); x_s = (3,6)
    table.lose(1)
    table.deliver(0)  # stale: G_0 = (4,8) alone; x_s = (3,6) - (2,4)
    assert table.model() == [1, 2]


def test_ca2fl_removes_a_lost_client_from_its_cache() -> None:
    """n h + sum of the buffer is the sum of the memories of those left, before and after the next step."""
    table = Table(ca2fl(2, 0.5), two_clients(), delta=3)
    table.deliver(0, 1, 0, 1)  # a step, and d_1 - h_1 in the buffer
    method, left = ca2fl(2, 0.5), table.clients[0].memory
    assert method.remove is not None
    assert method.recalled is not None
    assert left is not None
    state = method.remove(table.server.state, 1, method.recalled(table.server.state) - left)
    np.testing.assert_array_equal(state.cached + state.buffer.total, left)
    np.testing.assert_array_equal(method.aggregate(state).state.cached, left)


def test_mifa_calls_no_lost_client() -> None:
    table = Table(mifa(2, 1.0), two_clients(), delta=BY_THE_CLOCK)
    table.deliver(0, 1)
    table.lose(0)  # it was free; its last update stays
    step_by_the_clock(table)  # mean (5,2)
    assert (table.model(), list(table.orders)) == ([3, 6], [1])
