"""Newton's method on a convex function, down to a gradient that is zero but for rounding.

Progress is measured by the norm of the gradient, not by the function: near the minimum, differences of the function
drown in rounding when the gradient is still 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError

Point = NDArray[np.float64]

_MOST_STEPS = 200
_SHORTEST = 2.0**-40  # part of a Newton step below which nothing is left to gain


@dataclass(frozen=True)
class Smooth:
    """A convex function through its derivatives."""

    gradient: Callable[[Point], Point]
    newton_step: Callable[[Point, Point], Point]  # of a point and its gradient: about -H⁻¹·gradient


def minimise(function: Smooth, start: Point, tolerance: float, what: str) -> Point:
    """A point where the gradient's norm is at most `tolerance`; `what` names the problem in the error."""
    point, gradient = start, function.gradient(start)
    for _ in range(_MOST_STEPS):
        if np.linalg.norm(gradient) <= tolerance:
            return point
        step, share = function.newton_step(point, gradient), 1.0
        # -H⁻¹g is a direction of descent for |g|², so a small enough part of it gains
        while not np.linalg.norm(trial := function.gradient(point + share * step)) < np.linalg.norm(
            gradient
        ):  # nor NaN
            share /= 2
            if share < _SHORTEST:
                raise _stuck(what, gradient, tolerance)
        point, gradient = point + share * step, trial
    raise _stuck(what, gradient, tolerance)


def _stuck(what: str, gradient: Point, tolerance: float) -> UserError:
    return UserError(
        f"{what}: the solver for the minimiser stopped at a gradient of norm {np.linalg.norm(gradient):.2g}, above "
        f"{tolerance:g}; the problem is too badly conditioned, so change its settings or the seed"
    )
