"""Buffered methods: what their papers promise, and the clients that the server chooses."""

from __future__ import annotations

from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.every_method import Recorded, experiment_of, silent
from tests.methods.table import Table, arrival, inputs
from tests.support.quadratics import bowls, two_clients

from areabench.engine.scenario import build_scenario
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff_published import fedbuff_published
from areabench.methods.fedfix import FedFix, chances, fedfix
from areabench.methods.fedstaleweight import fedstaleweight
from areabench.methods.server_optimisers import Fadas, OptimiserState, delay_adaptive
from areabench.problems.quadratic import Quadratic
from areabench.timing.delays import DelaySettings
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports.simulator import LaneRecorder, Simulator

NEVER = 10**9  # updates between two server steps, where a test calls for each step


# ---------------------------------------------------------------------------------------------------- FedBuff


def assert_same_run(record: Recorded, *experiments: Experiment) -> None:
    """Two experiments give the same events and models, to the bit."""
    first, second = (record(experiment) for experiment in experiments)
    assert first.events_array.tobytes() == second.events_array.tobytes()
    assert first.models.tobytes() == second.models.tobytes()


@pytest.mark.parametrize("aggregation", [EveryUpdates(updates=3), PoissonAggregation(rate=8.0)])
def test_fedbuff_as_published_with_all_clients_and_no_scaling_is_fedbuff(
    record: Recorded, aggregation: AggregationSettings
) -> None:
    published = experiment_of("fedbuff-published", staleness="constant", aggregation=aggregation)
    assert_same_run(record, published, experiment_of("fedbuff", server_step_size=1.0, aggregation=aggregation))


@examples(numbers=st.lists(st.integers(0, 5), max_size=30), concurrency=st.integers(1, 6), seed=st.integers(0, 9))
def test_fedbuff_as_published_keeps_its_concurrency(numbers: list[int], concurrency: int, seed: int) -> None:
    """Whoever delivers, and whether its update is used or refused, C clients have one order each."""
    table = Table(fedbuff_published(6, concurrency, 0.1, scaled=True, seed=seed), bowls(6), delta=2)
    for number in numbers:
        at_work = sorted(table.orders)
        client = at_work[number % concurrency]
        if number == 5:
            table.refuse(client)
            assert sorted(table.orders) == at_work
        else:
            table.deliver(client)
        assert len(table.orders) == concurrency
        assert sorted([*table.orders, *table.server.state.idle.tolist()]) == list(range(6))


@pytest.mark.parametrize("concurrency", [1, 3, 5, 6])
def test_fedbuff_as_published_gives_the_slot_of_a_lost_client_to_another(concurrency: int) -> None:
    table = Table(fedbuff_published(6, concurrency, 0.1, scaled=True, seed=1), bowls(6), delta=2)
    left = set(range(6))
    for lost in (3, 0, 4, 1):
        table.lose(lost)
        left.remove(lost)
        assert len(table.orders) == min(concurrency, len(left))
        table.deliver(min(table.orders))
        assert len(table.orders) == min(concurrency, len(left))
        assert {*table.orders, *table.server.state.idle.tolist()} == left


def test_fedbuff_as_published_draws_all_free_clients_alike() -> None:
    table = Table(fedbuff_published(4, 1, 0.1, scaled=False, seed=2), bowls(4), delta=2)
    counts = np.zeros(4)
    for _ in range(4000):
        (client,) = table.orders
        table.deliver(client)
        counts[client] += 1
    assert np.abs(counts / 4000 - 0.25).max() < 4 * sqrt(0.25 * 0.75 / 4000)


# ---------------------------------------------------------------------------------------------------- FedFix


def test_chances_of_fedfix() -> None:
    rates = np.array([4.0, 1.0, 0.4])
    np.testing.assert_allclose(
        chances(rates, 0.5, "exponential", random_steps=False), [1 - exp(-2), 1 - exp(-0.5), 1 - exp(-0.2)]
    )
    np.testing.assert_allclose(  # 0.25 s, 1 s and 2.5 s are in the 1st, 2nd and 5th step
        chances(rates, 0.5, "fixed", random_steps=False), [1, 1 / 2, 1 / 5]
    )
    for law in ("exponential", "fixed"):  # 2 steps/s: in the first step after 1/(rate + 2) of the time, rate/(rate + 2)
        np.testing.assert_allclose(chances(rates, 0.5, law, random_steps=True), [4 / 6, 1 / 3, 0.4 / 2.4])


def test_chances_of_fedfix_do_not_hang_on_rounding() -> None:
    """Delays of 3 and 7 periods that are no binary fractions."""
    periods = 1 / np.array([3 * 0.1, 7 * 0.1])
    np.testing.assert_array_equal(chances(periods, 0.1, "fixed", random_steps=False), [1 / 3, 1 / 7])


