"""The server rate that Theorem 2 suggests under Poisson arrivals (Section 4, optimal tuning of the server policy).

The closed form minimises the bound for a given number of iterations K. For a given time the bound falls with the
server's rate without end: K grows with the rate, and 1/p_s + 2 q_bar = (lambda_s + sum lambda)(1/lambda_s + H) grows
less. `time_penalty` says how much the closed form gives away there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.theory.checks import positive_rates, require_positive
from areabench.theory.constants import LipschitzConstants
from areabench.theory.lipschitz import local_error, start_lyapunov
from areabench.theory.probabilities import poisson_probabilities


@dataclass(frozen=True)
class ServerRate:
    """A server rate (1/s) and the criteria that belong to it: Delta updates a step, also rounded, and a period."""

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
    """The same after `time_s` seconds, K = (lambda_s + sum lambda) T; falls with lambda_s."""
    require_positive("the time in seconds", time_s)
    iterations = (server_rate + float(rates.sum())) * time_s
    return bound_by_iterations(constants, rates, server_rate, local_steps, iterations)


def time_penalty(rates: NDArray[np.float64], server_rate: float) -> float:
    """`bound_by_time` over its infimum (a server without rest): sqrt(1 + 1/(lambda_s H)), H = (2/n) sum 1/lambda_i.

    At lambda_s* it is at most sqrt(1 + 1/sqrt(2n)): 1.31 for n = 1, 1.03 for n = 128.
    """
    require_positive("the server's rate", server_rate)
    return math.sqrt(1 + 1 / (server_rate * _inverse(positive_rates(rates))))


def _inverse(rates: NDArray[np.float64]) -> float:
    """H = (2/n) sum 1/lambda_i, in seconds."""
    return 2 * float(np.mean(1 / rates))
