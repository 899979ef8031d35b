"""Buffered methods: trajectories by hand, what their papers promise, and the clients that the server chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.table import Table, arrival, given
from tests.methods.whole_runs import farthest_lane, replayed, resumed
from tests.support.quadratics import GivenQuadratic

from areabench.engine.events import Kind, State
from areabench.engine.lanes import group_lanes
from areabench.engine.messages import Update, UpdateHeader
from areabench.engine.scenario import build_scenario
from areabench.errors import ConfigError
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.experiment.parse import parse_experiment
from areabench.methods.base import Arrival, MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fedbuff_published import FedBuffPublished, fedbuff_published
from areabench.methods.fedfix import FedFix, chances, fedfix
from areabench.methods.fedstaleweight import FedStaleWeight, fedstaleweight
from areabench.methods.local import build_method
from areabench.methods.server_optimisers import Fadas, OptimiserState, ServerAdam, ServerMomentum, delay_adaptive
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.runfile.read import Run
from areabench.timing.delays import DelaySettings
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports.simulator import LaneRecorder, Simulator

Recorded = Callable[[Experiment], Run]
IDENTITY = [[1, 0], [0, 1]]
NEVER = 10**9  # updates between two server steps, where a test calls for each step
METHODS: tuple[MethodSettings, ...] = (
    FedBuffPublished(step_size=0.05, concurrency=3),
    FedBuffPublished(step_size=0.05),
    FedFix(step_size=0.05),
    FedStaleWeight(step_size=0.05),
    ServerMomentum(step_size=0.05, server_step_size=0.2),
    ServerAdam(step_size=0.05, server_step_size=0.05),
    Fadas(step_size=0.05, server_step_size=0.05, delay_threshold=2),
)
EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=2),
    method=METHODS[0],
    stop=Stop(horizon_s=3.0),
    problem=Quadratic(dimension=3, noise=0.5),
    rates=ListedRates(values=(20.0, 10.0, 5.0, 4.0, 3.0)),
    aggregation=EveryUpdates(updates=3),
    record=Record(interval_s=0.5),
    faults=Faults(lost=(2, 4), lost_at_s=(0.7, 1.4)),
    seed=3,
)


def of(method: MethodSettings) -> Experiment:
    """The experiment with a method; FedFix steps by the clock."""
    aggregation: AggregationSettings = EveryUpdates(updates=3)
    if isinstance(method, FedFix):
        aggregation = EveryPeriod(period_s=0.13)
    return replace(EXPERIMENT, method=method, aggregation=aggregation)


def two_clients() -> QuadraticProblem:
    """Two bowls, start (8, 8).

    With alpha = 1/2 a local step of client 0 is (a, b) -> ((a + 4)/2, b/2), one of client 1 (a, b) -> (0, (b + 8)/2).
    """
    return GivenQuadratic([IDENTITY, [[2, 0], [0, 1]]], [[4, 0], [0, 8]], [8, 8], 1)


def many_clients(count: int) -> QuadraticProblem:
    """Bowls around (0, 0), (1, 1), ..."""
    return GivenQuadratic([IDENTITY] * count, [[place, place] for place in range(count)], [8, 8], 1)


def refuse(table: Table, client: int) -> None:
    """The next update of a client is not finite."""
    order, number = table.orders.pop(client), table.clients[client].round
    payload = np.full_like(table.clients[client].work(order), np.nan)
    header = UpdateHeader(client, number, order.version, local_steps=order.local_steps)
    table.conductor.update(Update(header, payload), table.time_s)


# ---------------------------------------------------------------------------------------------------- FedBuff


def test_fedbuff_as_published_scales_by_staleness_by_hand() -> None:
    table = Table(fedbuff_published(2, 2, 1.0, scaled=True, seed=0), two_clients(), delta=1)
    table.deliver(0)  # (8,8) - (6,4) = (2,4), tau = 0
    assert table.model() == [6, 4]
    assert table.holds(0) == ([8, 8], 0, 1)  # from before the step
    table.deliver(0)  # (2,4) again, tau = 1: (2,4)/sqrt(2)
    assert table.model() == pytest.approx([6 - sqrt(2), 4 - 2 * sqrt(2)])
    assert table.holds(0) == ([6, 4], 1, 3)
    table.deliver(0)  # (6,4) - (5,2) = (1,2), tau = 1: (1,2)/sqrt(2)
    assert table.model() == pytest.approx([6 - 1.5 * sqrt(2), 4 - 3 * sqrt(2)])
    table.deliver(1)  # (8,8) - (0,8) = (8,0), tau = 3: (8,0)/2
    assert table.model() == pytest.approx([2 - 1.5 * sqrt(2), 4 - 3 * sqrt(2)])
    assert table.counters() == (8, 4)


def test_fedbuff_as_published_divides_by_k_and_not_by_the_sum_of_the_factors() -> None:
    table = Table(fedbuff_published(2, 2, 1.0, scaled=True, seed=0), two_clients(), delta=2)
    table.deliver(0, 0)  # (2,4) twice, both fresh: x_s = (8,8) - (2,4)
    assert table.model() == [6, 4]
    table.deliver(0, 1)  # (2,4) and (8,0), tau = 1 each: ((2,4) + (8,0))/sqrt(2)/2
    assert table.model() == pytest.approx([6 - 5 / sqrt(2), 4 - 2 / sqrt(2)])


@pytest.mark.parametrize("aggregation", [EveryUpdates(updates=3), PoissonAggregation(rate=8.0)])
def test_fedbuff_as_published_with_all_clients_and_no_scaling_is_fedbuff(
    record: Recorded, aggregation: AggregationSettings
) -> None:
    base = replace(EXPERIMENT, aggregation=aggregation)
    published = record(replace(base, method=FedBuffPublished(step_size=0.05, staleness="constant")))
    fedbuff = record(replace(base, method=FedBuff(step_size=0.05, server_step_size=1.0)))
    assert published.events_array.tobytes() == fedbuff.events_array.tobytes()
    assert published.models.tobytes() == fedbuff.models.tobytes()


@examples(numbers=st.lists(st.integers(0, 5), max_size=30), concurrency=st.integers(1, 6), seed=st.integers(0, 9))
def test_fedbuff_as_published_keeps_its_concurrency(numbers: list[int], concurrency: int, seed: int) -> None:
    """Whoever delivers, and whether its update is used or refused, C clients have one order each."""
    table = Table(fedbuff_published(6, concurrency, 0.1, scaled=True, seed=seed), many_clients(6), delta=2)
    for number in numbers:
        at_work = sorted(table.orders)
        client = at_work[number % concurrency]
        if number == 5:
            refuse(table, client)
            assert sorted(table.orders) == at_work
        else:
            table.deliver(client)
        assert len(table.orders) == concurrency
        assert sorted([*table.orders, *table.server.state.idle.tolist()]) == list(range(6))


@pytest.mark.parametrize("concurrency", [1, 3, 5, 6])
def test_fedbuff_as_published_gives_the_slot_of_a_lost_client_to_another(concurrency: int) -> None:
    table = Table(fedbuff_published(6, concurrency, 0.1, scaled=True, seed=1), many_clients(6), delta=2)
    left = set(range(6))
    for lost in (3, 0, 4, 1):
        table.lose(lost)
        left.remove(lost)
        assert len(table.orders) == min(concurrency, len(left))
        table.deliver(min(table.orders))
        assert len(table.orders) == min(concurrency, len(left))
        assert {*table.orders, *table.server.state.idle.tolist()} == left


def test_fedbuff_as_published_draws_all_free_clients_alike() -> None:
    table = Table(fedbuff_published(4, 1, 0.1, scaled=False, seed=2), many_clients(4), delta=2)
    counts = np.zeros(4)
    for _ in range(4000):
        (client,) = table.orders
        table.deliver(client)
        counts[client] += 1
    assert np.abs(counts / 4000 - 0.25).max() < 4 * sqrt(0.25 * 0.75 / 4000)


# ---------------------------------------------------------------------------------------------------- FedFix


def test_fedfix_by_hand() -> None:
    """Client 0 is in every step, client 1 in every second one: d = (1/2, 1)."""
    table = Table(fedfix(np.array([0.5, 1.0]), 1.0), two_clients(), delta=NEVER)
    table.deliver(0)  # (8,8) - (6,4) = (2,4), half of it; client 0 waits for the step
    assert sorted(table.orders) == [1]
    table.conductor.timer(2.0)  # x_s = (8,8) - (1,2)
    assert table.model() == [7, 6]
    assert table.holds(0) == ([7, 6], 1, 2)
    table.deliver(1)  # stale: (8,8) - (0,8) = (8,0)
    table.deliver(0)  # (7,6) - (5.5,3) = (1.5,3), half of it
    table.conductor.timer(4.0)  # x_s = (7,6) - (8,0) - (0.75,1.5)
    assert table.model() == [-1.75, 4.5]
    assert table.holds(0) == table.holds(1) == ([-1.75, 4.5], 2, 5)
    table.conductor.timer(6.0)  # nobody has answered
    assert table.model() == [-1.75, 4.5]
    assert table.counters() == (6, 3)


def test_fedfix_is_the_plain_mean_where_all_answer_in_each_period() -> None:
    known = given(4, rates=np.full(4, 4.0), updates=None, period_s=0.25, delays="fixed")
    table = Table(build_method(FedFix(step_size=0.5), known), many_clients(4), delta=NEVER)
    table.deliver(0, 1, 2, 3)  # halfway from (8,8) to (i,i): 4, 3.5, 3, 2.5 are subtracted; their mean is 3.25
    table.conductor.timer(5.0)
    assert table.model() == [4.75, 4.75]
    assert sorted(table.orders) == [0, 1, 2, 3]


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
    status = Simulator(scenario, recorder, lambda _time_s, _updates: None).run()
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
    refuse(table, 0)
    assert sorted(table.orders) == [0, 1]
    table.conductor.timer(2.0)
    assert table.model() == [8, 8]
    table.deliver(0)
    table.conductor.timer(4.0)
    assert table.model() == [7, 6]


# ---------------------------------------------------------------------------------------------------- FedStaleWeight


def test_fedstaleweight_by_hand() -> None:
    table = Table(fedstaleweight(2, 1.0), two_clients(), delta=2)
    table.deliver(0, 1)  # both are fresh and weigh nothing
    assert table.model() == [8, 8]
    assert table.counters() == (3, 1)
    table.deliver(0)  # of version 0: (2,4), tau = 1, mean 1/2
    assert table.holds(0) == ([8, 8], 1, 4)
    table.deliver(0)  # of version 1: (2,4), tau = 0, mean 1/3; the weighted mean is (2,4)
    assert table.model() == [6, 4]
    table.deliver(1)  # of version 0: (8,0), tau = 2, mean 1
    table.deliver(0)  # of version 1: (2,4), tau = 1, mean 1/2; ((8,0) + (1,2))/1.5 = (6,4/3)
    assert table.model() == pytest.approx([0, 8 / 3])


def test_fedstaleweight_with_one_added_by_hand() -> None:
    table = Table(fedstaleweight(2, 1.0, added=1.0), two_clients(), delta=2)
    table.deliver(0, 1)  # weights 1 and 1: mean of (2,4) and (8,0)
    assert table.model() == [3, 6]
    table.deliver(0)  # of version 0: (2,4), tau = 1, weight 1/2 + 1
    table.deliver(0)  # (3,6) - (3.5,3) = (-0.5,3), tau = 0, weight 1/3 + 1
    # ((3,6) + (-2/3,4)) / (17/6) = (14/17,60/17)
    assert table.model() == pytest.approx([3 - 14 / 17, 6 - 60 / 17])


@examples(numbers=st.lists(st.integers(0, 3), max_size=40), delta=st.integers(1, 5))
def test_fedstaleweight_gives_all_clients_the_same_staleness_in_all(numbers: list[int], delta: int) -> None:
    """Rounds begin where others end, so a client's staleness adds up to the version at its last update."""
    table = Table(fedstaleweight(4, 0.1), many_clients(4), delta=delta)
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


