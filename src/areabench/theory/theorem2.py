"""Theorem 2: constant step size and bound of the function gap of the averaged iterates, convex Lipschitz functions.

The paper's (M + 1) B²/2 is M B² here: its proof drops a factor of 2, which matters for M >= 2.
"""

from __future__ import annotations

import math

from areabench.theory.checks import require_count
from areabench.theory.constants import LipschitzConstants
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.setting import Convention


def start_lyapunov(constants: LipschitzConstants, probabilities: EventProbabilities) -> float:
    """V_0 = (1/p_s + 2 q_bar) |x_{s,0} - x*|², eq. (luap_co) with x_{i,0} = y_{i,0} = x_{s,0}."""
    return (1 / probabilities.server + 2 * probabilities.mean_inverse) * constants.start_distance**2


def local_error(constants: LipschitzConstants, local_steps: int) -> float:
    """sigma² + M B², what a squared step size of one local step costs in V_k."""
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
    """The same for any constant step size: V_0/(2 alpha M K) + alpha (sigma² + M B²)/2."""
    start, error = start_lyapunov(constants, probabilities), local_error(constants, local_steps)
    if convention is Convention.ALGORITHM:
        start += probabilities.mean_inverse * _first_round(constants, local_steps, step_size)
    return start / (2 * step_size * local_steps * iterations) + step_size * error / 2


def _first_round(constants: LipschitzConstants, local_steps: int, step_size: float) -> float:
    """How much |x_{i,0} - x*|² may exceed |x_{s,0} - x*|² once client i has trained on x_{s,0}."""
    length = step_size * local_steps
    return 2 * length * constants.B * constants.start_distance + length * step_size * local_error(
        constants, local_steps
    )
