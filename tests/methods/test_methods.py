"""The four methods: AREA's invariant, where methods coincide, and the clients that S-FedAvg draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.table import Table, arrival, method_named_by
from tests.support.quadratics import IDENTITY, GivenQuadratic, four_clients, two_clients

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.messages import Flag, Order
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import area
from areabench.methods.as_fedavg import as_fedavg
from areabench.methods.base import Call, Method, Work
from areabench.methods.fedbuff import fedbuff
from areabench.methods.s_fedavg import SFedAvg, s_fedavg
from areabench.methods.schedules import Theorem1Schedule, build_schedule
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.streams import Purpose, stream

# ---------------------------------------------------------------------------------------------------- by hand, M = 1
# Client 0 is the fast one: it delivers twice before client 1 delivers at all. Delta = 2.


def test_first_round_without_training_leaves_later_rounds_their_noise() -> None:
    """The r-th round of a client has the same draws, whether the first one is trained or not."""
    problem = random_problem(1)
    base, methods = problem.start(), (area(1), area(1, trains_first=False))
    trained, zero = (Client(method, problem.local(0), base) for method in methods)
    order = Order(0, base, 0.1, 0, 0, local_steps=problem.local_steps)
    for client in (trained, zero):
        client.work(order)
        client.work(order)
    np.testing.assert_array_equal(zero.memory, trained.memory)


# ---------------------------------------------------------------------------------------------------- by hand, M = 2
# From (8,8) client 0 goes (6,4), (5,2) and client 1 goes (0,8), (0,8).


# ---------------------------------------------------------------------------------------------------- the invariant

ENTRIES = st.integers(-64, 64)


def mean(memories: Sequence[Vector | None]) -> Vector:
    """The mean of the clients' memories."""
    return np.asarray(np.mean(np.array(memories), axis=0))


EVENTS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 7), ENTRIES, ENTRIES)), max_size=40)


@given(clients=st.sampled_from([1, 2, 4, 8]), start=st.tuples(ENTRIES, ENTRIES), events=EVENTS)
def test_area_invariant_is_exact_on_dyadic_numbers(
    clients: int, start: tuple[int, int], events: list[tuple[int, int, int] | None]
) -> None:
    """x_s + u equals the mean of the memories after every event, in whatever order updates (or steps: None) come."""
    method, origin = area(clients), np.array(start, dtype=np.float64)
    memories = [method.remember(origin) for _ in range(clients)]
    state = method.start(origin).state
    for event in events:
        if event is None:
            state = method.aggregate(state).state
        else:
            client, local = event[0] % clients, np.array(event[1:], dtype=np.float64)
            report = method.report(memories[client], Work(origin, 0.5, 1, origin, local))
            memories[client] = report.memory
            state = method.receive(state, arrival(client, report.payload)).state
        np.testing.assert_array_equal(state.model + state.aggregator, mean(memories))


@given(numbers=st.lists(st.integers(0, 3), max_size=30), trains_first=st.booleans(), delta=st.integers(1, 5))
def test_area_invariant_holds_from_the_first_message_on(numbers: list[int], trains_first: bool, delta: int) -> None:
    table = Table(area(4, trains_first), four_clients(), delta)
    for number in numbers:
        table.deliver(number)
        state = table.server.state
        np.testing.assert_allclose(
            state.model + state.aggregator, mean([client.memory for client in table.clients]), atol=1e-12
        )


# ---------------------------------------------------------------------------------------------------- coincidences


def random_problem(clients: int, local_steps: int = 3) -> QuadraticProblem:
    """Noisy quadratics in six dimensions."""
    settings = Quadratic(dimension=6, curvature_max=4.0, noise=0.3, start_distance=5.0)
    return QuadraticProblem(settings, clients, local_steps, seed=11)


def test_fedbuff_with_unit_server_step_is_averaging_when_no_update_is_stale() -> None:
    averaging = Table(s_fedavg(3, 3, seed=5), random_problem(3), delta=3, step_size=0.1)
    buffered = Table(fedbuff(3, server_step_size=1.0), random_problem(3), delta=3, step_size=0.1)
    for _ in range(10):
        averaging.deliver(0, 1, 2)
        buffered.deliver(0, 1, 2)
        buffered.refresh()  # all clients start the next round from the current model
        np.testing.assert_allclose(buffered.server.model, averaging.server.model, rtol=1e-12)


def test_fedbuff_with_unit_server_step_equals_as_fedavg_until_an_update_is_stale() -> None:
    tables = [Table(method, random_problem(4), 4, 0.1) for method in (fedbuff(4, 1.0), as_fedavg(4))]
    for table in tables:
        table.deliver(2, 0, 3, 1)
    np.testing.assert_allclose(tables[0].server.model, tables[1].server.model, rtol=1e-12)
    for table in tables:
        table.deliver(1, 1, 2, 3)  # stale: pseudo-gradients and models no longer mean the same
    assert np.abs(tables[0].server.model - tables[1].server.model).max() > 1e-3


def test_area_equals_fedavg_when_all_clients_report_each_round() -> None:
    synchronous = Table(s_fedavg(4, 4, seed=1), four_clients(), delta=4)
    area_table = Table(area(4), four_clients(), delta=4)
    for _ in range(5):
        synchronous.deliver(0, 1, 2, 3)
        area_table.deliver(0, 1, 2, 3)
        area_table.refresh()
        assert area_table.model() == synchronous.model()  # exact: dyadic numbers


def plain_descent(problem: QuadraticProblem, rounds: int, step_size: float) -> list[np.ndarray]:
    """The models of client 0 on its own, round by round."""
    local, models = problem.local(0), [problem.start()]
    for _ in range(rounds):
        models.append(local.descend(models[-1], step_size))
    return models


