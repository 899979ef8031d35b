"""One test for each entry of docs/theory-corrections.md: what is printed fails, what is right holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areabench.algorithms.area import area
from areabench.datasets import Dataset
from areabench.messages import Order
from areabench.problem_settings import Logistic
from areabench.problems.logistic import LogisticProblem
from areabench.problems.minibatches import client_weights
from areabench.server import Server
from areabench.theory.constants import Constants, LipschitzConstants, delta
from areabench.theory.contraction import (
    contraction_beta,
    contraction_factor,
    lyapunov_weights,
    transition_matrix,
)
from areabench.theory.lipschitz import lipschitz_bound, local_error
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.schedule import StepLimit, step_limit, theorem_schedule
from areabench.theory.setting import Convention, Setting, lemma_constants
from areabench.theory.strongly_convex import RateTerms, printed_rate_terms, rate_terms

HALVES = EventProbabilities(np.array([0.5]), 0.5)
CURVATURES = st.builds(lambda mu, ratio: Constants(mu, mu * ratio, 1.0, 1.0), st.floats(0.01, 100), st.floats(1, 1000))


# ------------------------------------------------------------------------------------------- model and iterates


def test_logistic_loss_needs_a_minus_sign() -> None:
    features, labels = np.array([[1]], dtype=np.uint8), np.array([0])
    data = Dataset("one", features, labels, features, labels, 2, 1.0)
    problem = LogisticProblem(Logistic(regularisation=0.0), data, [np.array([0])], 1, 0)
    right, wrong = np.array([1.0, 0.0]), np.array([0.0, 1.0])  # scores of classes 0 and 1; the label is 0
    printed = [math.log(math.exp(w[0]) / (math.exp(w[0]) + math.exp(w[1]))) for w in (right, wrong)]
    assert printed[1] < printed[0] < 0  # a loss below 0, and the wrong class would win
    metrics = problem.evaluate([right.astype(np.float32), wrong.astype(np.float32)])
    assert metrics.train_loss == pytest.approx([-value for value in printed])


def test_weights_of_the_clients_in_the_objective() -> None:
    minimisers = np.array([0.0, 1.0])  # f^_i = (x - u_i)²/2, with 1 and 3 samples
    parts = [np.arange(1), np.arange(1, 4)]
    assert minimisers.mean() != 0.75  # the minimiser of (1/n) sum f_i with f_i = f^_i
    weights = np.array(client_weights(parts, "exact"))  # f_i = (n s_i/S) f^_i
    assert (weights * minimisers).mean() / weights.mean() == 0.75  # that of sum (s_i/S) f^_i


def served(server: Server) -> tuple[list[Order], list[Order]]:
    """The orders at the start, and those after client 0 has trained once with f = x²/2."""
    first = server.begin()
    trained = first[0].model * (1 - first[0].step_size)
    return first, server.receive(0, trained - first[0].model)


def test_first_update_is_already_trained() -> None:
    server = Server(area(1), lambda _k: 0.5, np.array([1.0]))
    served(server)
    server.aggregate()
    assert server.model.tolist() == [0.5]  # with x_{1,0} = x_{s,0} the first message is 0, and x_{s,2} = 1


def test_step_size_sent_is_one_index_ahead_of_the_appendix() -> None:
    server = Server(area(1), lambda k: 1 / (k + 2), np.array([1.0]))
    first, second = served(server)
    assert [order.step_size for order in first] == [1 / 2]
    assert [(order.step_size, order.model.tolist()) for order in second] == [(1 / 3, [1.0])]  # alpha_1 with x_{s,0}
    setting = Setting(Constants(1.0, 1.0, 1.0, 1.0), HALVES, 1, 1.0, Convention.ALGORITHM)
    assert setting.sent.step_size(0) == setting.schedule.step_size(1)


def test_gradient_steps_in_terms_of_both_errors() -> None:
    x, alpha, noise = 1.0, 0.25, [0.5, -1.0]  # f = x²/2, M = 2, g = x + noise
    middle = x - alpha * (x + noise[0])
    end = middle - alpha * (middle + noise[1])
    drift, gradient = x - middle, -noise[0] - noise[1]
    assert end == x - 2 * alpha * x + alpha * drift + alpha * gradient
    assert end != x - 2 * alpha * x + alpha * drift + alpha * drift


# ------------------------------------------------------------------------------------------------ A_k, step sizes


def test_powers_of_beta_decrease() -> None:
    beta = 1 / 8
    first, second = math.cbrt(beta), math.cbrt(beta) ** 2
    assert [first, second] == pytest.approx([1 / 2, 1 / 4])
    assert first > second > beta  # printed: first <= second <= beta
    assert 1 / first + 1 / second <= 2 / beta  # the claim that is drawn from it holds


def test_weighted_sum_of_w() -> None:
    events = EventProbabilities(np.array([0.125, 0.375]), 0.5)
    total = events.clients @ lyapunov_weights(events, 1 / 8)[:2]
    assert total == pytest.approx(4)  # beta^(-2/3); printed: = 1/beta = 8
    assert total <= 8


def test_index_of_the_memory_weights() -> None:
    events, beta = EventProbabilities(np.array([0.125, 0.375]), 0.5), 1 / 8
    weights = lyapunov_weights(events, beta)
    after = (weights @ transition_matrix(events, beta))[2:4]
    factors = 1 - events.clients + events.clients / 2
    assert after == pytest.approx(weights[2:4] * factors)
    assert after != pytest.approx(weights[:2] * factors)


def test_limit_is_reached_so_conditions_are_not_strict() -> None:
    constants = Constants(1.0, 3.0, 1.0, 1.0)
    first = theorem_schedule(constants, 1, 0.25).step_size(0)
    assert first == 2 / (constants.mu + constants.L)  # printed: alpha_k < 2/(mu + L)
    contracted = max((1 - first * curvature) ** 2 for curvature in (1.0, 1.5, 3.0))
    assert contracted <= 1 - first * constants.gamma


@given(CURVATURES, st.integers(2, 1000))
def test_third_term_of_the_limit_is_always_active(constants: Constants, local_steps: int) -> None:
    limit: StepLimit = step_limit(constants, local_steps)
    assert limit.active == "drift_squared_norm"
    assert limit.drift_squared_norm <= math.sqrt(2) / 8 * limit.drift_norm * (1 + 1e-12)
    assert limit.drift_squared_norm <= limit.smoothness / math.sqrt(8) * (1 + 1e-12)
    assert limit.drift_squared_norm**3 <= limit.drift_cubed**3 / 4


@given(CURVATURES, st.integers(1, 60), st.floats(0.001, 0.5))
def test_first_phase_is_far_from_its_limit(constants: Constants, local_steps: int, probability: float) -> None:
    first = theorem_schedule(constants, local_steps, probability).step_size(0)
    rho = contraction_factor(probability, contraction_beta(first, local_steps, constants.gamma))
    assert 1 - rho <= 0.0915 * probability  # the text: about p_min


# ------------------------------------------------------------------------------------------------------ norms


def test_drift_of_norms_is_twice_the_printed_one() -> None:
    x, alpha = 1.0, 0.25  # f = x²/2: L = 1, zeta = sigma = 0, M = 2
    drift = x - (x - alpha * x)
    assert drift > alpha * 2 * x / 4  # printed: alpha L² M (M-1) |x|/4
    assert drift == alpha * 2 * x / 2


def contraction_of_norms(constants: Constants, local_steps: int, alpha: float) -> float:
    """r in the proof of Lemma x_norm, with the drift as it is."""
    drift = alpha**2 * constants.L**2 * local_steps * (local_steps - 1) / 2
    return math.sqrt(1 - alpha * local_steps * constants.gamma) + drift


def test_second_term_of_the_limit_does_not_contract() -> None:
    constants = Constants(1.0, 10.0, 1.0, 1.0)
    alpha = step_limit(constants, 2).drift_norm
    assert contraction_of_norms(constants, 2, alpha) > contraction_beta(alpha, 2, constants.gamma)


@given(CURVATURES, st.integers(2, 100))
def test_limit_contracts_nevertheless(constants: Constants, local_steps: int) -> None:
    alpha = step_limit(constants, local_steps).value
    assert contraction_of_norms(constants, local_steps, alpha) <= contraction_beta(alpha, local_steps, constants.gamma)
    drift = alpha**2 * constants.L * local_steps * (local_steps - 1) / 2
    assert alpha * local_steps + drift <= alpha * lemma_constants(constants, local_steps).norm_sigma


def test_noise_in_the_bound_of_norms_has_a_factor_2c() -> None:
    schedule = theorem_schedule(Constants(1.0, 1.0, 1.0, 0.0), 1, 0.5)  # c = d = 96, c^_sigma = 5/4, sigma = 1
    value, K = 0.0, 20000
    for k in range(K):
        beta = contraction_beta(schedule.step_size(k), 1, 1.0)
        value = contraction_factor(0.5, beta) * value + 2 * 1.25 * schedule.step_size(k)
    shifted = K + schedule.d - 1
    assert value > 100 * 1.25 * K**4 / (4 * shifted**4)  # printed, without 2c
    assert 0.9 < value / (2 * schedule.c * 1.25 * (shifted + 0.5) ** 4 / (4 * shifted**4)) <= 1


# -------------------------------------------------------------------------------------------- squared norms


def test_geometric_sum_needs_its_exponent() -> None:
    ratio = Fraction(3, 2)  # 1 + 1/(M-1) for M = 3, m = 2
    assert sum(ratio**power for power in range(2)) == (ratio**2 - 1) / (ratio - 1)
    assert 2 * ratio != (ratio**2 - 1) / (ratio - 1)  # printed: the sum of 1 + 1/(M-1) without exponent


def test_sign_of_the_inner_product() -> None:
    y, old, new = 3, 1, 2
    assert (y - new) ** 2 == (y - old) ** 2 + (new - old) ** 2 - 2 * (y - old) * (new - old)
    assert (y - new) ** 2 != (y - old) ** 2 + (new - old) ** 2 + 2 * (y - old) * (new - old)  # printed: +


def noise_share(M: int, L: Fraction, gamma: Fraction, alpha: Fraction) -> Fraction:
    """T_3 from its parts: 2 alpha² M T_3 = 2 alpha² M + (2 alpha/(M gamma) + alpha²) 2 alpha² L² (M-1)³."""
    parts = 2 * alpha**2 * M + (2 * alpha / (M * gamma) + alpha**2) * 2 * alpha**2 * L**2 * (M - 1) ** 3
    return parts / (2 * alpha**2 * M)


def test_last_part_of_the_noise_has_one_power_of_m() -> None:
    M, L, gamma, alpha = 3, Fraction(2), Fraction(4, 3), Fraction(1, 9)
    common = 1 + 2 * alpha * L**2 * (M - 1) ** 3 / (M**2 * gamma)
    assert noise_share(M, L, gamma, alpha) == common + alpha**2 * L**2 * (M - 1) ** 3 / M
    assert noise_share(M, L, gamma, alpha) != common + alpha**2 * L**2 * (M - 1) ** 3 / M**2


def printed_noise(constants: Constants, M: int) -> float:
    """c~_sigma of Lemma x_norm_squared as printed."""
    third = 4 * constants.L**2 * delta(M) / (M * (constants.mu + constants.L) ** 2)
    return 1 + 2 * constants.kappa * delta(M) + third


def test_printed_noise_constant_does_not_follow_from_the_first_term() -> None:
    one = Fraction(1)  # mu = L = gamma = 1, M = 100, alpha = 2/(M (mu + L))
    assert noise_share(100, one, one, Fraction(1, 100)) > printed_noise(Constants(1.0, 1.0, 1.0, 1.0), 100)


@given(CURVATURES, st.integers(2, 200))
def test_noise_constant_is_free_of_kappa(constants: Constants, M: int) -> None:
    alpha = step_limit(constants, M).value
    exact = noise_share(M, Fraction(constants.L), Fraction(constants.gamma), Fraction(alpha))
    ours = lemma_constants(constants, M).squared_sigma / (2 * M)
    assert float(exact) <= ours * (1 + 1e-12) <= printed_noise(constants, M) * (1 + 1e-12)
    assert ours <= 1 + 1 / 4 + 1 / 64


def test_square_of_the_shift_counts_twice_at_an_update() -> None:
    shift, drift = 1.0, 0.01  # (alpha_{k+1} - alpha_k) M grad f_i(x*) and alpha_k eps^d, parallel; s^ = 0
    squared = (shift + drift) ** 2
    assert squared > shift**2 + 2 * drift**2  # printed: (alpha_{k+1} - alpha_k)² L² M² zeta² once
    assert squared <= 2 * shift**2 + 2 * drift**2  # so it is (1 - p_i) + 2 p_i = 1 + p_i of it


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


# ------------------------------------------------------------------------------------------------ Theorem 2


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
