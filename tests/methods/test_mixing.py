"""Mixing methods: the factors of stale models, and the local steps that the server gives."""

from __future__ import annotations

from math import floor, sqrt

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.every_method import Recorded, experiment_of, updates
from tests.methods.table import Table, inputs
from tests.support.quadratics import two_clients

from areabench.engine.messages import Update, UpdateHeader
from areabench.methods.asyncfeded import AsyncFedEd, adapted, asyncfeded
from areabench.methods.base import Arrival, Call
from areabench.methods.fedasync import FedAsync, constant, fedasync, hinge, polynomial
from areabench.timing.exponential import ExponentialDelays

# ---------------------------------------------------------------------------------------------------- FedAsync


@examples(numbers=st.lists(st.integers(0, 1), min_size=1, max_size=20))
def test_fedasync_with_weight_1_takes_the_client_s_model(numbers: list[int]) -> None:
    table = Table(fedasync(2, 1.0, constant), two_clients())
    for number in numbers:
        (first, second), _, _ = table.holds(number)
        table.deliver(number)
        assert table.model() == ([(first + 4) / 2, second / 2] if number == 0 else [0, (second + 8) / 2])


def test_factors_of_stale_models() -> None:
    assert [constant(staleness) for staleness in (0, 9)] == [1, 1]
    assert [polynomial(0.5)(staleness) for staleness in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [hinge(10, 4)(staleness) for staleness in (0, 4, 5, 6)] == pytest.approx([1, 1, 1 / 11, 1 / 21])


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        (FedAsync(step_size=0.5), 0.6 / sqrt(3)),
        (FedAsync(step_size=0.5, staleness="constant"), 0.6),
        (FedAsync(step_size=0.5, staleness="hinge", hinge_slope=2.0, hinge_delay=1), 0.6 / 3),
    ],
    ids=lambda each: each.staleness if isinstance(each, FedAsync) else "",
)
def test_fedasync_weighs_a_model_that_is_2_versions_old(settings: FedAsync, weight: float) -> None:
    method = settings.build(inputs(2))
    state = method.start(np.zeros(2)).state
    arrival = Arrival(0, np.ones(2), 0, 0, np.zeros(2), 2, 0.5, 1, 0.0)
    mixed = method.aggregate(method.receive(state, arrival).state).state.model
    assert mixed == pytest.approx([weight, weight])


# ---------------------------------------------------------------------------------------------------- AsyncFedED


def test_asyncfeded_by_hand() -> None:
    """lambda = epsilon = 1; K_i changes by ⌊3 - gamma⌋ and is 4 at most."""
    table = Table(asyncfeded(2, AsyncFedEd(step_size=0.5, most_steps=4)), two_clients(), delta=3)
    table.deliver(0)  # (8,8) -> (6,4), gamma = 0: the whole update; K_0 = 1 + 3
    assert table.model() == [6, 4]
    assert table.holds(0) == ([6, 4], 1, 2)
    assert (table.orders[0].local_steps, table.orders[1].local_steps) == (4, 1)
    table.deliver(1)  # (8,8) -> (0,8); |(6,4) - (8,8)| = sqrt(20), |(8,0)| = 8; K_1 = 1 + ⌊2.44⌋
    step = 1 / (sqrt(20) / 8 + 1)
    assert table.model() == pytest.approx([6 - 8 * step, 4])
    assert table.orders[1].local_steps == 3
    table.deliver(0)  # (6,4) -> (5,2) -> (4.5,1) -> (4.25,0.5) -> (4.125,0.25): D = (1.875,3.75)
    gamma = 8 * step / sqrt(1.875**2 + 3.75**2)  # the server has moved by (8 step, 0)
    factor = 1 / (gamma + 1)
    assert table.model() == pytest.approx([6 - 8 * step - 1.875 * factor, 4 - 3.75 * factor])
    assert table.orders[0].local_steps == 4  # not 4 + ⌊1.78⌋
    assert table.counters() == (6, 3)


@examples(
    steps=st.integers(1, 50),
    most=st.integers(1, 50),
    gamma=st.floats(0, allow_nan=False),
    target=st.floats(0, 1e6),
    gain=st.floats(0, 1e6),
)
def test_local_steps_of_asyncfeded_stay_within_their_limits(
    steps: int, most: int, gamma: float, target: float, gain: float
) -> None:
    settings = AsyncFedEd(step_size=0.1, target=target, gain=gain, most_steps=most)
    assert 1 <= adapted(settings, min(steps, most), gamma) <= most


@pytest.mark.parametrize(("gamma", "steps"), [(0.0, 8), (2.0, 6), (2.9, 5), (3.0, 5), (3.1, 4), (5.0, 3), (9.0, 1)])
def test_asyncfeded_gives_stale_clients_less_to_do(gamma: float, steps: int) -> None:
    """5 + ⌊3 - gamma⌋."""
    assert adapted(AsyncFedEd(step_size=0.1), 5, gamma) == steps == max(1, 5 + floor(3.0 - gamma))


def test_asyncfeded_steps_by_nothing_where_an_update_is_nothing() -> None:
    method = asyncfeded(2, AsyncFedEd(step_size=0.5))
    state = method.start(np.ones(2)).state
    state, calls = method.receive(state, Arrival(1, np.zeros(2), 0, 0, np.zeros(2), 1, 0.5, 7, 0.0))[:2]
    assert calls == (Call(1, local_steps=7),)
    assert method.aggregate(state).state.model.tolist() == [1, 1]


def test_asyncfeded_repeats_the_local_steps_of_a_refused_update() -> None:
    table = Table(asyncfeded(2, AsyncFedEd(step_size=0.5, most_steps=4)), two_clients())
    table.deliver(0)
    order, number = table.orders.pop(0), table.clients[0].round
    payload = np.full_like(table.clients[0].work(order), np.nan)
    table.conductor.update(Update(UpdateHeader(0, number, order.version, local_steps=4), payload), 2.0)
    assert table.orders[0].local_steps == order.local_steps == 4
    assert table.model() == [6, 4]


def test_asyncfeded_varies_the_local_steps_of_a_run(record: Recorded) -> None:
    run = record(experiment_of("asyncfeded", delays=ExponentialDelays(per="step"), target=2.0, most_steps=6))
    assert {2, 6} < set(updates(run)["local_steps"].tolist()) <= set(range(1, 7))
