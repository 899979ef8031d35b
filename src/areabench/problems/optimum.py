"""Problems whose optimum and constants are known, as theory needs them; and Newton's method to find a minimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.problems.base import Problem

_ROUNDING = 1e-8  # solvers leave a gap of up to this share of the larger of 1 and the minimum


@dataclass(frozen=True)
class Optimum:
    """The best known point of f, the training loss as runs record it; one of several minimisers."""

    minimiser: NDArray[np.float64]  # shape (dimension,)
    minimum: float  # the value of f there
    gap: float  # the least value of f is at most this much below `minimum`; proven up to the solver's rounding

    @property
    def exact(self) -> bool:
        """Whether the minimum is proven; otherwise it is an estimate from above."""
        return self.gap <= _ROUNDING * max(1.0, abs(self.minimum))


class KnownOptimum(Problem, Protocol):
    """A problem that can be solved without any run; solving may take a while and is done once."""

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


# ---------------------------------------------------------------------------------------------------- Newton's method


Point = NDArray[np.float64]
_MOST_STEPS = 200
_SHORTEST = 2.0**-40  # share of a Newton step below which the search ends


def minimise(
    gradient_at: Callable[[Point], Point],
    newton_step: Callable[[Point, Point], Point],
    start: Point,
    tolerance: float,
    what: str,
) -> Point:
    """A point where the gradient of a convex function has a norm of at most `tolerance`.

    `newton_step` gives about -H⁻¹·gradient of a point and its gradient; `what` names the problem in the error.
    """
    point = start
    gradient = gradient_at(start)
    for _ in range(_MOST_STEPS):
        if np.linalg.norm(gradient) <= tolerance:
            return point
        step = newton_step(point, gradient)
        # -H⁻¹g is a direction of descent for |g|², so a small enough part of it shortens g; `not <` because of NaN.
        share = 1.0
        length = np.linalg.norm(gradient)
        while share >= _SHORTEST and not np.linalg.norm(trial := gradient_at(point + share * step)) < length:
            share /= 2
        if share < _SHORTEST:
            break
        point = point + share * step
        gradient = trial
    raise UserError(
        f"{what}: the solver for the minimiser stopped at a gradient of norm {np.linalg.norm(gradient):.2g}, above "
        f"{tolerance:g}; the problem is too badly conditioned, so change its settings or the seed"
    )
