"""What a bound needs to know about the problem: Assumptions 1 to 4 in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from areabench.errors import UserError
from areabench.theory.checks import require_computable, require_count, require_not_negative, require_positive


@dataclass(frozen=True)
class Constants:
    """Each f_i is mu-strongly convex with L-Lipschitz gradient; the noise of a gradient is at most sigma.

    zeta is the greatest distance of a client's own minimiser from the common one, max_i |x* - u_i*|.
    """

    mu: float
    L: float
    sigma: float
    zeta: float

    def __post_init__(self) -> None:
        """Refuse constants that no function has."""
        require_positive("mu", self.mu)
        require_not_negative("sigma", self.sigma)
        require_not_negative("zeta", self.zeta)
        if not self.mu <= self.L < float("inf"):
            raise UserError(f"L is {self.L}, the least is mu = {self.mu}; give a finite L of at least mu")
        require_computable("mu", self.mu)
        require_computable("L", self.L)
        require_computable("sigma", self.sigma, least=0.0)
        require_computable("zeta", self.zeta, least=0.0)

    @property
    def gamma(self) -> float:
        """gamma = 2 mu L/(mu + L), Lemma nesterov."""
        return 2 * self.mu * self.L / (self.mu + self.L)

    @property
    def kappa(self) -> float:
        """kappa = L/mu, the condition number."""
        return self.L / self.mu


@dataclass(frozen=True)
class LipschitzConstants:
    """Each f_i is convex and B-Lipschitz, the noise of a subgradient at most sigma; |x_{s,0} - x*| at the start."""

    B: float
    sigma: float
    start_distance: float

    def __post_init__(self) -> None:
        """Refuse constants that no function has."""
        require_positive("B", self.B)
        require_not_negative("sigma", self.sigma)
        require_positive("the distance |x_{s,0} - x*|", self.start_distance)
        require_computable("B", self.B)
        require_computable("sigma", self.sigma, least=0.0)
        require_computable("the distance |x_{s,0} - x*|", self.start_distance)


def delta(local_steps: int) -> float:
    """delta = 1 - 1/M, Theorem 1: the share of local steps that drift; 0 for M = 1."""
    require_count("the number of local steps M", local_steps)
    return 1 - 1 / local_steps
