"""Theorem 1's bounds: by hand, against each other, and against second moments computed exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from studies.theorems import RateTerms, rate_terms
from tests.theory.proof import printed_rate_terms, transition_matrix

from areabench.errors import UserError
from areabench.theory.constants import Constants
from areabench.theory.probabilities import EventProbabilities, poisson_probabilities
from areabench.theory.theorem1 import (
    Convention,
    Setting,
    closed_bound,
    lemma_constants,
    proof_constants,
    recursion_bound,
    recursion_bound_for,
    rough_bound,
)

HALVES = EventProbabilities(np.array([0.5]), 0.5)


def tiny(sigma: float, zeta: float, convention: Convention = Convention.APPENDIX) -> Setting:
    """mu = L = M = n = 1, p_1 = p_s = 1/2, so c = d = 96 and alpha_k = 96/(96 + k); |x_{s,0} - x*| = 2."""
    return Setting(Constants(1.0, 1.0, sigma, zeta), HALVES, 1, 2.0, convention)


def test_recursion_by_hand_with_noise() -> None:
    # u_0 = (4, 4, 4), alpha_0 = 1, beta_0 = 3/4, c_sigma = 2: x: 4/2 + (3 + 2)/2 = 9/2; y: 4, then 4/2 + 9/4 = 17/4
    assert recursion_bound(tiny(1.0, 0.0), 3) == pytest.approx([4, 4, 4, 4.125], rel=1e-14)


def test_recursion_by_hand_with_first_round() -> None:
    # the first round leaves x_{1,0} with 3/4 4 + 2 = 5; y: 4, 9/2; x_s: 4, 4, 17/4
    assert recursion_bound(tiny(1.0, 0.0, Convention.ALGORITHM), 2) == pytest.approx([4, 4, 4.25], rel=1e-14)


def test_recursion_by_hand_with_a_first_message_of_zero() -> None:
    # u_0 = (4, 4, 4) and alpha_1 = 96/97 goes out first: x: 4/2 + (beta 4 + 2 alpha²)/2; y: 4, 2 + x/2; x_s: 4, 4
    local = 2 + (4 * 73 / 97 + 2 * (96 / 97) ** 2) / 2
    assert recursion_bound(tiny(1.0, 0.0, Convention.ZERO_FIRST), 3) == pytest.approx([4, 4, 4, 3 + local / 4])


def test_recursion_by_hand_with_moving_points() -> None:
    # L M zeta = 1, so points move by alpha_k - alpha_{k+1}; x_1 and y_1 start at most 2 + alpha_0 = 3 from x_{1,0}*
    half, moved, next_moved = Fraction(1, 2), Fraction(1, 97), Fraction(96, 97 * 98)
    memory = (3 + moved) ** 2
    local = half * (9 + 6 * moved) + 3 * half * moved**2 + half * (3 + 2 * moved)  # 3/4 4, and 2 moved 1/2 2
    second = half * Fraction(13, 2) + half * memory
    norms = 3 + moved, Fraction(9, 4) + moved  # of y_1 and x_1: the latter 3/2 + moved + 3/4, below sqrt(local)
    later = half * (memory + 2 * next_moved * norms[0]) + next_moved**2 + half * (local + 2 * next_moved * norms[1])
    expected = [4, 6.5, float(second), float(half * second + half * later)]
    assert recursion_bound(tiny(0.0, 1.0), 3) == pytest.approx(expected, rel=1e-14)


def in_matrices(setting: Setting, alphas: list[float]) -> list[float]:
    """The recursion for mu = 1, L = 3 (gamma = 3/2) and M = 3 as the proof of Theorem 1 writes it, with A_k and B_k."""
    p, sigma, zeta = setting.probabilities.clients, setting.constants.sigma, setting.constants.zeta
    n, distance, speed = len(p), setting.start_distance, 9 * zeta  # L M zeta
    noise = 6 * (1 + (2 / 3) ** 1.5 / 4 + 1 / 256)  # c_sigma; c_zeta = 4 81 8 (4/3 + 1/2) = 4752
    factor, moved = 1 - alphas[0] * 9 / 8, (alphas[0] - alphas[1]) * speed
    first = factor * distance**2 + 2 * moved**2 + 2 * moved * (2 * factor - 1) * distance
    first += alphas[0] ** 2 * noise * sigma**2 + alphas[0] ** 3 * 4752 * zeta**2
    squared = np.array([first] * n + [(distance + alphas[1] * speed) ** 2] * n + [distance**2])
    norms, errors, clients = np.sqrt(squared), [distance**2], np.concatenate([p, np.zeros(n + 1)])
    for alpha, following in zip(alphas[1:-1], alphas[2:], strict=True):
        moved, shifted = (alpha - following) * speed, np.append(np.ones(2 * n), 0)
        matrix = transition_matrix(setting.probabilities, 1 - alpha * 9 / 8)
        other = transition_matrix(setting.probabilities, 1 - alpha * 9 / 4)
        other[-1] = 0
        squared = matrix @ squared + 2 * moved * other @ norms + moved**2 * (shifted + clients)
        squared += clients * (alpha**2 * noise * sigma**2 + alpha**3 * 4752 * zeta**2)
        norms = matrix @ norms + moved * shifted + clients * (alpha**2 * 27 * zeta + alpha * 27 / 8 * sigma)
        norms = np.minimum(norms, np.sqrt(squared))
        errors.append(squared[-1])
    return errors


@pytest.mark.parametrize("alphas", [[0.0125, 0.01, 0.008, 0.005, 0.004, 0.001], [1 / (80 + k) for k in range(400)]])
@pytest.mark.parametrize(
    "distance", [1.0, 100.0]
)  # near, where the squares bound the norms, and far, where they do not
def test_recursion_is_the_proof_s_system_of_inequalities(alphas: list[float], distance: float) -> None:
    events = EventProbabilities(np.array([0.125, 0.375]), 0.5)
    setting = Setting(Constants(1.0, 3.0, 5.0, 2.0), events, 3, distance)
    assert recursion_bound_for(setting, np.array(alphas)) == pytest.approx(in_matrices(setting, alphas), rel=1e-12)


def test_recursion_takes_constant_steps() -> None:
    bounds = recursion_bound_for(tiny(0.0, 1.0), np.full(2000, 0.5))
    assert bounds[-1] < 1e-9  # without noise and drift, and with M = 1, a constant step size converges


def test_recursion_refuses_steps_out_of_range() -> None:
    with pytest.raises(UserError, match=r"the first step size is 1\.5, the limit is D = 1\.0"):
        recursion_bound_for(tiny(0.0, 1.0), np.array([1.5, 1.0]))
    with pytest.raises(UserError, match=r"the step sizes grow"):
        recursion_bound_for(tiny(0.0, 1.0), np.array([0.5, 0.6]))
    with pytest.raises(UserError, match=r"there are 1 step sizes, the least is 2"):
        recursion_bound_for(tiny(0.0, 1.0, Convention.ALGORITHM), np.array([0.5]))


def test_lemma_constants_by_hand() -> None:  # mu = L = 1, M = 2: gamma = 1, delta^(3/2) = 1/sqrt(8)
    lemma = lemma_constants(Constants(1.0, 1.0, 1.0, 3.0), 2)
    assert (lemma.norm_zeta, lemma.norm_sigma, lemma.squared_zeta, lemma.shift) == (1.0, 2.5, 12.0, 6.0)
    assert lemma.squared_sigma == pytest.approx(4 * (1 + 1 / (4 * 8**0.5) + 1 / 64))
    assert lemma_constants(Constants(1.0, 1.0, 1.0, 3.0), 1).squared_sigma == 2.0


def test_proof_constants_by_hand() -> None:
    proof = proof_constants(tiny(1.0, 0.0))
    assert (proof.Q, proof.S, proof.c_1, proof.c_4) == (768.0, 192.0, 192.0, 0.0)  # c = 96, q_bar = 2
    assert (proof.c_2, proof.c_3, proof.psi, proof.tau) == (16 * 96**2, 4 * 96**2, 10.0, 95.0)
    weights = 2 + 2 * (0.75 ** (-1 / 3) + 0.75 ** (-2 / 3))
    assert [proof.start_squared, proof.start_norm] == pytest.approx([4 * weights, 2 * weights])


def test_proof_constants_with_drift_by_hand() -> None:  # M = 2: c = 48, c^_zeta = 1, c^_sigma = 5/2, c_zeta = 12
    setting = replace(tiny(0.0, 1.0), local_steps=2)
    proof, rough = proof_constants(setting), rough_bound(setting)
    assert (proof.Q, proof.S, proof.c_1, proof.c_2) == (768 + 4608, 240.0, 192.0, 147456.0)
    assert proof.c_3 == pytest.approx(2 * 48**2 * 4 * (1 + 1 / (4 * 8**0.5) + 1 / 64))
    assert proof.c_4 == pytest.approx(24 * 48**3)
    assert rough.second == pytest.approx(proof.spread * (192 * 5376 / 6 + 12 * 48**3))
    K = 10**15  # without noise the terms with 1/T² remain
    late = proof.spread * 12 * 48**3 + 192 * 10**0.5 * rough.second**0.5 / 2
    assert closed_bound(setting, K) * K**2 == pytest.approx(0.5 * min(late, rough.second), rel=1e-6)
    assert late < rough.second * 10


def test_closed_bound_without_noise_and_heterogeneity() -> None:
    start = 4 * (2 + 2 * (0.75 ** (-1 / 3) + 0.75 ** (-2 / 3)))
    assert closed_bound(tiny(0.0, 0.0), 95) == pytest.approx(0.5 * start / 16)  # tau⁴/T⁴ = (95/190)⁴


def test_closed_bound_by_hand() -> None:
    """tau = 95 and T = 95²; the start has squared distances (9, 9, 4) and distances (3, 3, 2)."""
    spread, weights = (191 / 190) ** 4, 2 * (0.75 ** (-1 / 3) + 0.75 ** (-2 / 3))
    squared, norm = 9 * weights + 8, 3 * weights + 4
    rough = rough_bound(tiny(1.0, 1.0))
    first, second = spread * (36864 / 3 + 192 * 192 / 12), spread * 192 * 768 / 6
    third, fourth = 147456.0, 95**4 * (squared + 192 * norm / 94.5)
    assert [rough.first, rough.second, rough.third, rough.fourth] == pytest.approx([first, second, third, fourth])
    roots = fourth**0.5 / 95**6 + 2 / 3 * 384 / 95**5 + second**0.5 / 2 / 95**4 + 2 / 5 * first**0.5 / 95**3
    passes = squared / 95**4 + third / 95**6 + spread * 36864 / 3 / 95**2 + 192 * 10**0.5 * roots
    assert closed_bound(tiny(1.0, 1.0), 95**2 - 95) == pytest.approx(0.5 * passes)
    start = first / 95 + second / 95**2 + third / 95**3 + fourth / 95**4
    assert closed_bound(tiny(1.0, 1.0), 0) == pytest.approx(0.5 * start)  # early on the first pass is the sharper one


def test_second_pass_improves_the_rate_in_sigma_zeta() -> None:
    setting = tiny(1e-6, 1.0)  # sigma zeta/K is far above sigma²/K
    K = 10**12
    first_pass = setting.probabilities.server * rough_bound(setting).at(K + setting.sent.d - 1)
    assert closed_bound(setting, K) < first_pass / 10


SETTINGS = st.builds(
    lambda rates, server, mu, ratio, noise, M, convention: Setting(
        Constants(mu, mu * ratio, noise[0], noise[1]),
        poisson_probabilities(np.array(rates), server),
        M,
        noise[2],
        convention,
    ),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=3),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.floats(1, 20),
    st.tuples(st.floats(0, 3), st.floats(0, 3), st.floats(0, 3)),
    st.integers(1, 6),
    st.sampled_from(Convention),
)


@given(SETTINGS)
def test_closed_bound_is_never_below_the_recursion(setting: Setting) -> None:
    sharp = recursion_bound(setting, 60)
    assert all(closed_bound(setting, k) >= sharp[k] * (1 - 1e-9) for k in (0, 1, 2, 7, 60))


def exact_errors(setting: Setting, curvatures: list[float], centres: list[float], iterations: int) -> list[float]:
    """E(x_{s,k} - x*)² of eqs. (x_k), (y_k), (xs_k) for f_i = h_i (x - u_i)²/2 by its second moments, without sampling.

    The state is (x_1..x_n, y_1..y_n, x_s, 1), centred at x*.
    """
    n, lag = len(centres), setting.convention.lag
    alphas = setting.schedule.step_sizes(iterations + 2)
    moments = np.zeros((2 * n + 2, 2 * n + 2))
    state = np.append(np.full(2 * n + 1, setting.start_distance), 1.0)
    if lag:
        for i in range(n):
            state[i] = local(setting, curvatures[i], centres[i], float(alphas[0]))[:2] @ state[-2:]
    moments = np.outer(state, state)
    for i in range(n * lag):
        moments[i, i] += local(setting, curvatures[i], centres[i], float(alphas[0]))[2]
    errors = [moments[2 * n, 2 * n]]
    for k in range(iterations):
        moments = after(setting, curvatures, centres, float(alphas[k + lag]), moments)
        errors.append(moments[2 * n, 2 * n])
    return errors


def local(setting: Setting, curvature: float, centre: float, alpha: float) -> NDArray[np.float64]:
    """M noisy steps from x: slope and constant of the mean, and the variance; shape (3,)."""
    M, factor = setting.local_steps, 1 - alpha * curvature
    variance = sum((alpha * setting.constants.sigma * factor**m) ** 2 for m in range(M))
    return np.array([factor**M, (1 - factor**M) * centre, variance])


def after(
    setting: Setting, curvatures: list[float], centres: list[float], alpha: float, moments: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The second moments after one more event."""
    n, events = len(centres), setting.probabilities
    step = np.eye(2 * n + 2)
    step[2 * n] = np.concatenate([np.zeros(n), np.full(n, 1 / n), [0, 0]])
    result = events.server * step @ moments @ step.T
    for i in range(n):
        slope, constant, variance = local(setting, curvatures[i], centres[i], alpha)
        step = np.eye(2 * n + 2)
        step[n + i], step[i] = step[i], 0
        step[i, -2:] = slope, constant
        mixed = step @ moments @ step.T
        mixed[i, i] += variance
        result = result + events.clients[i] * mixed
    return np.asarray(result)