def test_server_momentum_by_hand() -> None:
    settings = ServerMomentum(step_size=0.5, server_step_size=0.5, momentum=0.5)
    table = Table(build_method(settings, given(2)), two_clients(), delta=2)
    table.deliver(0, 0)  # (2,4) twice; m = (2,4), x_s = (8,8) - (1,2)
    assert table.model() == [7, 6]
    table.deliver(1, 0)  # stale (8,0) and (2,4), mean (5,2); m = (1,2) + (5,2) = (6,4), x_s = (7,6) - (3,2)
    assert table.model() == [4, 4]
    table.deliver(0, 1)  # (1.5,3) and (7,-1), mean (4.25,1); m = (3,2) + (4.25,1), x_s = (4,4) - (3.625,1.5)
    assert table.model() == [0.375, 2.5]
    assert table.counters() == (9, 3)


def test_server_momentum_0_is_fedbuff(record: Recorded) -> None:
    momentum = record(of(ServerMomentum(step_size=0.05, server_step_size=0.7, momentum=0.0)))
    fedbuff = record(of(FedBuff(step_size=0.05, server_step_size=0.7)))
    assert momentum.events_array.tobytes() == fedbuff.events_array.tobytes()
    assert momentum.models.tobytes() == fedbuff.models.tobytes()