def test_s_fedavg_of_one_client_is_plain_stochastic_descent() -> None:
    table = Table(s_fedavg(1, 1, seed=0), random_problem(1), delta=1, step_size=0.1)
    for expected in plain_descent(random_problem(1), 8, 0.1)[1:]:
        table.deliver(0)
        np.testing.assert_array_equal(table.server.model, expected)


@pytest.mark.parametrize("method", [area(1), as_fedavg(1), fedbuff(1, 1.0)], ids=lambda method: method.name)
def test_one_asynchronous_client_runs_one_round_behind(method: Method) -> None:
    """The reply leaves before the step, so with n = Delta = 1 two descents alternate; without noise they are equal."""
    problem = GivenQuadratic([IDENTITY], [[4, 0]], [8, 8], 1)
    table = Table(method, problem, delta=1)
    models = plain_descent(problem, 3, 0.5)
    expected = [models[1], models[1], models[2], models[2], models[3], models[3]]
    if method.name == "fedbuff":  # applies each pseudo-gradient to a model one step further
        # (8,8): (2,4) -> (6,4); stale (2,4) -> (4,0); from (6,4): (1,2) -> (3,-2); from (4,0): (0,0) -> (3,-2)
        expected = [np.array(model) for model in ([6, 4], [4, 0], [3, -2], [3, -2])]
    for model in expected:
        table.deliver(0)
        np.testing.assert_array_equal(table.server.model, model)


@pytest.mark.parametrize("method", [area(2), as_fedavg(2), fedbuff(2, 0.5)], ids=lambda method: method.name)
def test_step_without_updates_changes_no_model_but_counts(method: Method) -> None:
    table = Table(method, two_clients(), delta=100)
    table.deliver(0, 1)
    table.server.aggregate(2.0)
    before = table.model()
    assert table.server.aggregate(3.0) == []
    assert table.model() == before != [8, 8]
    assert table.counters() == (4, 2)


# ---------------------------------------------------------------------------------------------------- selection


def draws(clients: int, clients_per_round: int, seed: int, rounds: int) -> list[tuple[int | Call, ...]]:
    """Who is called in each round."""
    method, model = s_fedavg(clients, clients_per_round, seed), np.zeros(1)
    step = method.start(model)
    calls = [step.calls]
    for _ in range(rounds - 1):
        step = method.aggregate(method.receive(step.state, arrival(0, model)).state)
        calls.append(step.calls)
    return calls


def test_draws_are_distinct_clients() -> None:
    for calls in draws(10, 4, seed=2, rounds=50):
        assert len(calls) == len(set(calls)) == 4
        assert set(calls) <= set(range(10))


def test_draws_are_uniform_in_the_long_run() -> None:
    counts = Counter(client for calls in draws(8, 2, seed=0, rounds=2000) for client in calls)
    # 2000 draws, each client with probability 1/4: mean 500, standard deviation sqrt(2000·3/16) = 19.4
    assert set(counts) == set(range(8))
    assert all(abs(count - 500) < 5 * 19.4 for count in counts.values())


def test_draws_depend_on_the_seed_and_the_round_alone() -> None:
    assert draws(10, 4, seed=2, rounds=20) == draws(10, 4, seed=2, rounds=20)
    assert draws(10, 4, seed=2, rounds=20) != draws(10, 4, seed=3, rounds=20)
    method = s_fedavg(10, 4, seed=2)
    state = method.start(np.ones(3)).state
    for client in (1, 1, 5):  # other models and other senders than in `draws`
        state = method.receive(state, arrival(client, np.arange(3.0))).state
    assert method.aggregate(state).calls == draws(10, 4, seed=2, rounds=2)[1]


def test_every_round_draws_from_its_own_stream() -> None:
    """The streams of a recorded run are those of its replay for ever: the first round is round 0."""
    expected = [
        tuple(stream(2, Purpose.SELECTION, number).choice(10, 4, replace=False).tolist()) for number in range(3)
    ]
    assert draws(10, 4, seed=2, rounds=3) == expected


def test_the_step_sizes_of_a_theorem_are_multiplied() -> None:
    schedule = build_schedule(Theorem1Schedule(), 0.5, lambda iteration: 3.0 + iteration)
    assert [schedule(0, 7.0), schedule(1, 7.0)] == [1.5, 2.0]


def test_only_drawn_clients_work() -> None:
    table = Table(s_fedavg(4, 2, seed=9), four_clients(), delta=2)
    for round_number, calls in enumerate(draws(4, 2, seed=9, rounds=5)):
        assert sorted(table.orders) == sorted(calls)
        assert {order.version for order in table.orders.values()} == {round_number}
        flags = Flag.NONE if round_number else Flag.FIRST
        assert {order.flags for order in table.orders.values()} == {flags}
        table.deliver(*(call for call in calls if isinstance(call, int)))


# ---------------------------------------------------------------------------------------------------- settings


def test_settings_give_s_fedavg_its_round_and_seed() -> None:
    experiment = Experiment(
        clients=Clients(count=10), method=SFedAvg(step_size=1, clients_per_round=4), stop=Stop(iterations=1),
        problem=Quadratic(), seed=2,
    )  # fmt: skip
    method = method_named_by(experiment)
    step = method.start(np.zeros(1))
    assert step.calls == draws(10, 4, seed=2, rounds=1)[0]
    assert method.due is not None
    due = []
    for number in range(4):
        step = method.receive(step.state, arrival(number, np.zeros(1)))
        due.append(method.due(step.state))
    assert due == [False, False, False, True]