@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_bounds_hold_for_exact_second_moments(convention: Convention, local_steps: int, sigma: float) -> None:
    # x* = 0: the gradients -h_i u_i there are -1, -1 and 2; zeta = 2
    curvatures, centres = [1.0, 0.5, 1.5], [1.0, 2.0, -4 / 3]
    events = poisson_probabilities(np.array([1.0, 2.0, 0.5]), 2.0)
    setting = Setting(Constants(0.5, 1.5, sigma, 2.0), events, local_steps, 3.0, convention)
    errors = exact_errors(setting, curvatures, centres, 1500)
    bounds = recursion_bound(setting, 1500)
    assert all(bound >= error * (1 - 1e-12) for bound, error in zip(bounds, errors, strict=True))
    assert all(closed_bound(setting, k) >= errors[k] for k in range(0, 1501, 100))
    assert errors[-1] < errors[0] / 50


def test_rate_terms_as_printed() -> None:  # K = M = 4, p = (1/4, 1/4), p_s = 1/2: q_bar = 4, r_p = 2, delta = 3/4
    setting = Setting(Constants(1.0, 4.0, 2.0, 3.0), EventProbabilities(np.array([0.25, 0.25]), 0.5), 4, 1.0)
    terms = printed_rate_terms(setting, 4)
    assert terms.noise == 2 * 4 * 4 / (0.25 * 4 * 4)
    assert terms.synchronization_noise == 2 * 2 * 4 * 2 * 2 * 3 / (0.25 * 2 * 8)
    assert terms.synchronization_heterogeneity == pytest.approx(2 * 2 * 8 * 54**0.5 / (0.5 * 8))
    assert terms.drift == 2 * (0.75 + 0.5 * 4) * 256 * 9 / (1 / 16 * 16)
    assert terms.dominating == "drift"


