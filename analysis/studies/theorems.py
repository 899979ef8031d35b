"""What the theorems say of rates: the terms of Theorem 1's rate, and what a server rate costs by Theorem 2."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from areabench.theory import Setting, delta


@dataclass(frozen=True)
class RateTerms:
    """The four terms of eq. (short_rate_strong_convex), in its order and without constant factors."""

    noise: float
    synchronization_noise: float
    synchronization_heterogeneity: float
    drift: float

    @property
    def dominating(self) -> str:
        """The name of the greatest term."""
        return max((field.name for field in fields(self)), key=lambda name: float(getattr(self, name)))


def rate_terms(setting: Setting, iterations: int) -> RateTerms:
    """The terms corrected: L/gamma, sigma/gamma, q_bar + 1/p_s for q_bar, p_min for its root in the third, no kappa."""
    constants = setting.constants
    events = setting.probabilities
    K = iterations
    M = setting.local_steps
    L = constants.L / constants.gamma
    sigma = constants.sigma / constants.gamma
    zeta = constants.zeta
    p = events.minimum
    q = events.mean_inverse + 1 / events.server
    return RateTerms(
        noise=events.server_ratio * sigma**2 / (p * M * K),
        synchronization_noise=events.server_ratio * math.sqrt(q / M) * L * sigma * zeta / (p * K**1.5),
        synchronization_heterogeneity=events.server_ratio * math.sqrt(q * L**3 * sigma * zeta**3) / (p * K**1.5),
        drift=events.server_ratio * (delta(M) + math.sqrt(p) * q) * L**4 * zeta**2 / (p * K) ** 2,
    )


def time_penalty(rates: NDArray[np.float64], server_rate: float) -> float:
    """Theorem 2's bound after some time over its infimum (infinite lambda_s): sqrt(1 + 1/(lambda_s H)).

    H = (2/n) sum 1/lambda_i.

    At lambda_s* it is at most sqrt(1 + 1/sqrt(2n)): 1.31 for n = 1, 1.03 for n = 128.
    """
    H = 2 * float(np.mean(1 / rates))
    return math.sqrt(1 + 1 / (server_rate * H))
