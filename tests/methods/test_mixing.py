"""Mixing methods: trajectories by hand, what their papers promise, and the local steps that the server gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import floor, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.table import Table, given
from tests.methods.whole_runs import farthest_lane, replayed, resumed
from tests.support.quadratics import GivenQuadratic

from areabench.engine.events import Kind, State
from areabench.engine.messages import Update, UpdateHeader
from areabench.errors import ConfigError
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.experiment.parse import parse_experiment
from areabench.methods.asyncfeded import AsyncFedEd, adapted, asyncfeded
from areabench.methods.base import Arrival, Call, MethodSettings
from areabench.methods.criteria import EveryUpdates
from areabench.methods.fedasync import FedAsync, constant, fedasync, hinge, polynomial
from areabench.methods.local import build_method
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.runfile.read import Run
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates

Recorded = Callable[[Experiment], Run]
IDENTITY = [[1, 0], [0, 1]]
METHODS: tuple[MethodSettings, ...] = (
    FedAsync(step_size=0.05),
    FedAsync(step_size=0.05, staleness="hinge", hinge_delay=2, prox=0.0),
    AsyncFedEd(step_size=0.05, scale=0.5, target=2.0, most_steps=6),
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


def two_clients(local_steps: int = 1) -> QuadraticProblem:
    """Two bowls, start (8, 8).

    With alpha = 1/2 a local step of client 0 is (a, b) -> ((a + 4)/2, b/2), one of client 1 (a, b) -> (0, (b + 8)/2).
    """
    return GivenQuadratic([IDENTITY, [[2, 0], [0, 1]]], [[4, 0], [0, 8]], [8, 8], local_steps)


# ---------------------------------------------------------------------------------------------------- FedAsync


def test_fedasync_by_hand() -> None:
    """A step at each arrival, whatever Delta is; a = 1/2 and s(tau) = 1/(1 + tau)."""
    table = Table(fedasync(2, 0.5, polynomial(1.0)), two_clients(), delta=3)
    table.deliver(0)  # (8,8) -> (6,4), fresh: halfway
    assert table.model() == [7, 6]
    assert table.holds(0) == ([7, 6], 1, 2)  # the reply leaves after the step
    table.deliver(0)  # (7,6) -> (5.5,3), fresh: halfway
    assert table.model() == [6.25, 4.5]
    assert table.holds(0) == ([6.25, 4.5], 2, 4)
    table.deliver(1)  # (8,8) -> (0,8), tau = 2: 1/6 of the way from (6.25,4.5)
    assert table.model() == pytest.approx([6.25 * 5 / 6, 4.5 * 5 / 6 + 8 / 6])
    assert table.counters() == (6, 3)


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
    method = build_method(settings, given(2))
    state = method.start(np.zeros(2)).state
    arrival = Arrival(0, np.ones(2), 0, 0, np.zeros(2), 2, 0.5, 1, 0.0)
    mixed = method.aggregate(method.receive(state, arrival).state).state.model
    assert mixed == pytest.approx([weight, weight])


def test_proximal_term_of_fedasync_by_hand() -> None:
    settings = FedAsync(step_size=0.5, mixing=0.5, prox=1.0)
    table = Table(build_method(settings, given(2, local_steps=2)), two_clients(local_steps=2))
    # (8,8) -> (6,4); there the gradient is (2,4), and the term (6,4) - (8,8) makes it 0: x_i = (6,4), not (5,2)
    table.deliver(0)
    assert table.model() == [7, 6]


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
    run = record(replace(EXPERIMENT, method=METHODS[2], delays=ExponentialDelays(per="step")))
    made = run.events_array["local_steps"][run.events_array["kind"] == Kind.UPDATE]
    assert {2, 6} < set(made.tolist()) <= set(range(1, 7))
    assert replayed(run) == ""


# ---------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_models_stay_float32(method: MethodSettings) -> None:
    built = build_method(method, given(2))
    state, zero = built.start(np.ones(3, np.float32)).state, np.zeros(3, np.float32)
    state = built.receive(state, Arrival(0, np.ones(3, np.float32), 0, 0, zero, 3, 0.1, 1, 0.0)).state
    assert built.aggregate(state).state.model.dtype == np.float32


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_run_with_lost_clients_is_replayed_bit_for_bit(record: Recorded, method: MethodSettings) -> None:
    run = record(replace(EXPERIMENT, method=method))
    assert (run.status.state, run.status.lost) == (State.DONE, 2)
    assert run.status.server_steps == run.status.updates
    assert replayed(run) == ""


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_resumed_run_is_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: MethodSettings
) -> None:
    cut, whole = resumed(replace(EXPERIMENT, method=method), tmp_path, monkeypatch, 40)
    assert cut == whole


def test_lanes_of_fedasync_end_where_runs_alone_end(tmp_path: Path) -> None:
    base = replace(EXPERIMENT, faults=Faults())
    lanes = [METHODS[1], replace(METHODS[1], step_size=0.2)]
    assert farthest_lane(base, lanes, tmp_path) < 1e-4


# ---------------------------------------------------------------------------------------------------- refused settings

SMALL = """
[clients]
count = 4
local_steps = 3
[method]
name = "asyncfeded"
step_size = 0.1
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
"""


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("method.most_steps=2",), "method.most_steps: 2 is less than clients.local_steps = 3"),
        (("clients.work=uniform",), '"uniform" makes no sense with asyncfeded'),
        (("aggregation={name='period', period_s=1.0}",), '"period" makes no sense with asyncfeded'),
        (("method.name=fedasync", "aggregation={name='poisson', rate=1.0}"), '"poisson" makes no sense with fedasync'),
        (("method.name=fedasync", "local.prox=0.1"), "0.1 would be added to method.prox = 0.005"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(SMALL, "try.toml", overrides)
    assert words in str(caught.value)