def test_rate_terms_corrected() -> None:  # the same with mu = L = gamma = 1 and q_bar + 1/p_s = 6
    setting = Setting(Constants(1.0, 1.0, 2.0, 3.0), EventProbabilities(np.array([0.25, 0.25]), 0.5), 4, 1.0)
    terms = rate_terms(setting, 4)
    assert terms.noise == 2 * 4 / (0.25 * 4 * 4)
    assert terms.synchronization_noise == pytest.approx(2 * 6**0.5 * 2 * 3 / (0.25 * 2 * 8))
    assert terms.synchronization_heterogeneity == pytest.approx(2 * (6 * 2 * 27) ** 0.5 / (0.25 * 8))
    assert terms.drift == 2 * (0.75 + 0.5 * 6) * 9


def test_dominating_term_changes_with_the_horizon() -> None:
    setting = tiny(1.0, 1.0)
    assert [rate_terms(setting, K).dominating for K in (1, 10**6)] == ["drift", "noise"]
    assert RateTerms(1.0, 3.0, 2.0, 0.0).dominating == "synchronization_noise"


def test_leading_term_of_the_closed_bound_is_the_noise_term() -> None:
    setting = tiny(1.0, 1.0)
    ratios = [closed_bound(setting, K) / rate_terms(setting, K).noise for K in (10**12, 10**13)]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-2)
    quieter = replace(setting, constants=Constants(1.0, 1.0, 0.5, 1.0))
    assert closed_bound(setting, 10**14) / closed_bound(quieter, 10**14) == pytest.approx(4, rel=1e-2)
