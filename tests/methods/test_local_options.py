"""What [local] adds to any method: a proximal term, momentum, and the control variates of SCAFFOLD."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.table import Table
from tests.support.quadratics import two_clients
from tests.transports.test_resume import stop_at

from areabench.engine.scenario import build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import area
from areabench.methods.as_fedavg import as_fedavg
from areabench.methods.base import Method
from areabench.methods.criteria import EveryUpdates
from areabench.methods.local import Local, with_control_variates, with_local
from areabench.methods.s_fedavg import SFedAvg, s_fedavg
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.problems.splits.iid import Iid
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates
from areabench.transports.simulator import simulate_lanes

__all__ = ["stop_at"]  # a fixture


def averaging(**options: object) -> Method:
    """S-FedAvg of both clients, with these options."""
    return with_local(s_fedavg(2, 2, seed=0), Local(**options), clients=2)  # type: ignore[arg-type]


def local_model(table: Table, client: int) -> list[float]:
    """Where the client's local steps lead."""
    begun = table.clients[client].begin(table.orders[client])
    for _ in range(table.orders[client].local_steps):
        begun.step()
    return [float(entry) for entry in begun.work.local]


# ---------------------------------------------------------------------------------------------------- by hand


def test_prox_by_hand() -> None:
    """Gradient + 0.5·(y - (8,8)), steps of 1/2. The first step is at x itself, so that the term is 0."""
    table = Table(averaging(prox=0.5), two_clients(local_steps=3))
    # client 0: (8,8) -> (6,4); (2,4) + 0.5·(-2,-4) = (1,2) -> (5.5,3); (1.5,3) + 0.5·(-2.5,-5) -> (5.375,2.75)
    assert local_model(table, 0) == [5.375, 2.75]
    # client 1: (8,8) -> (0,8); (0,0) + (-4,0) -> (2,8); (4,0) + (-3,0) -> (1.5,8)
    assert local_model(table, 1) == [1.5, 8]
    table.deliver(0, 1)
    assert table.model() == [3.4375, 5.375]  # the mean


def test_prox_pulls_towards_the_model_that_was_sent() -> None:
    table = Table(averaging(prox=0.5), two_clients(local_steps=2))
    table.deliver(0, 1)  # (5.5,3) and (2,8), as above: (3.75,5.5)
    assert table.model() == [3.75, 5.5]
    # from (3.75,5.5): (-0.25,5.5) -> (3.875,2.75); (-0.125,2.75) + 0.5·(0.125,-2.75) = (-0.0625,1.375)
    assert local_model(table, 0) == [3.90625, 2.0625]


def test_momentum_by_hand() -> None:
    """v <- v/2 + gradient, from v = 0 in each round; steps of 1/2."""
    table = Table(averaging(momentum=0.5), two_clients(local_steps=3))
    # v = (4,8) -> (6,4); v = (2,4) + (2,4) = (4,8) -> (4,0); v = (2,4) + (0,0) -> (3,-2)
    assert local_model(table, 0) == [3, -2]
    # v = (16,0) -> (0,8); v = (8,0) + (0,0) -> (-4,8); v = (4,0) + (-8,0) = (-4,0) -> (-2,8)
    assert local_model(table, 1) == [-2, 8]
    table.deliver(0, 1)
    assert table.model() == [0.5, 3]
    # the next round begins with v = 0: from (0.5,3) v = (-3.5,3) -> (2.25,1.5)
    begun = table.clients[0].begin(table.orders[0])
    begun.step()
    assert begun.work.local.tolist() == [2.25, 1.5]


def test_prox_and_momentum_together_by_hand() -> None:
    """v <- v/2 + gradient + 0.5·(y - x)."""
    table = Table(averaging(momentum=0.5, prox=0.5), two_clients(local_steps=2))
    # v = (4,8) -> (6,4); v = (2,4) + (2,4) + (-1,-2) = (3,6) -> (4.5,1)
    assert local_model(table, 0) == [4.5, 1]


def test_scaffold_over_three_rounds_by_hand() -> None:
    """S-FedAvg of both clients, M = 2, alpha = 1/2: K alpha = 1, so that c_i <- c_i - c + x - x_i."""
    table = Table(averaging(control_variates=True), two_clients(local_steps=2))
    # Round 1, c = c_i = 0: (8,8) -> (6,4) -> (5,2) and (8,8) -> (0,8) -> (0,8).
    table.deliver(0)
    np.testing.assert_array_equal(table.clients[0].memory, [[3, 6]])  # c_0 = (8,8) - (5,2)
    np.testing.assert_array_equal(table.server.state.control, [1.5, 3])  # c = (3,6)/2
    table.deliver(1)
    np.testing.assert_array_equal(table.clients[1].memory, [[8, 0]])  # c_1 = (8,8) - (0,8)
    np.testing.assert_array_equal(table.server.state.control, [5.5, 3])  # + (8,0)/2
    assert table.model() == [2.5, 5]
    assert all(order.attached is not None for order in table.orders.values())
    np.testing.assert_array_equal(table.orders[0].attached, [5.5, 3])
    # Round 2. Client 0 adds c - c_0 = (2.5,-3): (-1.5,5) + (2.5,-3) = (1,2) -> (2,4); (-2,4) + (2.5,-3) -> (1.75,3.5).
    assert local_model(table, 0) == [1.75, 3.5]
    # Client 1 adds c - c_1 = (-2.5,3): (5,-3) + (-2.5,3) = (2.5,0) -> (1.25,5); (2.5,-3) + (-2.5,3) = 0 -> (1.25,5).
    assert local_model(table, 1) == [1.25, 5]
    table.deliver(0, 1)
    # c_0 = (3,6) - (5.5,3) + (0.75,1.5) and c_1 = (8,0) - (5.5,3) + (1.25,0)
    np.testing.assert_array_equal(table.clients[0].memory, [[-1.75, 4.5]])
    np.testing.assert_array_equal(table.clients[1].memory, [[3.75, -3]])
    np.testing.assert_array_equal(table.server.state.control, [1, 0.75])  # the mean of the c_i
    assert table.model() == [1.5, 4.25]
    # Round 3, from (1.5,4.25). Client 0 adds (2.75,-3.75): (-2.5,4.25) + ... = (0.25,0.5) -> (1.375,4);
    # (-2.625,4) + ... = (0.125,0.25) -> (1.3125,3.875).
    assert local_model(table, 0) == [1.3125, 3.875]


