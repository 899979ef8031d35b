"""Theorem 2 and the server rate that it suggests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from studies.theorems import time_penalty
from tests.theory.proof import bound_by_iterations, bound_by_time

from areabench.theory.constants import LipschitzConstants
from areabench.theory.probabilities import EventProbabilities, poisson_probabilities
from areabench.theory.theorem1 import Convention
from areabench.theory.theorem2 import best_server_rate, lipschitz_bound, lipschitz_step_size

EVENTS = EventProbabilities(np.array([0.25, 0.25]), 0.5)  # 1/p_s + 2 q_bar = 2 + 8 = 10
PROBLEM = LipschitzConstants(B=2.0, sigma=1.0, start_distance=3.0)
RATES = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


def test_step_size_and_bound_by_hand() -> None:  # V_0 = 90; M = 1: sigma² + B² = 5; M = 2: 9
    assert lipschitz_step_size(PROBLEM, EVENTS, 1, 2) == pytest.approx(3.0)  # sqrt(90/(5 2))
    assert lipschitz_bound(PROBLEM, EVENTS, 1, 2, Convention.APPENDIX) == pytest.approx(15.0)  # sqrt(90 5/2)
    assert lipschitz_step_size(PROBLEM, EVENTS, 2, 5) == pytest.approx(1.0)  # sqrt(90/(9 2 5))
    assert lipschitz_bound(PROBLEM, EVENTS, 2, 5, Convention.APPENDIX) == pytest.approx(9.0)  # sqrt(90 9/10)


def test_bound_with_first_round_by_hand() -> None:
    # alpha = 1, M = 2: each x_{i,0} may be 2 2 2 3 + 2 9 = 42 worse, times q_bar/(2 alpha M K) = 4/20
    assert lipschitz_bound(PROBLEM, EVENTS, 2, 5) == pytest.approx(9.0 + 42 / 5)


@given(st.floats(0.1, 10), st.integers(1, 20), st.integers(1, 10**6))
def test_theorem_s_step_size_is_the_best_one(factor: float, local_steps: int, iterations: int) -> None:
    best = lipschitz_step_size(PROBLEM, EVENTS, local_steps, iterations)
    other = lipschitz_bound(PROBLEM, EVENTS, local_steps, iterations, Convention.APPENDIX, best * factor)
    assert other >= lipschitz_bound(PROBLEM, EVENTS, local_steps, iterations, Convention.APPENDIX) * (1 - 1e-12)


@pytest.mark.parametrize("local_steps", [1, 2, 5])
@pytest.mark.parametrize("convention", Convention)
def test_bound_holds_for_two_absolute_values(local_steps: int, convention: Convention) -> None:
    """f_i = |x - u_i| with u = -1, 2: minimal between them; x* = 2 is the solution nearest to the start."""
    problem = LipschitzConstants(B=1.0, sigma=1.0, start_distance=3.0)
    events, K, trials = poisson_probabilities(np.array([1.0, 4.0]), 2.0), 400, 40
    bound = lipschitz_bound(problem, events, local_steps, K, convention)
    alpha, generator = lipschitz_step_size(problem, events, local_steps, K), np.random.default_rng(0)
    centres, probabilities = np.array([-1.0, 2.0]), np.append(events.clients, events.server)

    def train(client: int, x: float) -> float:
        for _ in range(local_steps):
            x -= alpha * (np.sign(x - centres[client]) + generator.choice([-1.0, 1.0]))
        return float(x)

    def averaged() -> float:
        model, total, memory = 5.0, 0.0, np.full(2, 5.0)
        trained = np.array([train(i, model) if convention.lag else model for i in range(2)])
        for event in generator.choice(3, size=K, p=probabilities):
            total += model / K
            if event == 2:
                model = float(memory.mean())
            else:
                memory[event], trained[event] = trained[event], train(event, model)
        return total

    gaps = [np.abs(averaged() - centres).mean() - 1.5 for _ in range(trials)]
    assert -1e-12 < np.mean(gaps) < bound


def test_best_server_rate_of_equal_clients() -> None:  # lambda_s* = lambda sqrt(n/2), Delta = sqrt(2 n)
    best = best_server_rate(np.full(128, 10.0))
    assert (best.rate, best.updates, best.whole_updates, best.period_s) == pytest.approx((80.0, 16.0, 16, 1 / 80))


def test_best_server_rate_of_two_clients() -> None:  # sum 5, (2/2)(1 + 1/4) = 5/4: sqrt(4) = 2, Delta = 5/2
    best = best_server_rate(np.array([1.0, 4.0]))
    assert (best.rate, best.updates, best.period_s) == pytest.approx((2.0, 2.5, 0.5))


def test_best_server_rate_of_one_client() -> None:  # sqrt(3/(2/3)), Delta = sqrt(2), rounded to 1
    best = best_server_rate(np.array([3.0]))
    assert best.rate == pytest.approx(3 / math.sqrt(2))
    assert best.whole_updates == 1
    assert best_server_rate(np.full(4, 10.0)).whole_updates == 3  # sqrt(8) = 2.83


@given(RATES)
def test_best_server_rate_minimises_the_bound_for_a_number_of_iterations(rates: list[float]) -> None:
    values = np.array(rates)
    found = minimize_scalar(
        lambda log: bound_by_iterations(PROBLEM, values, math.exp(log), 3, 100), bounds=(-12, 12), method="bounded"
    )
    best = best_server_rate(values).rate
    assert bound_by_iterations(PROBLEM, values, best, 3, 100) <= found.fun * (1 + 1e-9)
    assert math.exp(found.x) == pytest.approx(best, rel=1e-2)


@given(RATES, st.floats(0.01, 100), st.floats(1.01, 10))
def test_bound_for_a_given_time_falls_with_the_server_s_rate(rates: list[float], rate: float, factor: float) -> None:
    values = np.array(rates)
    slow, fast = (bound_by_time(PROBLEM, values, each, 3, 60.0) for each in (rate, rate * factor))
    assert fast < slow
    infimum = bound_by_time(PROBLEM, values, 1e12, 3, 60.0)
    assert slow / infimum == pytest.approx(time_penalty(values, rate), rel=1e-6)


@given(RATES)
def test_time_penalty_of_the_best_rate_vanishes_with_many_clients(rates: list[float]) -> None:
    values = np.array(rates)
    limit = math.sqrt(1 + 1 / math.sqrt(2 * len(rates)))
    assert 1 < time_penalty(values, best_server_rate(values).rate) <= limit * (1 + 1e-12)
