"""Asynchronous SGD: its step rules, who works next, and what keeps C orders out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.methods.table import Table, arrival, inputs
from tests.support.quadratics import bowls, two_clients

from areabench.methods.async_sgd import (
    Assigned,
    AsyncSgd,
    Draw,
    adaptive,
    async_sgd,
    expected_share,
    full_step,
    idle_uniform,
    importance,
    shuffled,
    threshold,
    uniform,
)
from areabench.methods.base import Method


def scripted(*clients: int) -> Draw:
    """Draws these clients one after the other."""
    return lambda assigned: (clients[assigned.draws], assigned._replace(draws=assigned.draws + 1))


# ---------------------------------------------------------------------------------------------------- by hand


def test_drawn_clients_by_hand() -> None:
    table = Table(async_sgd(2, 2, full_step, scripted(0, 0, 1, 0, 1)), two_clients())
    assert sorted(table.orders) == [0]  # client 0 has both orders, one in its queue
    table.deliver(0)  # (8,8) - (2,4); client 1 is drawn
    assert table.model() == [6, 4]
    assert table.holds(1) == ([6, 4], 1, 2)
    assert table.holds(0) == ([8, 8], 0, 0)  # the order that has waited
    table.deliver(0)  # one version old: (6,4) - (2,4)
    assert table.model() == [4, 0]
    assert table.holds(0) == ([4, 0], 2, 4)
    table.deliver(1)  # one version old: (6,-2) from (6,4); (4,0) - (6,-2)
    assert table.model() == [-2, 2]


def test_importance_by_hand() -> None:
    probabilities = (0.75, 0.25)
    method = async_sgd(2, 2, full_step, scripted(0, 1, 0, 1, 0), expected_share(probabilities))
    table = Table(method, two_clients())
    table.deliver(1)  # (8,0)/(2·0.25) from (8,8)
    assert table.model() == [-8, 8]
    table.deliver(0)  # (2,4)/(2·0.75)
    np.testing.assert_allclose(table.model(), [-8 - 4 / 3, 8 - 8 / 3], rtol=1e-15)


# ---------------------------------------------------------------------------------------------------- steps


@drawn(st.integers(0, 200), st.integers(1, 50))
def test_adaptive_is_constant_up_to_the_concurrency(staleness: int, concurrency: int) -> None:
    factor = adaptive(concurrency)(arrival(0, np.ones(2), staleness=staleness))
    assert factor == (1 if staleness <= concurrency else concurrency / staleness)


def test_adaptive_and_constant_runs_are_equal_while_no_delay_is_beyond_n() -> None:
    tables = [Table(async_sgd(4, 4, factor, None), bowls(4)) for factor in (full_step, adaptive(4))]
    for table in tables:
        table.deliver(*([2, 0, 3, 1] * 5))  # each update is at most 4 versions old
    assert tables[0].model() == tables[1].model()


def test_the_factors_of_lanes_are_a_column() -> None:
    steps = np.array([[0.5], [0.01]], dtype=np.float32)
    factor = threshold(3, 1.0)(arrival(0, np.ones(2), staleness=4, step_size=steps))
    np.testing.assert_array_equal(factor, np.array([[0.125], [1.0]], dtype=np.float32))
    assert factor.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- who works next


def first(draw: Draw, count: int, assigned: Assigned | None = None) -> list[int]:
    """The first clients that are drawn."""
    assigned, clients = assigned or Assigned(), list[int]()
    for _ in range(count):
        found = draw(assigned)
        assert found is not None
        clients.append(found[0])
        assigned = found[1]
    return clients


def assert_frequencies(clients: Sequence[int], probabilities: Sequence[float]) -> None:
    """Within five standard deviations."""
    counts, draws = Counter(clients), len(clients)
    for client, probability in enumerate(probabilities):
        assert abs(counts[client] - draws * probability) < 5 * (draws * probability * (1 - probability)) ** 0.5


def test_uniform_draws_are_uniform() -> None:
    assert_frequencies(first(uniform(5, seed=3), 5000), [0.2] * 5)


def test_importance_draws_follow_the_probabilities() -> None:
    probabilities = (0.5, 0.3, 0.15, 0.05)
    assert_frequencies(first(importance(probabilities, seed=3), 5000), probabilities)


def test_importance_with_equal_probabilities_is_uniform() -> None:
    assert first(importance((0.125,) * 8, seed=1), 3000) == first(uniform(8, seed=1), 3000)
    weigh = expected_share((0.125,) * 8)
    assert {weigh(client, lost) for client in range(3) for lost in ((), (7,), (3, 6))} == {1.0}


def test_expected_shares_are_those_among_the_clients_left() -> None:
    weigh = expected_share((0.5, 0.375, 0.125))
    assert [weigh(client, ()) for client in range(3)] == [1.5, 1.125, 0.375]
    assert [weigh(client, (0,)) for client in (1, 2)] == [1.5, 0.5]  # 2·0.375/0.5, 2·0.125/0.5


def test_shuffled_takes_every_client_once_per_epoch() -> None:
    clients = first(shuffled(6, seed=2), 60)
    epochs = [clients[begin : begin + 6] for begin in range(0, 60, 6)]
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 5  # another order each time


def test_shuffled_passes_over_lost_clients() -> None:
    clients = first(shuffled(4, seed=2), 30, Assigned(lost=(1,)))
    assert all(sorted(clients[begin : begin + 3]) == [0, 2, 3] for begin in range(0, 30, 3))


def test_only_idle_clients_are_drawn_from_the_idle() -> None:
    draw = idle_uniform(3, seed=5)
    assert sorted(first(draw, 3)) == [0, 1, 2]
    assert draw(Assigned(busy=(0, 2), lost=(1,))) is None


def test_draws_depend_on_the_seed_and_their_number_alone() -> None:
    assert first(uniform(9, seed=4), 2000) == first(uniform(9, seed=4), 2000)
    assert first(uniform(9, seed=4), 50) != first(uniform(9, seed=5), 50)
    assert first(uniform(9, seed=4), 10, Assigned(draws=20)) == first(uniform(9, seed=4), 30)[20:]


# ---------------------------------------------------------------------------------------------------- orders


def test_a_busy_client_takes_its_orders_first_in_first_out() -> None:
    table = Table(async_sgd(2, 2, full_step, scripted(0, 1, 1, 1, 1)), two_clients())
    table.deliver(0)  # (6,4) waits for client 1, which works on (8,8)
    assert table.holds(1) == ([8, 8], 0, 0)
    table.deliver(1)  # (6,4) - (8,0): (-2,4) waits for it too
    assert table.model() == [-2, 4]
    assert table.holds(1) == ([6, 4], 1, 2)
    table.deliver(1)  # (6,-2) from (6,4)
    assert table.model() == [-8, 6]
    assert table.holds(1) == ([-2, 4], 2, 4)


def open_orders(table: Table) -> int:
    run_state = table.conductor.run_state(0.0)
    return len(run_state.open_orders) + len(run_state.queued)


DRAWS = {
    "uniform": uniform(5, seed=8),
    "importance": importance((0.5, 0.2, 0.1, 0.1, 0.1), seed=8),
    "shuffled": shuffled(5, seed=8),
}
EVENTS = st.lists(st.tuples(st.sampled_from(["deliver"] * 6 + ["refuse", "lose"]), st.integers(0, 99)), max_size=30)


def play(table: Table, events: list[tuple[str, int]]) -> None:
    """Updates, refused updates and losses of clients that have an order; at most three losses."""
    lost = 0
    for what, number in events:
        client = sorted(table.orders)[number % len(table.orders)]
        if what == "refuse":
            table.refuse(client)
        elif what == "lose" and lost < 3:
            lost += 1
            table.lose(client)
        else:
            table.deliver(client)


@pytest.mark.parametrize("assignment", DRAWS)
@pytest.mark.parametrize("concurrency", [1, 3, 8])
@drawn(events=EVENTS)
def test_c_orders_are_out_at_any_time(assignment: str, concurrency: int, events: list[tuple[str, int]]) -> None:
    table = Table(async_sgd(5, concurrency, full_step, DRAWS[assignment]), bowls(5))
    for event in events:
        play(table, [event] if event[0] != "lose" else [])
        assert open_orders(table) == concurrency
    for _ in range(3):
        play(table, [("lose", 0)])
        assert open_orders(table) == concurrency


@drawn(events=EVENTS)
def test_idle_clients_take_over_while_there_are_some(events: list[tuple[str, int]]) -> None:
    table = Table(async_sgd(5, 3, full_step, idle_uniform(5, seed=1)), bowls(5))
    play(table, events)
    left = 5 - len(table.conductor.lost)
    assert open_orders(table) == len(table.orders) == min(3, left)
    assert sorted(table.orders) == sorted(table.server.state.assigned.busy)


def test_without_drawing_nobody_takes_the_place_of_a_lost_client() -> None:
    table = Table(async_sgd(3, 3, full_step, None), bowls(3))
    table.lose(1)
    table.deliver(0, 2, 0)
    assert sorted(table.orders) == [0, 2]


# ---------------------------------------------------------------------------------------------------- settings


def built(**keys: object) -> Method:
    settings = AsyncSgd(step_size=0.5, **keys)  # type: ignore[arg-type]
    return settings.build(inputs(4, samples=np.array([30, 10, 40, 20])))


def test_the_shares_of_the_samples_are_the_usual_probabilities() -> None:
    table = Table(built(assignment="importance"), bowls(4))
    state = table.server.state
    before = table.model()
    client = next(iter(table.orders))  # at (8,8) client i's pseudo-gradient is ((8 - i)/2, (8 + i)/2)
    table.deliver(client)
    share = 4 * (0.3, 0.1, 0.4, 0.2)[client]
    np.testing.assert_allclose(
        np.array(before) - table.model(), np.array([8 - client, 8 + client]) / 2 / share, rtol=1e-12
    )
    assert state.assigned.draws == 4


def test_the_usual_threshold_is_the_concurrency() -> None:
    method = built(step="threshold", assignment="uniform", concurrency=3)
    state = method.start(np.zeros(2)).state
    used = [
        method.receive(state, arrival(0, np.ones(2), staleness=staleness)).state.following.tolist()
        for staleness in (3, 4)
    ]
    assert used == [[-1, -1], [0, 0]]
