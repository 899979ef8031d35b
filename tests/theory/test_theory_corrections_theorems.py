"""Entries of docs/theory-corrections.md on the two theorems: what is printed fails, what is right holds."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies.theorems import RateTerms, rate_terms
from tests.methods.table import answer
from tests.theory.proof import printed_rate_terms

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.server import Server
from areabench.methods.area import area
from areabench.theory.constants import Constants, LipschitzConstants
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.theorem1 import Convention, Setting, lyapunov_weights
from areabench.theory.theorem2 import lipschitz_bound, lipschitz_step_size, local_error

HALVES = EventProbabilities(np.array([0.5]), 0.5)


# ------------------------------------------------------------------------------------------------ Theorem 1


@given(st.floats(0.5, 1.0), st.floats(0.01, 0.99))
def test_psi_is_the_sum_of_the_weights(beta: float, server: float) -> None:
    events = EventProbabilities(np.array([1 - server]), server)
    total = lyapunov_weights(events, beta).sum()
    q_bar = events.mean_inverse
    assert total > 1 + q_bar  # all distances 1: lambda = Lambda = total, so lambda > sqrt((1 + q_bar) Lambda)
    assert total <= 1 / server + 4 * q_bar


def scaled(factor: float) -> Setting:
    """The same iterates in another unit of f: mu, L and sigma times the factor, step sizes divided by it."""
    return Setting(Constants(1.0 * factor, 4.0 * factor, 0.5 * factor, 2.0), HALVES, 3, 1.0)


def values(terms: RateTerms) -> list[float]:
    return [terms.noise, terms.synchronization_noise, terms.synchronization_heterogeneity, terms.drift]


def test_rate_does_not_depend_on_the_unit_of_f() -> None:
    assert scaled(0.01).constants.gamma < 1  # printed: gamma is in [1, 2)
    assert values(rate_terms(scaled(0.01), 100)) == pytest.approx(values(rate_terms(scaled(1.0), 100)))
    small, large = (values(printed_rate_terms(scaled(factor), 100)) for factor in (0.01, 1.0))
    assert all(low < high / 50 for low, high in zip(small, large, strict=True))


def heterogeneity(probability: float, local_steps: int, factor_2c: bool) -> float:
    """p_min c_1 c_8 without psi, sigma and zeta, mu = L = 1: the third term of Theorem 1 for r_p = 1."""
    c = 48 / (probability * local_steps)
    c_1, norm_sigma = 2 * c * local_steps, 1.25 * local_steps
    return probability * c_1 * math.sqrt(norm_sigma * c_1 * (2 * c if factor_2c else 1) / 12)


def test_third_term_of_the_rate() -> None:
    halved = heterogeneity(0.1, 4, factor_2c=True) / heterogeneity(0.2, 4, factor_2c=True)
    assert halved == pytest.approx(2)  # 1/p_min; printed: its root
    assert heterogeneity(0.1, 16, factor_2c=True) == pytest.approx(heterogeneity(0.1, 4, factor_2c=True))
    assert heterogeneity(0.1, 16, factor_2c=False) == pytest.approx(2 * heterogeneity(0.1, 4, factor_2c=False))


def test_third_term_of_the_rate_by_hand() -> None:
    """n = 1, p = 1/4, p_s = 3/4, all constants 1, K = 1: r_p = 3, q_bar = 4, and 4/3 for the server."""
    setting = Setting(Constants(1, 1, 1, 1), EventProbabilities(np.array([0.25]), 0.75), 1, 1.0)
    assert rate_terms(setting, 1).synchronization_heterogeneity == pytest.approx(3 * math.sqrt(16 / 3) / (1 / 4))
    assert printed_rate_terms(setting, 1).synchronization_heterogeneity == pytest.approx(3 * math.sqrt(4 / (1 / 4)))


def sum_of_cubes(K: int, a: Fraction, second: Fraction) -> Fraction:
    """Eq. (small_lyap_sum_k_3) with a + `second` before K³."""
    theta_1 = 3 * a**2 / 2 + 3 * a / 2 + Fraction(1, 4)
    theta_2 = a**3 + 3 * a**2 / 2 + a / 2
    return Fraction(K**4, 4) + (a + second) * K**3 + theta_1 * K**2 + theta_2 * K + a**3


@pytest.mark.parametrize("K", [1, 2, 7])
def test_sum_of_cubes(K: int) -> None:
    a = Fraction(5, 2)
    exact = sum(((k + a) ** 3 for k in range(K + 1)), Fraction(0))
    assert sum_of_cubes(K, a, Fraction(1, 2)) == exact
    assert sum_of_cubes(K, a, Fraction(1, 3)) < exact  # printed: a + 1/3


@given(st.integers(1, 200), st.fractions(0, 100))
def test_printed_sum_of_cubes_bounds_the_shorter_sum_that_the_proof_has(K: int, a: Fraction) -> None:
    used = sum(((k + a) ** 3 for k in range(K)), Fraction(0))  # to K - 1: less by (K + a)³, more than K³/6
    assert used < sum_of_cubes(K, a, Fraction(1, 3))


# ------------------------------------------------------------------------------------------------ Theorem 2


class Modulus:
    """f = |x| for M exact subgradient steps."""

    def __init__(self, local_steps: int) -> None:
        self._local_steps = local_steps

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps."""
        for _ in range(self._local_steps if steps is None else steps):
            model = model - step_size * self.gradient(model)
        return model

    def gradient(self, model: Vector) -> Vector:
        """The sign."""
        return np.sign(model)

    def skip(self, steps: int) -> None:
        """There are no draws."""