def test_server_adam_by_hand() -> None:
    settings = ServerAdam(step_size=0.5, server_step_size=1.0, beta1=0.5, beta2=0.5, epsilon=1.0)
    table = Table(build_method(settings, given(2)), two_clients(), delta=2)
    table.deliver(0, 0)  # mean (2,4); m = (1,2), v = (2,8)
    first = [8 - 1 / (sqrt(2) + 1), 8 - 2 / (sqrt(8) + 1)]
    assert table.model() == pytest.approx(first)
    table.deliver(1, 0)  # stale (8,0) and (2,4), mean (5,2); m = (0.5,1) + (2.5,1), v = (1,4) + (12.5,2)
    assert table.model() == pytest.approx([first[0] - 3 / (sqrt(13.5) + 1), first[1] - 2 / (sqrt(6) + 1)])


def test_fadas_by_hand() -> None:
    """Steps of each update; the third is 2 versions old, beyond tau_c = 1."""
    settings = Fadas(step_size=0.5, server_step_size=0.75, beta1=0.5, beta2=0.5, epsilon=1.0, delay_threshold=1)
    table = Table(build_method(settings, given(2)), two_clients(), delta=1)
    table.deliver(0)  # (2,4); m = (1,2), v = (2,8)
    first = [8 - 0.75 / (sqrt(2) + 1), 8 - 1.5 / (sqrt(8) + 1)]
    assert table.model() == pytest.approx(first)
    table.deliver(0)  # (2,4) of version 0; m = (1.5,3), v = (3,12)
    second = [first[0] - 0.75 * 1.5 / (sqrt(3) + 1), first[1] - 0.75 * 3 / (sqrt(12) + 1)]
    assert table.model() == pytest.approx(second)
    table.deliver(1)  # (8,0) of version 0; m = (4.75,1.5), v = (33.5,6), greatest (33.5,12); min(0.75, 1/2)
    third = [second[0] - 0.5 * 4.75 / (sqrt(33.5) + 1), second[1] - 0.5 * 1.5 / (sqrt(12) + 1)]
    assert table.model() == pytest.approx(third)


