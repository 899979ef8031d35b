"""Quadratics that are given instead of drawn, so that their numbers can be worked out by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from areabench.arrays import FLOAT64, Vector
from areabench.problems.quadratic import Quadratic, QuadraticFunction, QuadraticProblem


class GivenQuadratic(QuadraticProblem):
    """H_i, shape (n, d, d), symmetric and positive definite, c_i, shape (n, d), and x_{s,0}, shape (d,)."""

    def __init__(
        self, hessians: ArrayLike, centres: ArrayLike, start: ArrayLike, local_steps: int, noise: float = 0.0
    ) -> None:
        given = np.array(hessians, dtype=FLOAT64), np.array(centres, dtype=FLOAT64)
        self._start = np.array(start, dtype=FLOAT64)
        curvatures, (clients, dimension) = np.linalg.eigvalsh(given[0]), given[1].shape
        extremes = float(curvatures.min()), float(curvatures.max())
        settings = Quadratic(dimension=dimension, curvature_min=extremes[0], curvature_max=extremes[1], noise=noise)
        super().__init__(settings, clients, local_steps, 0, list(map(QuadraticFunction, *given)))

    def start(self) -> Vector:
        """The given starting point."""
        return self._start.copy()
