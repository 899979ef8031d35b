"""Theorem 2, convex Lipschitz functions: constant step size, bound of the averaged iterates, best server rate.

The paper's (M + 1) B²/2 is M B² here: its proof drops a factor of 2, which matters for M >= 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.theory.constants import LipschitzConstants, positive_rates, require_count
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.theorem1 import Convention


def start_lyapunov(constants: LipschitzConstants, probabilities: EventProbabilities) -> float:
    """V_0 = (1/p_s + 2 q_bar) |x_{s,0} - x*|², eq. (luap_co) with x_{i,0} = y_{i,0} = x_{s,0}."""
    return (1 / probabilities.server + 2 * probabilities.mean_inverse) * constants.start_distance**2


def local_error(constants: LipschitzConstants, local_steps: int) -> float:
    """sigma² + M B²: the factor of the squared step size in the change of V_k per local step."""
    require_count("the number of local steps M", local_steps)
    return constants.sigma**2 + local_steps * constants.B**2


def lipschitz_step_size(
    constants: LipschitzConstants, probabilities: EventProbabilities, local_steps: int, iterations: int
) -> float:
    """Theorem 2's alpha = sqrt(V_0/((sigma² + M B²) M K)), with M B² for its (M + 1) B²/2."""
    require_count("the number of iterations K", iterations)
    error = local_error(constants, local_steps)
    return math.sqrt(start_lyapunov(constants, probabilities) / (error * local_steps * iterations))


def lipschitz_bound(
    constants: LipschitzConstants,
    probabilities: EventProbabilities,
    local_steps: int,
    iterations: int,
    convention: Convention = Convention.ALGORITHM,
    step_size: float | None = None,
) -> float:
    """An upper bound of E[f(mean of x_{s,0}..x_{s,K-1}) - f*]: V_0/(2 alpha M K) + alpha (sigma² + M B²)/2.

    alpha is a constant step size, Theorem 2's unless another is given. V_0 grows by what clients move before the first
    iteration, where the convention has them train then.
    """
    alpha = step_size
    if alpha is None:
        alpha = lipschitz_step_size(constants, probabilities, local_steps, iterations)
    start = start_lyapunov(constants, probabilities)
    error = local_error(constants, local_steps)
    if convention is Convention.ALGORITHM:  # |x_{i,0} - x*|² may exceed |x_{s,0} - x*|²
        length = alpha * local_steps
        farther = 2 * length * constants.B * constants.start_distance + length * alpha * error
        start += probabilities.mean_inverse * farther
    return start / (2 * alpha * local_steps * iterations) + alpha * error / 2


@dataclass(frozen=True)
class ServerRate:
    """A server rate (1/s) and the equivalent criteria: Delta updates per server step, also rounded, and a period."""

    rate: float
    updates: float
    whole_updates: int
    period_s: float


def best_server_rate(rates: NDArray[np.float64]) -> ServerRate:
    """lambda_s* = sqrt(sum lambda_i/((2/n) sum 1/lambda_i)): least bound of Theorem 2 for a number of iterations."""
    total = float(positive_rates(rates).sum())
    rate = math.sqrt(total / (2 * float(np.mean(1 / rates))))
    return ServerRate(rate, total / rate, max(1, round(total / rate)), 1 / rate)
