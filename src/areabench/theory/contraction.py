"""How fast the expected distances shrink in one iteration: Lemma properties_of_Ak and the two phases of Section 4."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.schedule import TheoremSchedule

_EXCESS_MAX = 2.0  # 3(1 - r)/(1 - r³) - 1 at r = 0


def contraction_beta(step_size: float, local_steps: int, gamma: float) -> float:
    """beta_k = 1 - alpha_k M gamma/4, Lemma properties_of_Ak; positive for alpha_k < 4/(M gamma)."""
    beta = 1 - step_size * local_steps * gamma / 4
    if beta <= 0:
        limit = 4 / (local_steps * gamma)
        raise UserError(f"the step size is {step_size}, the limit is below 4/(M gamma) = {limit}; take a smaller one")
    return beta


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


def lyapunov_weights(probabilities: EventProbabilities, beta: float) -> NDArray[np.float64]:
    """w_k, eq. (w_k_definition), shape (2n+1,)."""
    inverse = 1 / (probabilities.count * probabilities.clients)
    return np.concatenate([inverse / beta ** (2 / 3), inverse / beta ** (1 / 3), [1 / probabilities.server]])


def contraction_factor(minimum_probability: float, beta: float) -> float:
    """rho_k = 1 - p_min + p_min beta_k^(1/3), eq. (rho_k_bound)."""
    return 1 - minimum_probability * (1 - math.cbrt(beta))


def conservative_factor(minimum_probability: float, beta: float) -> float:
    """1 - p_min alpha_k M gamma/12 = 1 - p_min (1 - beta_k)/3, the factor that Theorem 1's rate uses; >= rho_k."""
    return 1 - minimum_probability * (1 - beta) / 3


def changeover_beta(excess: float) -> float:
    """The beta at which 1 - rho_k exceeds p_min (1 - beta)/3 by the share `excess`, between 0 and 2.

    With r = beta^(1/3) the ratio of the two is 3(1 - r)/(1 - r³) = 3/(1 + r + r²), a quadratic equation for r.
    """
    if not 0 < excess < _EXCESS_MAX:
        raise UserError(
            f"the excess is {excess}, the limits are above 0 and below {_EXCESS_MAX:g}; 0.05 is five percent"
        )
    root = (math.sqrt(12 / (1 + excess) - 3) - 1) / 2
    return root**3


def changeover_iteration(schedule: TheoremSchedule, local_steps: int, gamma: float, excess: float = 0.05) -> int:
    """The first k of the second phase: 1 - rho_k is at most (1 + excess) p_min alpha_k M gamma/12 from there on.

    Then the conservative factor tells the rate, and the decay is sublinear. `excess` is a share. With Theorem 1's
    own step sizes it is below 10 percent from the start, so that its first phase is short or absent.
    """
    step_size = 4 * (1 - changeover_beta(excess)) / (local_steps * gamma)
    return max(0, math.ceil(schedule.c / step_size - schedule.d))