@pytest.mark.parametrize("delays", [ExponentialDelays(), FixedDelays()], ids=lambda delays: delays.name)
@pytest.mark.parametrize("aggregation", [EveryPeriod(period_s=0.25), PoissonAggregation(rate=4.0)])
def test_fedfix_gives_every_client_the_weight_1_over_n_in_the_mean_step(
    tmp_path: Path, aggregation: AggregationSettings, delays: DelaySettings
) -> None:
    """Under uneven rates; 4,000 steps, in which the slowest client answers about 330 times: 5 deviations are 26 %."""
    experiment = Experiment(
        clients=Clients(count=4),
        method=FedFix(step_size=0.01),
        stop=Stop(horizon_s=1000.0),
        problem=Quadratic(dimension=1),
        rates=ListedRates(values=(20.0, 4.0, 1.3, 0.36)),
        delays=delays,
        aggregation=aggregation,
        record=Record(snapshots="none", events=False),
    )
    scenario, recorder = build_scenario(experiment, tmp_path), LaneRecorder(1)
    status = Simulator(scenario, recorder, silent).run()
    random_steps = isinstance(aggregation, PoissonAggregation)
    weights = 1 / (4 * chances(scenario.rates, 0.25, delays.name, random_steps=random_steps))
    in_mean_step = weights * recorder.tally.served(4) / status.server_steps
    np.testing.assert_allclose(in_mean_step, 1 / 4, rtol=0.26)
    np.testing.assert_allclose(in_mean_step[:3], 1 / 4, rtol=0.1)


def test_fedfix_does_not_call_a_client_that_was_lost_while_it_waited() -> None:
    table = Table(fedfix(np.array([0.5, 1.0]), 1.0), two_clients(), delta=NEVER)
    table.deliver(0)
    table.lose(0)
    table.conductor.timer(2.0)  # what client 0 has sent is used
    assert table.model() == [7, 6]
    assert sorted(table.orders) == [1]


def test_fedfix_waits_for_a_client_whose_update_was_refused() -> None:
    table = Table(fedfix(np.array([0.5, 1.0]), 1.0), two_clients(), delta=NEVER)
    table.refuse(0)
    assert sorted(table.orders) == [0, 1]
    table.conductor.timer(2.0)
    assert table.model() == [8, 8]
    table.deliver(0)
    table.conductor.timer(4.0)
    assert table.model() == [7, 6]


# ---------------------------------------------------------------------------------------------------- FedStaleWeight


@examples(numbers=st.lists(st.integers(0, 3), max_size=40), delta=st.integers(1, 5))
def test_fedstaleweight_gives_all_clients_the_same_staleness_in_all(numbers: list[int], delta: int) -> None:
    """Rounds begin where others end, so a client's staleness adds up to the version at its last update."""
    table = Table(fedstaleweight(4, 0.1), bowls(4), delta=delta)
    seen = [0, 0, 0, 0]
    for number in numbers:
        seen[number] = table.server.version
        table.deliver(number)
        assert table.server.state.staleness.tolist() == seen


def test_fedstaleweight_with_delta_1_is_fedbuff_as_soon_as_updates_weigh_something() -> None:
    """A weighted mean of one update is that update."""
    table = Table(fedstaleweight(2, 1.0, added=1.0), two_clients(), delta=1)
    fedbuff = Table(fedbuff_published(2, 2, 1.0, scaled=False, seed=0), two_clients(), delta=1)
    for number in (0, 0, 1, 0, 1, 1, 0):
        table.deliver(number)
        fedbuff.deliver(number)
    assert table.model() == pytest.approx(fedbuff.model())


# ---------------------------------------------------------------------------------------------------- optimisers


def test_server_momentum_0_is_fedbuff(record: Recorded) -> None:
    momentum = experiment_of("server-momentum", server_step_size=0.7, momentum=0.0)
    assert_same_run(record, momentum, experiment_of("fedbuff", server_step_size=0.7))


@examples(numbers=st.lists(st.integers(0, 3), max_size=30), delta=st.integers(1, 4))
def test_fadas_divides_by_the_greatest_mean_square(numbers: list[int], delta: int) -> None:
    settings = Fadas(step_size=0.5, server_step_size=0.3, epsilon=0.1)
    table = Table(settings.build(inputs(4)), bowls(4), delta=delta)
    for number in numbers:
        before: OptimiserState = table.server.state
        table.deliver(number)
        after: OptimiserState = table.server.state
        if after.buffer.size == 0:
            greatest = np.maximum(before.moments.greatest, after.moments.square)
            np.testing.assert_array_equal(after.moments.greatest, greatest)
            expected = before.model - 0.3 * (after.moments.mean / (np.sqrt(greatest) + 0.1))
            np.testing.assert_array_equal(after.model, expected)


def fadas_steps(*stalenesses: tuple[int, ...]) -> list[float]:
    """How far each step goes, from a buffer of updates this old; eta = 1, tau_c = 2, and the direction is always 1."""
    method = Fadas(step_size=0.5, server_step_size=1.0, beta1=0.0, beta2=0.0, epsilon=0.0, delay_threshold=2).build(
        inputs(2)
    )
    state, models = method.start(np.array([8.0])).state, [8.0]
    for buffer in stalenesses:
        for staleness in buffer:
            state = method.receive(state, arrival(0, np.ones(1), staleness=staleness)).state
        state = method.aggregate(state).state
        models.append(float(state.model[0]))
    return [before - after for before, after in zip(models, models[1:], strict=False)]


def test_fadas_shortens_its_step_beyond_tau_c_and_not_at_it() -> None:
    assert fadas_steps((2,)) == [1.0]
    assert fadas_steps((3,)) == pytest.approx([1 / 3])


def test_fadas_forgets_the_greatest_staleness_after_a_step() -> None:
    assert fadas_steps((4, 0), (2, 1), (8,), (0,)) == [0.25, 1.0, 0.125, 1.0]


def test_step_size_of_fadas() -> None:
    assert [delay_adaptive(0.3, 2)(oldest) for oldest in (0, 2, 3, 4, 10)] == [0.3, 0.3, 0.3, 0.25, 0.1]
    assert delay_adaptive(0.3, None)(1000) == 0.3
