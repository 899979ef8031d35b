"""Entries of docs/theory-corrections.md on model, steps and lemmas: what is printed fails, what is right holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.table import answer
from tests.theory.proof import contraction_factor, transition_matrix

from areabench.engine.messages import Order
from areabench.engine.server import Server
from areabench.methods.area import area
from areabench.methods.base import Method, Work
from areabench.methods.fedbuff import fedbuff
from areabench.problems.datasets import Dataset
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.minibatches import client_weights
from areabench.theory.constants import Constants, delta
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.theorem1 import (
    Convention,
    Setting,
    StepLimit,
    contraction_beta,
    lemma_constants,
    lyapunov_weights,
    step_limit,
    theorem_schedule,
)

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
    return first, server.receive(answer(first[0], trained - first[0].model), first[0], 0.0)


def test_first_update_is_already_trained() -> None:
    server = Server(area(1), lambda _k, _time_s: 0.5, np.array([1.0]), clients=1)
    served(server)
    server.aggregate(0.0)
    assert server.model.tolist() == [0.5]  # with x_{1,0} = x_{s,0} the first message is 0, and x_{s,2} = 1


def test_step_size_sent_is_one_index_ahead_of_the_appendix() -> None:
    server = Server(area(1), lambda k, _time_s: 1 / (k + 2), np.array([1.0]), clients=1)
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


# ------------------------------------------------------------------------------------------------------- privacy


def test_residuals_give_every_pseudo_gradient_away() -> None:
    """Three rounds of one of two clients, f = x²/2, alpha = 1/2: gradients 16, 16 and 12."""
    method, start, alpha = area(2), np.array([16.0]), 0.5
    server, memory = Server(method, lambda _k, _time_s: alpha, start, clients=2), method.remember(start)
    order, sent, residuals = server.begin()[0], [], []
    for number in range(3):
        local = order.model * (1 - alpha)
        payload, memory, _ = method.report(memory, Work(order.model, alpha, 1, order.model, local))
        sent.append(order.model[0])
        residuals.append(payload[0])
        (order,) = server.receive(answer(order, payload, number), order, 0.0)
        server.aggregate(0.0)
    assert (sent, residuals) == ([16.0, 16.0, 12.0], [-8.0, 0.0, -2.0])
    assert (-np.array(residuals) / alpha).tolist() == [16.0, 0.0, 4.0]  # one residual alone: right the first time only
    assert ((sent - (start + np.cumsum(residuals))) / alpha).tolist() == [16.0, 16.0, 12.0]  # with a running sum


def test_sum_of_residuals_gives_no_pseudo_gradient_away() -> None:
    """Two clients, each with an old and a new gradient at x = 16, alpha = 1/2, and the sum of their new messages."""

    def summed(method: Method, old: tuple[float, float], new: tuple[float, float]) -> float:
        model, total = np.array([16.0]), 0.0
        for gradients in zip(old, new, strict=True):
            memory = method.remember(model)
            for gradient in gradients:
                payload, memory, _ = method.report(memory, Work(model, 0.5, 1, model, model - 0.5 * gradient))
            total += float(payload[0])
        return total

    first, second = {"old": (16.0, 4.0), "new": (12.0, 8.0)}, {"old": (5.0, 3.0), "new": (3.0, 5.0)}
    assert summed(area(2), **first) == summed(area(2), **second) == 0.0  # the same to a server of AREA
    assert (summed(fedbuff(2, 1.0), **first), summed(fedbuff(2, 1.0), **second)) == (10.0, 4.0)


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