def expected_gap(step_size: float, local_steps: int, iterations: int, server: float) -> float:
    """E f(mean of x_{s,0}..x_{s,K-1}) over all sequences of events: n = 1, x_{s,0} = 1, the appendix's start."""
    method, start, gap = area(1, trains_first=False), np.array([1.0]), 0.0
    for events in product((True, False), repeat=iterations - 1):
        table = Server(method, lambda _k, _time_s: step_size, start, 1, local_steps)
        client = Client(method, Modulus(local_steps), start)
        (order,), models = table.begin(), [start]
        for steps in events:
            if steps:
                table.aggregate(0.0)
            else:
                (order,) = table.receive(answer(order, client.work(order)), order, 0.0)
            models.append(table.model)
        gap += math.prod(server if steps else 1 - server for steps in events) * abs(float(np.mean(models)))
    return gap


def test_printed_bound_of_theorem_two_is_crossed() -> None:
    M, K, server = 100, 6, 0.41
    events, problem = EventProbabilities(np.array([1 - server]), server), LipschitzConstants(1.0, 0.0, 1.0)
    weight = 1 / server + 2 / (1 - server)
    printed = math.sqrt(weight * (M + 1) / 2 / (M * K))
    gap = expected_gap(math.sqrt(weight / ((M + 1) / 2 * M * K)), M, K, server)
    assert (round(printed, 4), round(gap, 4)) == (0.7004, 0.83)
    ours = lipschitz_bound(problem, events, M, K, Convention.APPENDIX)
    gap = expected_gap(lipschitz_step_size(problem, events, M, K), M, K, server)
    assert (round(ours, 4), round(gap, 4)) == (0.9856, 0.8322)


@pytest.mark.parametrize("local_steps", [1, 2, 5])
def test_local_error_of_subgradients(local_steps: int) -> None:
    B, alpha, x, other = 2.0, 0.5, 1.0, 4.0  # f = -B x
    end = x + alpha * local_steps * B
    gap = -B * x + B * other
    excess = (end - other) ** 2 - (x - other) ** 2 + 2 * alpha * local_steps * gap
    ours = alpha**2 * local_steps * local_error(LipschitzConstants(B, 0.0, 1.0), local_steps)
    printed = alpha**2 * local_steps * (local_steps + 1) * B**2 / 2
    assert excess == ours
    assert (excess > printed) == (local_steps > 1)


def test_memories_are_weighted_by_the_inverse() -> None:
    p, local, memory = 0.25, 1.0, 3.0  # squared distances
    expected, right = (1 - p) * memory + p * local, (1 / p - 1) * memory + local
    assert expected / p == right
    assert expected * p != right  # printed: p_i


def test_rate_of_theorem_two_is_one_over_root_k() -> None:
    problem = LipschitzConstants(1.0, 1.0, 1.0)
    bounds = [lipschitz_bound(problem, HALVES, 3, K, Convention.APPENDIX) for K in (100, 400)]
    assert bounds[0] / bounds[1] == pytest.approx(2)  # the text: O(1/K), which would give 4
