"""Theorem 2, convex Lipschitz functions: constant step size, bound of the averaged iterates, best server rate.

The paper's (M + 1) B²/2 is M B² here: its proof drops a factor of 2, which matters for M >= 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.theory.constants import LipschitzConstants, positive_rates, require_count, require_positive
from areabench.theory.probabilities import EventProbabilities, poisson_probabilities
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
) -> float:
    """An upper bound of E[f(mean of x_{s,0}..x_{s,K-1}) - f*] with Theorem 2's step size.

    It is sqrt(V_0 (sigma² + M B²)/(MK)), plus O(1/K) where clients train before the first iteration.
    """
    step_size = lipschitz_step_size(constants, probabilities, local_steps, iterations)
    return lipschitz_bound_for(constants, probabilities, local_steps, iterations, step_size, convention)


def lipschitz_bound_for(
    constants: LipschitzConstants,
    probabilities: EventProbabilities,
    local_steps: int,
    iterations: int,
    step_size: float,
    convention: Convention = Convention.ALGORITHM,
) -> float:
    """The same bound for any constant step size: V_0/(2 alpha M K) + alpha (sigma² + M B²)/2."""
    start, error = start_lyapunov(constants, probabilities), local_error(constants, local_steps)
    if convention is Convention.ALGORITHM:
        start += probabilities.mean_inverse * _first_round(constants, local_steps, step_size)
    return start / (2 * step_size * local_steps * iterations) + step_size * error / 2


def _first_round(constants: LipschitzConstants, local_steps: int, step_size: float) -> float:
    """By how much |x_{i,0} - x*|² may exceed |x_{s,0} - x*|² after client i has trained on x_{s,0}."""
    length = step_size * local_steps
    return 2 * length * constants.B * constants.start_distance + length * step_size * local_error(
        constants, local_steps
    )


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
    rate = math.sqrt(total / _inverse(rates))
    return ServerRate(rate, total / rate, max(1, round(total / rate)), 1 / rate)


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
    require_positive("the time in seconds", time_s)
    iterations = (server_rate + float(rates.sum())) * time_s
    return bound_by_iterations(constants, rates, server_rate, local_steps, iterations)


def time_penalty(rates: NDArray[np.float64], server_rate: float) -> float:
    """`bound_by_time` divided by its infimum (infinite lambda_s): sqrt(1 + 1/(lambda_s H)), H = (2/n) sum 1/lambda_i.

    At lambda_s* it is at most sqrt(1 + 1/sqrt(2n)): 1.31 for n = 1, 1.03 for n = 128.
    """
    require_positive("the server's rate", server_rate)
    return math.sqrt(1 + 1 / (server_rate * _inverse(positive_rates(rates))))


def _inverse(rates: NDArray[np.float64]) -> float:
    """H = (2/n) sum 1/lambda_i, in seconds."""
    return 2 * float(np.mean(1 / rates))