def test_scaffold_around_area_keeps_the_memory_of_area() -> None:
    method = with_local(area(2), Local(control_variates=True), clients=2)
    table = Table(method, two_clients(local_steps=2), delta=1)
    table.deliver(0)  # (5,2): c_0 = (3,6), y_0 = (5,2), m_0 = (-3,-6)
    np.testing.assert_array_equal(table.clients[0].memory, [[3, 6], [5, 2]])
    assert table.model() == [6.5, 5]


def test_a_round_without_local_steps_leaves_the_control_variates() -> None:
    table = Table(averaging(control_variates=True), two_clients(local_steps=2))
    table.deliver(0, made=0)
    np.testing.assert_array_equal(table.clients[0].memory, [[0, 0]])
    np.testing.assert_array_equal(table.server.state.control, [0, 0])


# ---------------------------------------------------------------------------------------------------- what they promise


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"attach": lambda state: state.model}, "has an `attach` or a `payload_like`"),
        ({"payload_like": np.zeros_like}, "has an `attach` or a `payload_like`"),
        ({"remember": lambda _start: np.zeros(3)}, "remembers an array that is not like the model"),
    ],
)
def test_scaffold_does_not_go_with_methods_that_send_more_themselves(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f'local.control_variates: do not go with method "as-fedavg", which {said}'):
        with_control_variates(replace(as_fedavg(2), **parts), 2).remember(np.zeros(2))


def test_no_option_is_no_change() -> None:
    method = s_fedavg(2, 2, seed=0)
    assert with_local(method, Local(), clients=2) is method


def test_scaffold_ends_at_the_minimiser_where_averaging_with_many_steps_does_not() -> None:
    problem = two_clients(local_steps=8)
    plain, scaffold = (Table(averaging(control_variates=each), problem, step_size=0.1) for each in (False, True))
    for _ in range(200):
        plain.deliver(0, 1)
        scaffold.deliver(0, 1)
    np.testing.assert_allclose(scaffold.server.model, problem.minimiser, atol=1e-9)
    assert np.linalg.norm(plain.server.model - problem.minimiser) > 0.1


def test_the_server_keeps_the_mean_of_the_control_variates() -> None:
    problem = QuadraticProblem(Quadratic(dimension=4, noise=0.5), 3, 2, seed=1)
    table = Table(with_control_variates(as_fedavg(3), 3), problem, delta=2, step_size=0.1)
    for client in (0, 0, 2, 1, 0, 2, 2, 1):
        table.deliver(client)
        own = [each.memory[0] for each in table.clients if each.memory is not None]
        np.testing.assert_allclose(table.server.state.control, np.mean(own, axis=0), atol=1e-12)


# ---------------------------------------------------------------------------------------------------- in runs

EXPERIMENT = Experiment(
    clients=Clients(count=4, local_steps=3),
    method=SFedAvg(step_size=0.02, clients_per_round=3),
    rates=ListedRates(values=(20.0, 10.0, 5.0, 2.0)),
    aggregation=EveryUpdates(updates=2),
    problem=Quadratic(dimension=3, noise=0.5),
    stop=Stop(horizon_s=6.0),
    record=Record(interval_s=0.5),
    seed=5,
)
OPTIONS = (
    Local(prox=0.5), Local(momentum=0.9), Local(control_variates=True),
    Local(prox=0.1, momentum=0.5, control_variates=True),
)  # fmt: skip


@pytest.mark.parametrize("local", OPTIONS, ids=["prox", "momentum", "scaffold", "all"])
def test_single_precision_stays_single(tmp_path: Path, local: Local) -> None:
    data = Synthetic(train_samples=60, test_samples=9, features=6, classes=3)
    experiment = replace(
        EXPERIMENT, problem=Logistic(batch_size=4), data=data, split=Iid(), local=local, delays=ExponentialDelays()
    )
    scenario = build_scenario(experiment, tmp_path)
    end = simulate_lanes([scenario], lambda _time_s, _updates: None)[0]
    assert end is not None
    assert end.snapshots[-1].models.dtype == scenario.problem.dtype == np.float32
    assert np.isfinite(end.snapshots[-1].models).all()
