"""The methods with memory: trajectories by hand, what the clients' memories add up to, and where the methods end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from tests.methods.table import Table, given
from tests.support.quadratics import GivenQuadratic

from areabench.arrays import Vector
from areabench.engine.events import Kind, State
from areabench.engine.scenario import build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.experiment.parse import parse_experiment
from areabench.methods import METHODS
from areabench.methods.aced import Aced, aced
from areabench.methods.afa_cd import AfaCd
from areabench.methods.base import Arrival, Method, MethodSettings
from areabench.methods.ca2fl import Ca2fl, ca2fl
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.gradient_tables import Ace, AfaCs, Dude, Ia2Sgd, gradient_table
from areabench.methods.local import Local, build_method
from areabench.methods.mifa import Mifa, mifa
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.progress import Style
from areabench.runfile.layout import checkpoint_path
from areabench.runfile.read import Run, open_run
from areabench.timing.rates import ListedRates
from areabench.transports import session
from areabench.transports.options import RunOptions
from areabench.transports.replay import Replay
from areabench.transports.signals import CheckpointTriggers
from areabench.transports.simulator import play_alone

Recorded = Callable[[Experiment], Run]
BY_THE_CLOCK = 10**9  # updates: never


def two_clients(local_steps: int = 1) -> QuadraticProblem:
    """Two bowls, start (8, 8): g_0(a, b) = (a - 4, b) and g_1(a, b) = (2a, b - 8).

    With alpha = 1/2 a local step of client 0 is (a, b) -> ((a + 4)/2, b/2), one of client 1 (a, b) -> (0, (b + 8)/2).
    """
    return GivenQuadratic([[[1, 0], [0, 1]], [[2, 0], [0, 1]]], [[4, 0], [0, 8]], [8, 8], local_steps)


def ace(clients: int = 2, step_size: float = 0.5) -> Method:
    return gradient_table("ace", clients, step_size, every_arrival=True)


def step_by_the_clock(table: Table) -> None:
    table.time_s += 1.0
    table.conductor.timer(table.time_s)


# ---------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("settings", [Ia2Sgd(step_size=0.5), Ace(step_size=0.5)], ids=lambda settings: settings.name)
def test_table_with_a_step_for_each_arrival_by_hand(settings: MethodSettings) -> None:
    table = Table(build_method(settings, given(2)), two_clients())
    table.deliver(0)  # k=1: G_0 = (4,8), the sum; client 1 is awaited
    assert (table.counters(), table.model()) == ((1, 0), [8, 8])
    assert table.holds(0) == ([8, 8], 0, 1)
    table.deliver(0)  # k=2: the same gradient, a message of zeros
    assert table.counters() == (2, 0)
    table.deliver(1)  # k=3: G_1 = (16,0), sum (20,8), mean (10,4); the step k=4: x_s = (8,8) - (5,2)
    assert (table.counters(), table.model()) == ((4, 1), [3, 6])
    assert table.holds(1) == ([3, 6], 1, 4)  # the reply comes after the step
    assert table.holds(0) == ([8, 8], 0, 2)
    table.deliver(0)  # stale: G_0 = (4,8) again, so the mean stays (10,4); x_s = (3,6) - (5,2)
    assert table.model() == [-2, 4]
    assert table.holds(0) == ([-2, 4], 2, 6)
    table.deliver(0)  # G_0 = (-6,4), message (-10,-4), sum (10,4), mean (5,2); x_s = (-2,4) - (2.5,1)
    assert table.model() == [-4.5, 3]
    table.deliver(1)  # from (3,6): G_1 = (6,-2), message (-10,-2), sum (0,2), mean (0,1); x_s = (-4.5,3) - (0,0.5)
    assert table.model() == [-4.5, 2.5]
    assert table.counters() == (10, 4)
    np.testing.assert_array_equal(table.clients[0].memory, [-6, 4])
    np.testing.assert_array_equal(table.clients[1].memory, [6, -2])
    np.testing.assert_array_equal(table.server.state.gradients.total, [0, 2])


def test_dude_by_hand() -> None:
    table = Table(build_method(Dude(step_size=0.5), given(2)), two_clients(), delta=2)
    table.deliver(0, 0)  # G_0 = (4,8) twice; the criterion is met, but client 1 is awaited
    assert (table.counters(), table.model()) == ((2, 0), [8, 8])
    table.deliver(1)  # k=3: G_1 = (16,0), mean (10,4); the step k=4: x_s = (8,8) - (5,2)
    assert (table.counters(), table.model()) == ((4, 1), [3, 6])
    table.deliver(0)  # k=5, stale: G_0 = (4,8) again; one update since the step
    assert (table.counters(), table.model()) == ((5, 1), [3, 6])
    assert table.holds(0) == ([3, 6], 1, 5)
    table.deliver(0)  # k=6: G_0 = (-1,6), sum (15,6), mean (7.5,3); the step k=7: x_s = (3,6) - (3.75,1.5)
    assert (table.counters(), table.model()) == ((7, 2), [-0.75, 4.5])
    assert table.holds(0) == ([-0.75, 4.5], 2, 7)


def test_afa_cs_by_hand_with_other_numbers_of_local_steps() -> None:
    """G is the mean of the K gradients of a round; eta is left out: alpha·M = 1."""
    method = build_method(AfaCs(step_size=0.5), given(2, local_steps=2))
    table = Table(method, two_clients(local_steps=2))
    table.deliver(0, made=1)  # (8,8) -> (6,4): G_0 = (2,4)/(0.5·1) = (4,8)
    table.deliver(1, made=2)  # (8,8) -> (0,8) -> (0,8): G_1 = (8,0)/(0.5·2) = (8,0); mean (6,4); x_s = (8,8) - (6,4)
    assert (table.counters(), table.model()) == ((3, 1), [2, 4])
    table.deliver(0, made=2)  # (8,8) -> (6,4) -> (5,2): G_0 = (3,6); sum (11,6), mean (5.5,3)
    assert table.model() == [-3.5, 1]
    table.deliver(1, made=1)  # (2,4) -> (0,6): G_1 = (2,-2)/0.5 = (4,-4); sum (7,2), mean (3.5,1)
    assert table.model() == [-7, 0]


def test_aced_by_hand() -> None:
    table = Table(aced(2, step_size=0.5, max_delay=1), two_clients())
    table.deliver(0, 1)  # G_0 = (4,8), G_1 = (16,0); mean (10,4); x_s = (8,8) - (5,2)
    assert (table.counters(), table.model()) == ((3, 1), [3, 6])
    table.deliver(0)  # stale: G_0 = (4,8); entry 1 is one step old and counts: mean (10,4); x_s = (3,6) - (5,2)
    assert table.model() == [-2, 4]
    table.deliver(0)  # G_0 = (-6,4); entry 1 is two steps old: mean (-6,4); x_s = (-2,4) - (-3,2)
    assert table.model() == [1, 2]
    assert table.server.state.since.tolist() == [2, -1]
    table.deliver(1)  # from (3,6): G_1 = (6,-2); entry 0 is one step old: mean (0,1); x_s = (1,2) - (0,0.5)
    assert table.model() == [1, 1.5]
    assert table.holds(1) == ([1, 1.5], 4, 9)
    np.testing.assert_array_equal(table.server.state.table, [[-6, 4], [6, -2]])
    np.testing.assert_array_equal(table.server.state.total, [0, 2])


def test_ca2fl_by_hand() -> None:
    table = Table(ca2fl(2, server_step_size=0.5), two_clients(), delta=2)
    table.deliver(0)  # k=1: d_0 = (-2,-4) is sent whole; the reply comes before the step
    assert table.holds(0) == ([8, 8], 0, 1)
    table.deliver(0)  # d_0 - h_0 = 0; v = 0 + (-1,-2); x_s = (8,8) + (-0.5,-1); h = (-2,-4)/2
    assert (table.counters(), table.model()) == ((3, 1), [7.5, 7])
    np.testing.assert_array_equal(table.server.state.cached, [-1, -2])
    table.deliver(1, 0)  # stale: d_1 = (-8,0) and 0; v = (-1,-2) + (-4,0); x_s = (7.5,7) + (-2.5,-1)
    assert table.model() == [5, 6]
    np.testing.assert_array_equal(table.server.state.cached, [-5, -2])  # (-1,-2) + (-8,0)/2
    table.deliver(0)  # from (7.5,7): d_0 = (-1.75,-3.5), sent is (0.25,0.5)
    table.deliver(1)  # from (7.5,7): d_1 = (-7.5,0.5), sent is (0.5,0.5); v = (-5,-2) + (0.375,0.5)
    assert table.model() == [2.6875, 5.25]  # (5,6) + (-2.3125,-0.75)
    np.testing.assert_array_equal(table.server.state.cached, [-4.625, -1.5])  # the mean of d_0 and d_1


def test_afa_cd_by_hand_with_other_numbers_of_local_steps() -> None:
    table = Table(build_method(AfaCd(step_size=0.5), given(2, local_steps=2)), two_clients(local_steps=2), delta=2)
    table.deliver(0, made=1)  # G_0 = (4,8)
    assert table.holds(0) == ([8, 8], 0, 1)
    table.deliver(0, made=2)  # G_0 = (3,6); mean (3.5,7), eta = 1: x_s = (8,8) - (3.5,7); client 1 has no say
    assert (table.counters(), table.model()) == ((3, 1), [4.5, 1])
    assert table.holds(0) == ([4.5, 1], 1, 3)
    table.deliver(1, made=1)  # stale: G_1 = (16,0)
    table.deliver(0, made=1)  # from (4.5,1): G_0 = (0.5,1); mean (8.25,0.5)
    assert table.model() == [-3.75, 0.5]


def test_mifa_by_hand() -> None:
    table = Table(mifa(2, server_step_size=1.0), two_clients(), delta=BY_THE_CLOCK)
    table.deliver(0)  # D_0 = (2,4); client 0 is free until the next round
    step_by_the_clock(table)  # client 1 is awaited
    assert (table.counters(), list(table.orders)) == ((1, 0), [1])
    table.deliver(1)  # D_1 = (8,0)
    step_by_the_clock(table)  # mean (5,2); x_s = (8,8) - (5,2)
    assert table.holds(0) == table.holds(1) == ([3, 6], 1, 3)
    table.deliver(0)  # (3,6) -> (3.5,3): D_0 = (-0.5,3)
    step_by_the_clock(table)  # client 1 stands in with (8,0): mean (3.75,1.5)
    assert table.model() == [-0.75, 4.5]
    assert table.holds(0) == ([-0.75, 4.5], 2, 5)
    assert table.holds(1) == ([3, 6], 1, 3)
    table.deliver(1)  # (3,6) -> (0,7): D_1 = (3,-1)
    step_by_the_clock(table)  # client 0 stands in with (-0.5,3): mean (1.25,1)
    assert table.model() == [-2, 3.5]


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


SETTINGS: tuple[tuple[MethodSettings, AggregationSettings], ...] = (
    (Ca2fl(step_size=0.02), EveryUpdates(updates=3)),
    (AfaCs(step_size=0.02), EveryUpdates(updates=3)),
    (Ia2Sgd(step_size=0.02), EveryUpdates()),
    (Dude(step_size=0.02), PoissonAggregation(rate=20.0)),
    (Ace(step_size=0.02), EveryUpdates()),
    (Aced(step_size=0.02, max_delay=7), EveryUpdates()),
    (AfaCd(step_size=0.02), EveryUpdates(updates=3)),
    (Mifa(step_size=0.02), EveryPeriod(period_s=0.1)),
)
NAMES = [method.name for method, _ in SETTINGS]
EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=3),
    method=Ace(step_size=0.02),
    stop=Stop(horizon_s=2.0),
    problem=Quadratic(dimension=3, noise=0.5),
    rates=ListedRates(values=(30.0, 20.0, 10.0, 10.0, 3.0)),
    record=Record(interval_s=0.25),
    seed=7,
)


def experiment_of(name: str, **changes: Any) -> Experiment:
    """A small experiment; where the method allows it, the clients choose their local steps."""
    method, aggregation = SETTINGS[NAMES.index(name)]
    clients = Clients(count=5, local_steps=3)
    changes = {"clients": replace(clients, work="uniform") if name in ("afa-cs", "afa-cd") else clients, **changes}
    return replace(EXPERIMENT, method=method, aggregation=aggregation, **changes)


def replayed(run: Run) -> str:
    """The first difference that a replay finds."""
    scenario = build_scenario(run.experiment, run.path.parent)
    difference = Replay(run, scenario, lambda _time_s, _number: None).run().difference
    return difference.what if difference else ""


def rows(run: Run, kind: Kind) -> np.ndarray:
    events = run.events_array
    return np.flatnonzero(events["kind"] == kind)


@pytest.mark.parametrize("name", NAMES)
def test_run_is_replayed_to_the_bit(record: Recorded, name: str) -> None:
    run = record(experiment_of(name))
    assert run.status.server_steps > 10
    assert replayed(run) == ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", ["keep", "remove"])
def test_run_that_loses_clients_is_replayed_to_the_bit(record: Recorded, name: str, policy: Any) -> None:
    """The slowest client is lost before it has reported."""
    run = record(experiment_of(name, faults=Faults(lost=(4, 1), lost_at_s=(0.01, 0.7), lost_client=policy)))
    assert (run.status.state, run.status.lost) == (State.DONE, 2)
    assert (rows(run, Kind.STEP) > rows(run, Kind.LOST)[-1]).sum() > 5
    assert replayed(run) == ""


@pytest.mark.parametrize("name", ["afa-cs", "ia2sgd", "dude", "ace", "aced", "mifa"])
def test_first_step_comes_when_all_have_reported(record: Recorded, name: str) -> None:
    run = record(experiment_of(name))
    first = rows(run, Kind.STEP)[0]
    before = run.events_array[:first]
    assert set(before["client"][before["kind"] == Kind.UPDATE]) == set(range(5))
    assert len(rows(run, Kind.NO_STEP)) == (before["kind"] == Kind.NO_STEP).sum()
    assert bool(len(rows(run, Kind.NO_STEP))) == (name in ("afa-cs", "dude", "mifa"))  # the others say when it is due


def test_clients_of_afa_cs_choose_their_local_steps(record: Recorded) -> None:
    run = record(experiment_of("afa-cs"))
    made = run.events_array["local_steps"][rows(run, Kind.UPDATE)]
    assert set(made) == {1, 2, 3}


def test_mifa_starts_all_free_clients_from_the_model_of_the_round(record: Recorded) -> None:
    """A client answers at most once in a round, and one that answers in the round it was called in is not stale."""
    run = record(experiment_of("mifa", rates=ListedRates(values=(500.0,) * 5)))  # 50 times faster than the rounds
    updates = run.events_array[rows(run, Kind.UPDATE)]
    assert (updates["staleness"] == 0).mean() > 0.99
    assert len(updates) <= 5 * (run.status.server_steps + 1)


@pytest.mark.parametrize("name", NAMES)
def test_control_variates_go_with_every_method(record: Recorded, name: str) -> None:
    assert replayed(record(experiment_of(name, local=Local(control_variates=True)))) == ""


class StoppingTriggers(CheckpointTriggers):
    """Reports a signal at the n-th call, although none was sent."""

    asks: Iterator[int]
    stop_at: int

    def due(self) -> bool:
        if next(self.asks) >= self.stop_at:
            self.stop_signal = "SIGTERM"
        return bool(self.stop_signal)


def contents(path: Path) -> dict[str, bytes]:
    """Every dataset of a run file, but for the checksums, whose blocks are as long as the rows that waited."""
    found: dict[str, bytes] = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    del found["checksums"]
    return found


@pytest.mark.parametrize("stop", [4, 60])  # before and after the first step
@pytest.mark.parametrize("name", NAMES)
def test_run_is_resumed_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stop: int) -> None:
    def around(path: Path, checkpoint_s: float | None) -> RunOptions:
        return RunOptions(path, tmp_path / "cache", "a test", False, Style.NONE, checkpoint_s)

    experiment = experiment_of(name, faults=Faults(lost=(2,), lost_at_s=(0.5,), lost_client="remove"))
    whole, cut = tmp_path / "whole.h5", tmp_path / "cut.h5"
    ended = session.simulate_run(experiment, around(whole, None))
    monkeypatch.setattr(StoppingTriggers, "asks", count(), raising=False)
    monkeypatch.setattr(StoppingTriggers, "stop_at", stop, raising=False)
    monkeypatch.setattr(session, "CheckpointTriggers", StoppingTriggers)
    assert session.simulate_run(experiment, around(cut, 0.0)).state == State.STOPPED
    assert checkpoint_path(cut).exists()
    monkeypatch.setattr(StoppingTriggers, "stop_at", 10**9)
    with open_run(cut) as run:
        assert session.resume_simulation(run, around(cut, 0.0)) == ended
    assert contents(cut) == contents(whole)


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
        state = method.receive(state, arrival_of(client, np.array(gradient))).state
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


# ---------------------------------------------------------------------------------------------------- where they end


UNEVEN = replace(
    EXPERIMENT,
    clients=Clients(count=4),
    stop=Stop(horizon_s=16.0),
    problem=Quadratic(dimension=3, noise=0.0, curvature_min=1.0, curvature_max=2.0),
    rates=ListedRates(values=(1000.0, 10.0, 10.0, 1.0)),
    record=Record(snapshots="none", events=False),
    seed=3,
)
FOUR_UPDATES = EveryUpdates(updates=4)
ENDS: tuple[tuple[MethodSettings, AggregationSettings], ...] = (
    (Ca2fl(step_size=0.002), FOUR_UPDATES),
    (AfaCs(step_size=0.002), FOUR_UPDATES),
    (Ia2Sgd(step_size=0.002), EveryUpdates()),
    (Dude(step_size=0.002), FOUR_UPDATES),
    (Ace(step_size=0.002), EveryUpdates()),
    (Mifa(step_size=0.02), EveryPeriod(period_s=0.01)),
)


def end_of(method: MethodSettings, aggregation: AggregationSettings) -> tuple[Vector, QuadraticProblem]:
    scenario = build_scenario(replace(UNEVEN, method=method, aggregation=aggregation), Path("unused"))
    end = play_alone(scenario, lambda _time_s, _number: None)
    assert end is not None
    assert isinstance(scenario.problem, QuadraticProblem)
    return end.snapshots[-1].models, scenario.problem


@pytest.mark.parametrize(("method", "aggregation"), ENDS, ids=lambda each: each.name)
def test_methods_that_remember_are_exact_under_rates_of_1_to_1000(
    method: MethodSettings, aggregation: AggregationSettings
) -> None:
    model, problem = end_of(method, aggregation)
    assert float(np.sum((model - problem.minimiser) ** 2)) < 1e-8  # from 1, and it falls on
    assert METHODS[method.name].limit == "exact"


def weighted_minimiser(problem: QuadraticProblem, weights: Vector) -> Vector:
    """Where the sum of w_i f_i is least."""
    bowls = [problem.function(client) for client in range(problem.clients)]
    hessian = sum(weight * bowl.hessian for weight, bowl in zip(weights, bowls, strict=True))
    pull = sum(weight * bowl.hessian @ bowl.centre for weight, bowl in zip(weights, bowls, strict=True))
    return np.asarray(np.linalg.solve(hessian, pull))


def test_afa_cd_ends_at_the_minimiser_weighted_by_the_rates() -> None:
    model, problem = end_of(AfaCd(step_size=0.002), FOUR_UPDATES)
    biased = weighted_minimiser(problem, np.array([1000, 10, 10, 1]) / 1021)
    assert float(np.sum((biased - problem.minimiser) ** 2)) > 1
    assert float(np.sum((model - biased) ** 2)) < 1e-2


def test_aced_is_biased_where_entries_expire() -> None:
    model, problem = end_of(Aced(step_size=0.002, max_delay=100), EveryUpdates())
    assert float(np.sum((model - problem.minimiser) ** 2)) > 1e-2


# ---------------------------------------------------------------------------------------------------- lanes, checks


def arrival_of(client: int, payload: Vector) -> Arrival:
    return Arrival(client, payload, 0, 0, payload, 0, 0.5, 1, 0.0)


@pytest.mark.parametrize("settings", [method for method, _ in SETTINGS], ids=NAMES)
def test_lanes_are_single_runs_in_float32(settings: MethodSettings) -> None:
    """The rule on a stack of models, with step sizes as a column, does to each what it does to it alone."""
    step_sizes, generator = np.array([[0.5], [0.3]], np.float32), np.random.default_rng(4)
    start = generator.standard_normal((2, 3)).astype(np.float32)
    method = build_method(settings, given(3, step_size=step_sizes))
    alone = [build_method(settings, given(3, step_size=float(size))) for size in step_sizes[:, 0]]
    states = [method.start(start).state, *(each.start(start[lane]).state for lane, each in enumerate(alone))]
    for client in (0, 1, 1, 2, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0):
        payload = generator.standard_normal((2, 3)).astype(np.float32)
        for place, (rule, part) in enumerate(zip((method, *alone), (payload, *payload), strict=True)):
            state = rule.receive(states[place], arrival_of(client, part)).state
            states[place] = rule.aggregate(state).state if rule.due is None or rule.due(state) else state
    lanes, *each_alone = (state.model for state in states)
    assert lanes.dtype == np.float32
    assert not np.array_equal(lanes, start)
    np.testing.assert_array_equal(lanes, np.stack(each_alone))


BASE = """
[clients]
count = 2
[method]
name = "area"
step_size = 0.1
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
"""


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["method.name=ace"], None),
        (["method.name=aced", "aggregation.name=poisson", "aggregation.rate=1"], '"poisson" makes no sense with aced'),
        (["method.name=dude", "aggregation.name=poisson", "aggregation.rate=1"], None),
        (["method.name=mifa"], '"updates" makes no sense with mifa, whose rounds end by the clock; use "period" or'),
        (["method.name=mifa", "aggregation.name=period", "aggregation.period_s=1"], None),
        (["method.name=afa-cs", "schedule.name=1/k"], 'method.server_step_size: is needed with schedule "1/k"'),
        (["method.name=afa-cd", "schedule.name=1/k", "method.server_step_size=1"], None),
        (["method.name=ia2sgd", "schedule.name=1/k"], 'method.server_step_size: is needed with schedule "1/k"'),
        (["method.name=ca2fl", "schedule.name=1/k"], None),
        (
            ["method.name=dude", "clients.work=ticks", "clients.tick_s=1"],
            'clients.work: "ticks" makes no sense with dude, whose rounds need local steps',
        ),
        (["method.name=ca2fl", "clients.work=ticks", "clients.tick_s=1"], None),
    ],
)
def test_combinations(overrides: list[str], words: str | None) -> None:
    if words is None:
        parse_experiment(BASE, overrides=overrides)
        return
    with pytest.raises(UserError) as caught:
        parse_experiment(BASE, overrides=overrides)
    assert words in str(caught.value)
