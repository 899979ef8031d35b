"""What theory needs to know of a problem: its minimiser, its minimum, and the constants of the paper's assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-8  # a gap up to this share of the larger of 1 and the minimum is what solvers leave


@dataclass(frozen=True)
class Optimum:
    """The best point known of f, the training loss as runs record it; of several minimisers, one."""

    minimiser: NDArray[np.float64]  # shape (dimension,)
    minimum: float  # the value of f there
    gap: float  # the least value of f lies at most so much below `minimum`; proven but for the solver's rounding

    @property
    def exact(self) -> bool:
        """Whether the minimum is proven; otherwise it is an estimate from above."""
        return self.gap <= _ROUNDING * max(1.0, abs(self.minimum))


class KnownOptimum(Protocol):
    """A problem that can be solved apart from any run; solving may take a while, and is done once."""

    @property
    def optimum(self) -> Optimum:
        """The minimiser and the minimum."""
        ...

    @property
    def sigma(self) -> float:
        """Assumption 1: E|g_i(x) - d_i(x)|² <= sigma² for every client i and every x."""
        ...


class SmoothProblem(KnownOptimum, Protocol):
    """A problem of the paper's Assumptions 2 and 3; its minimiser is unique."""

    @property
    def mu(self) -> float:
        """Every f_i is mu-strongly convex."""
        ...

    @property
    def L(self) -> float:
        """Every f_i has L-Lipschitz gradients."""
        ...

    @property
    def zeta(self) -> float:
        """max_i |x* - argmin f_i|."""
        ...


class LipschitzProblem(KnownOptimum, Protocol):
    """A problem of the paper's Assumption 4."""

    @property
    def B(self) -> float:
        """Every f_i is convex and B-Lipschitz."""
        ...
