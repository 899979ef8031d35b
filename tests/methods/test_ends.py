"""Where the methods end under uneven rates, without noise: at the minimiser, or at the one that their bias predicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.every_method import silent

from areabench.arrays import Vector
from areabench.engine.scenario import build_scenario
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods import METHODS
from areabench.methods.aced import Aced
from areabench.methods.afa_cd import AfaCd
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.asynccomm_sgd import AsyncCommSgd
from areabench.methods.base import MethodSettings
from areabench.methods.ca2fl import Ca2fl
from areabench.methods.contacts import Contacts
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates
from areabench.methods.favas import Favas, mean_steps
from areabench.methods.fedbuff import FedBuff
from areabench.methods.gradient_tables import Ace, AfaCs, Dude, Ia2Sgd
from areabench.methods.malenia import Malenia
from areabench.methods.mifa import Mifa
from areabench.methods.quafl import QuAfl
from areabench.methods.ringleader import Ringleader
from areabench.methods.schedules import InverseTimeSchedule
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates
from areabench.transports.simulator import simulate_lanes

EXPERIMENT = Experiment(
    clients=Clients(count=4),
    method=Ace(step_size=0.002),
    stop=Stop(horizon_s=16.0),
    problem=Quadratic(dimension=3, curvature_min=1.0, curvature_max=2.0),
    rates=ListedRates(values=(1000.0, 10.0, 10.0, 1.0)),
    record=Record(snapshots="none", events=False),
    seed=3,
)
FOUR_UPDATES = EveryUpdates(updates=4)


def end_of(experiment: Experiment, last: int = 1) -> tuple[Vector, QuadraticProblem]:
    """The mean of the `last` snapshots of a run, and its problem."""
    scenario = build_scenario(check_combinations(experiment), Path("unused"))
    assert isinstance(scenario.problem, QuadraticProblem)
    end = simulate_lanes([scenario], silent)[0]
    assert end is not None
    return np.mean([snapshot.models for snapshot in end.snapshots[-last:]], axis=0), scenario.problem


def squared_distance(experiment: Experiment, last: int = 1) -> float:
    """|x - x*|²."""
    model, problem = end_of(experiment, last)
    return float(np.sum((model - problem.minimiser) ** 2))


def weighted_minimiser(problem: QuadraticProblem, weights: Vector) -> Vector:
    """Where the sum of w_i f_i is least."""
    functions = [problem.function(client) for client in range(problem.clients)]
    hessian = sum(weight * each.hessian for weight, each in zip(weights, functions, strict=True))
    pull = sum(weight * each.hessian @ each.centre for weight, each in zip(weights, functions, strict=True))
    return np.asarray(np.linalg.solve(hessian, pull))


@pytest.mark.parametrize(
    ("method", "aggregation"),
    [
        (Ca2fl(step_size=0.002), FOUR_UPDATES),
        (AfaCs(step_size=0.002), FOUR_UPDATES),
        (Ia2Sgd(step_size=0.002), EveryUpdates()),
        (Dude(step_size=0.002), FOUR_UPDATES),
        (Ace(step_size=0.002), EveryUpdates()),
        (Mifa(step_size=0.02), EveryPeriod(period_s=0.01)),
        (Malenia(step_size=0.5, batch=5), EveryUpdates()),
    ],
    ids=lambda each: each.name,
)
def test_exact_methods_end_at_the_minimiser_under_rates_of_1_to_1000(
    method: MethodSettings, aggregation: AggregationSettings
) -> None:
    experiment = replace(EXPERIMENT, method=method, aggregation=aggregation)
    assert squared_distance(experiment) < 1e-8  # from 1, and it falls on
    assert METHODS[method.name].limit == "exact"


def test_ringleader_ends_at_the_minimiser() -> None:
    """Its steps are as rare as its slowest client."""
    rates = ListedRates(values=(200.0, 120.0, 80.0, 20.0))
    assert squared_distance(replace(EXPERIMENT, method=Ringleader(step_size=0.02), rates=rates)) < 1e-8


def test_afa_cd_ends_at_the_minimiser_weighted_by_the_rates() -> None:
    model, problem = end_of(replace(EXPERIMENT, method=AfaCd(step_size=0.002), aggregation=FOUR_UPDATES))
    biased = weighted_minimiser(problem, np.array([1000, 10, 10, 1]) / 1021)
    assert float(np.sum((biased - problem.minimiser) ** 2)) > 1
    assert float(np.sum((model - biased) ** 2)) < 1e-2


def test_aced_is_biased_where_entries_expire() -> None:
    assert squared_distance(replace(EXPERIMENT, method=Aced(step_size=0.002, max_delay=100))) > 1e-2


# ---------------------------------------------------------------------------------------------------- local work

FIVE = replace(
    EXPERIMENT,
    clients=Clients(count=5, local_steps=3),
    rates=ListedRates(values=(40.0, 20.0, 10.0, 4.0, 1.0)),
    problem=Quadratic(dimension=3),
    seed=7,
)


def test_asynccomm_sgd_with_falling_steps_approaches_the_minimiser() -> None:
    experiment = replace(
        FIVE, method=AsyncCommSgd(step_size=0.2), clients=Clients(count=5, local_steps=1000, work="ticks", tick_s=0.05),
        schedule=InverseTimeSchedule(offset_s=5.0), stop=Stop(horizon_s=300.0), record=Record(interval_s=0.75),
    )  # fmt: skip
    biased = replace(experiment, method=FedBuff(step_size=0.2, server_step_size=0.5), clients=Clients(count=5))
    assert squared_distance(experiment, last=200) < 0.02 < squared_distance(biased, last=200)


def test_quafl_ends_where_the_mean_numbers_of_local_steps_say() -> None:
    """argmin of the sum of alpha_i f_i, for small steps; FAVAS, which divides by alpha_i, ends at the minimiser."""
    slow = replace(
        FIVE, method=QuAfl(step_size=0.01, clients_per_round=2, period_s=0.2), delays=ExponentialDelays(per="step"),
        stop=Stop(horizon_s=1000.0), record=Record(interval_s=2.5),
    )  # fmt: skip
    model, problem = end_of(slow, last=200)
    rates = build_scenario(slow, Path("unused")).rates
    weights = mean_steps(Contacts(5, 2, 0.2, 0), 3, rates, "exponential", "step")
    predicted = weighted_minimiser(problem, np.array(weights))
    bias = float(np.linalg.norm(predicted - problem.minimiser))
    assert np.linalg.norm(model - predicted) < 0.4 * bias
    favoured = replace(slow, method=Favas(step_size=0.01, clients_per_round=2, period_s=0.2))
    assert squared_distance(favoured, last=200) < (0.2 * bias) ** 2


# ---------------------------------------------------------------------------------------------------- drawn clients


@pytest.mark.parametrize(
    ("assignment", "concurrency", "exact"),
    [("uniform", None, True), ("shuffled", None, True), ("idle-uniform", 4, False)],
)
def test_a_smaller_step_removes_noise_and_leaves_bias(assignment: Any, concurrency: int | None, exact: bool) -> None:
    """A quarter of gamma, four times the time, six seeds: noise in proportion to gamma falls to 1/4, a bias stays."""

    def mean_end(gamma: float, horizon_s: float) -> float:
        experiment = replace(
            EXPERIMENT,
            clients=Clients(count=8),
            rates=ListedRates(values=(40.0, 20.0, 10.0, 5.0, 2.0, 1.0, 1.0, 1.0)),
            method=AsyncSgd(step_size=gamma, assignment=assignment, concurrency=concurrency),
            problem=Quadratic(dimension=20, curvature_max=2.0, zeta=1.0, start_distance=2.0),
            stop=Stop(horizon_s=horizon_s),
        )
        return float(np.mean([squared_distance(replace(experiment, seed=seed)) for seed in range(20, 26)]))

    ratio = mean_end(0.01, 200.0) / mean_end(0.0025, 800.0)  # between 1 and 4
    assert (ratio > 2) == exact