@examples(numbers=st.lists(st.integers(0, 3), max_size=30), delta=st.integers(1, 4))
def test_fadas_divides_by_the_greatest_mean_square(numbers: list[int], delta: int) -> None:
    settings = Fadas(step_size=0.5, server_step_size=0.3, epsilon=0.1)
    table = Table(build_method(settings, given(4)), many_clients(4), delta=delta)
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
    method = build_method(
        Fadas(step_size=0.5, server_step_size=1.0, beta1=0.0, beta2=0.0, epsilon=0.0, delay_threshold=2), given(2)
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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_models_stay_float32(method: MethodSettings) -> None:
    built = build_method(method, given(5, period_s=1.0))
    state, zero = built.start(np.ones(3, np.float32)).state, np.zeros(3, np.float32)
    for client in (0, 1):
        arrival = Arrival(client, np.ones(3, np.float32), 0, 0, zero, 3, 0.1, 1, 0.0)
        state = built.receive(state, arrival).state
    assert built.aggregate(state).state.model.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_run_with_lost_clients_is_replayed_bit_for_bit(record: Recorded, method: MethodSettings) -> None:
    run = record(of(method))
    assert (run.status.state, run.status.lost) == (State.DONE, 2)
    late = run.events_array[run.events_array["time_s"] > 1.4]
    assert set(late["client"][late["kind"] == Kind.UPDATE].tolist()) == {0, 1, 3}
    assert replayed(run) == ""


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_resumed_run_is_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: MethodSettings
) -> None:
    cut, whole = resumed(of(method), tmp_path, monkeypatch, 40)
    assert cut == whole


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_lanes_end_where_runs_alone_end(tmp_path: Path, method: MethodSettings) -> None:
    base = replace(of(method), faults=Faults())
    lanes = [method, replace(method, step_size=0.2)]
    assert farthest_lane(base, lanes, tmp_path) < 1e-4


def test_all_methods_whose_clients_work_all_the_time_share_a_pass() -> None:
    base = parse_experiment(SMALL.replace("quadratic", "logistic"), "try.toml", ("record.events=false",))
    experiments = [replace(base, method=method) for method in METHODS if method.client_driven]
    assert len(group_lanes(experiments)) == 1


# ---------------------------------------------------------------------------------------------------- refused settings

SMALL = """
[clients]
count = 4
[method]
name = "fedfix"
step_size = 0.1
[aggregation]
name = "period"
period_s = 0.5
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
"""


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("method.name=fedbuff-published", "method.concurrency=5"), "concurrency: 5 is more than clients.count = 4"),
        (("aggregation={name='updates'}",), '"updates" makes no sense with fedfix, which steps by the clock'),
        (
            ("delays={name='trace', file='delays.csv'}",),
            '"trace" makes no sense with fedfix, which must know how often a client answers',
        ),
        (
            ("delays={name='fixed', per='step'}",),
            '"step" makes no sense with fedfix, which must know how often a client answers',
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(SMALL, "try.toml", overrides)
    assert words in str(caught.value)
