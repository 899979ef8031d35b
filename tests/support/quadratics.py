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


IDENTITY = [[1, 0], [0, 1]]


def two_clients(local_steps: int = 1) -> GivenQuadratic:
    """Start (8, 8), gradients (a - 4, b) and (2a, b - 8).

    With alpha = 1/2 a local step of client 0 is (a, b) -> ((a + 4)/2, b/2), one of client 1 (a, b) -> (0, (b + 8)/2).
    """
    return GivenQuadratic([IDENTITY, [[2, 0], [0, 1]]], [[4, 0], [0, 8]], [8, 8], local_steps)


def four_clients() -> GivenQuadratic:
    """Clients 0 and 1 as above; with alpha = 1/2 client 2 halves a point and client 3 goes to (2, 2) at once."""
    hessians = [IDENTITY, [[2, 0], [0, 1]], IDENTITY, [[2, 0], [0, 2]]]
    return GivenQuadratic(hessians, [[4, 0], [0, 8], [0, 0], [2, 2]], [8, 8], 1)


def bowls(count: int) -> GivenQuadratic:
    """Equal quadratics around (0, 0), (1, -1), (2, -2), ..., start (8, 8)."""
    return GivenQuadratic([IDENTITY] * count, [[number, -number] for number in range(count)], [8, 8], 1)
