"""Formulas of the paper that its proofs need and no experiment does, and formulas as they are printed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from studies.theorems import RateTerms

from areabench.theory import (
    EventProbabilities,
    LipschitzConstants,
    Setting,
    delta,
    poisson_probabilities,
)
from areabench.theory.theorem2 import local_error, start_lyapunov


def transition_matrix(probabilities: EventProbabilities, beta: float) -> NDArray[np.float64]:
    """A_k, eq. (transition_matrix), shape (2n+1, 2n+1): rows and columns x_1..x_n, y_1..y_n, x_s."""
    n, p = probabilities.count, probabilities.clients
    matrix = np.zeros((2 * n + 1, 2 * n + 1))
    matrix[:n, :n] = matrix[n : 2 * n, n : 2 * n] = np.diag(1 - p)
    matrix[n : 2 * n, :n] = np.diag(p)
    matrix[:n, -1] = beta * p
    matrix[-1, n : 2 * n] = probabilities.server / n
    matrix[-1, -1] = 1 - probabilities.server
    return matrix


def contraction_factor(minimum_probability: float, beta: float) -> float:
    """rho_k = 1 - p_min + p_min beta_k^(1/3), eq. (rho_k_bound)."""
    return 1 - minimum_probability * (1 - math.cbrt(beta))


def conservative_factor(minimum_probability: float, beta: float) -> float:
    """1 - p_min alpha_k M gamma/12 = 1 - p_min (1 - beta_k)/3, the factor that Theorem 1's rate uses; >= rho_k."""
    return 1 - minimum_probability * (1 - beta) / 3


def printed_rate_terms(setting: Setting, iterations: int) -> RateTerms:
    """The terms as the paper prints them; they depend on the units of x and f, as they assume gamma >= 1."""
    constants, events, K, M = setting.constants, setting.probabilities, iterations, setting.local_steps
    L, sigma, zeta, q, p = constants.L, constants.sigma, constants.zeta, events.mean_inverse, events.minimum
    drifting = 1 + delta(M) * constants.kappa
    return RateTerms(
        noise=events.server_ratio * drifting * sigma**2 / (p * M * K),
        synchronization_noise=events.server_ratio * math.sqrt(q * drifting / M) * L * sigma * zeta / (p * K**1.5),
        synchronization_heterogeneity=events.server_ratio * math.sqrt(q * L**3 * sigma * zeta**3 / p) / K**1.5,
        drift=events.server_ratio * (delta(M) + math.sqrt(p) * q) * L**4 * zeta**2 / (p * K) ** 2,
    )


def bound_by_iterations(
    constants: LipschitzConstants, rates: NDArray[np.float64], server_rate: float, local_steps: int, iterations: float
) -> float:
    """Theorem 2's sqrt(V_0 (sigma² + M B²)/(MK)) as a function of lambda_s, for K = `iterations`."""
    start = start_lyapunov(constants, poisson_probabilities(rates, server_rate))
    return math.sqrt(start * local_error(constants, local_steps) / (local_steps * iterations))


def bound_by_time(
    constants: LipschitzConstants, rates: NDArray[np.float64], server_rate: float, local_steps: int, time_s: float
) -> float:
    """The same bound after `time_s` seconds, K = (lambda_s + sum lambda) T; it falls with lambda_s."""
    iterations = (server_rate + float(rates.sum())) * time_s
    return bound_by_iterations(constants, rates, server_rate, local_steps, iterations)
