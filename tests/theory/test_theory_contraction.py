"""Theorem 1's step sizes, the transition matrix, its weights and the two phases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.theory.proof import (
    conservative_factor,
    contraction_factor,
    transition_matrix,
)

from areabench.theory.constants import Constants
from areabench.theory.probabilities import EventProbabilities, poisson_probabilities
from areabench.theory.theorem1 import contraction_beta, lyapunov_weights, step_limit, theorem_schedule

RATES = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)
CURVATURES = st.builds(lambda mu, ratio: Constants(mu, mu * ratio, 1.0, 1.0), st.floats(0.01, 100), st.floats(1, 1000))


def events_of(rates: list[float], server_rate: float) -> EventProbabilities:
    return poisson_probabilities(np.array(rates), server_rate)


def test_limit_without_drift() -> None:
    limit = step_limit(Constants(mu=1.0, L=3.0, sigma=1.0, zeta=1.0), 1)
    assert (limit.value, limit.active) == (0.5, "smoothness")
    assert (limit.drift_norm, limit.drift_squared_norm, limit.drift_cubed) == (math.inf, math.inf, math.inf)


def test_limit_of_two_local_steps() -> None:
    limit = step_limit(Constants(mu=1.0, L=1.0, sigma=1.0, zeta=1.0), 2)
    assert (limit.smoothness, limit.drift_norm) == (0.5, 1.0)
    assert limit.drift_squared_norm == pytest.approx(math.sqrt(1 / 32))
    assert limit.drift_cubed == pytest.approx((1 / 32) ** (1 / 3))
    assert (limit.value, limit.active) == (limit.drift_squared_norm, "drift_squared_norm")


def test_limit_of_four_local_steps() -> None:  # gamma = 3/2, L = 3, M - 1 = 3: 4 (9/4)/(64 81 27) = 1/15552
    limit = step_limit(Constants(mu=1.0, L=3.0, sigma=1.0, zeta=1.0), 4)
    assert [limit.smoothness, limit.drift_norm] == pytest.approx([1 / 8, 1 / 18])
    assert limit.drift_squared_norm == pytest.approx(math.sqrt(1 / 15552))
    assert limit.drift_cubed == pytest.approx((1.5 / (32 * 81 * 27)) ** (1 / 3))


def test_schedule_by_hand() -> None:  # p = 1/8, M = gamma = D = 1: c = d = 384
    schedule = theorem_schedule(Constants(mu=1.0, L=1.0, sigma=1.0, zeta=1.0), 1, 1 / 8)
    assert (schedule.c, schedule.d) == (384.0, 384.0)
    assert [schedule.step_size(k) for k in (0, 128, 384)] == [1.0, 0.75, 0.5]
    assert schedule.step_sizes(3).tolist() == [1.0, 384 / 385, 384 / 386]


@given(CURVATURES, st.integers(1, 60), st.floats(1e-4, 0.5), st.integers(0, 10**6))
def test_schedule_is_theorem_one_s(constants: Constants, local_steps: int, probability: float, k: int) -> None:
    schedule = theorem_schedule(constants, local_steps, probability)
    limit = step_limit(constants, local_steps).value
    printed = 1 / (probability * local_steps * constants.gamma * k / 48 + 1 / limit)
    assert schedule.step_size(k) == pytest.approx(printed, rel=1e-9)
    assert schedule.step_size(k + 1) < schedule.step_size(k) <= limit * (1 + 1e-12)


@given(CURVATURES, st.integers(1, 60), st.floats(1e-4, 0.5))
def test_beta_starts_at_three_quarters_or_above(constants: Constants, local_steps: int, probability: float) -> None:
    schedule = theorem_schedule(constants, local_steps, probability)
    assert contraction_beta(schedule.step_size(0), local_steps, constants.gamma) >= 0.75 - 1e-12  # the paper: 1/2
    assert schedule.d >= 48 / probability * (1 - 1e-12)  # the paper: 24/p


@given(CURVATURES, st.integers(1, 60), st.floats(1e-3, 0.5), st.integers(0, 10**4))
def test_spectral_radius_monotonicity(constants: Constants, local_steps: int, probability: float, k: int) -> None:
    schedule = theorem_schedule(constants, local_steps, probability)
    beta = contraction_beta(schedule.step_size(k), local_steps, constants.gamma)
    shifted = k + schedule.d
    assert contraction_factor(probability, beta) <= (1 - 1 / shifted) ** 4 + 1e-14


def test_transition_matrix_of_two_clients() -> None:
    matrix = transition_matrix(EventProbabilities(np.array([0.125, 0.375]), 0.5), beta=0.5)
    assert matrix.tolist() == [
        [7 / 8, 0, 0, 0, 1 / 16],
        [0, 5 / 8, 0, 0, 3 / 16],
        [1 / 8, 0, 7 / 8, 0, 0],
        [0, 3 / 8, 0, 5 / 8, 0],
        [0, 0, 1 / 4, 1 / 4, 1 / 2],
    ]


def test_weights_and_factor_of_three_clients() -> None:  # beta = 1/8: roots 1/2 and 1/4; w = 4/(n p), 2/(n p), 1/p_s
    events = EventProbabilities(np.array([1 / 12, 1 / 6, 1 / 4]), 0.5)
    expected = [16, 8, 16 / 3, 8, 4, 8 / 3, 2]
    assert lyapunov_weights(events, 1 / 8) == pytest.approx(expected, rel=1e-14)
    assert contraction_factor(events.minimum, 1 / 8) == pytest.approx(1 - 1 / 24, rel=1e-14)
    assert conservative_factor(events.minimum, 1 / 8) == pytest.approx(1 - 7 / 288, rel=1e-14)


@given(RATES, st.floats(0.01, 100), st.floats(0.001, 1.0))
def test_weights_contract_by_rho(rates: list[float], server_rate: float, beta: float) -> None:
    events = events_of(rates, server_rate)
    weights = lyapunov_weights(events, beta)
    after = weights @ transition_matrix(events, beta)
    assert (after <= contraction_factor(events.minimum, beta) * weights * (1 + 1e-12)).all()
    rarest = np.argmin(np.concatenate([events.clients, events.clients, [events.server]]))
    assert after[rarest] == pytest.approx(contraction_factor(events.minimum, beta) * weights[rarest], rel=1e-9)


@given(st.floats(0.001, 0.5), st.floats(0.001, 1.0))
def test_conservative_factor_is_never_below_rho(probability: float, beta: float) -> None:
    assert contraction_factor(probability, beta) <= conservative_factor(probability, beta) + 1e-15
