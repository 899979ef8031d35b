"""Assumptions 1 to 4 in numbers: the constants of a problem that a bound needs, and checks of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError


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
        """Refuse constants that no function can have."""
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
        """Refuse constants that no function can have."""
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


# ---------------------------------------------------------------------------------------------------- checks


_SMALLEST = 1e-60
_LARGEST = 1e60


def require_positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} is {value}, the limit is above 0 and finite; give a positive number")


def require_not_negative(name: str, value: float) -> None:
    """Refuse anything but a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise UserError(f"{name} is {value}, the limit is at least 0 and finite; give 0 or a positive number")


def require_computable(name: str, value: float, least: float = _SMALLEST) -> None:
    """Refuse a number whose fourth power, or the inverse of it, would not be finite."""
    if not least <= value <= _LARGEST:
        raise UserError(f"{name} is {value:g}, the limits are {least:g} and {_LARGEST:g}; scale the problem")


def require_count(name: str, value: int) -> None:
    """Refuse a count below 1."""
    if value < 1:
        raise UserError(f"{name} is {value}, the least is 1; give a whole number of at least 1")


def positive_rates(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates, shape (clients,), or an error that names the first one that is not positive."""
    if not len(rates):
        raise UserError("there are 0 rates, the least is 1; give one rate for each client")
    for client in np.flatnonzero(~(np.isfinite(rates) & (rates > 0))):
        require_positive(f"the rate of client {client}", float(rates[client]))
    return rates
