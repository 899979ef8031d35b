"""The geometric median: f_i(x) = mean_j |x - a_ij|, a Lipschitz function with a kink at every point a_ij."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from areabench.problem_settings import Median
from areabench.problems.base import Vector
from areabench.problems.newton import Smooth, minimise
from areabench.problems.optimum import Optimum
from areabench.problems.subgradient import DrawnProblem, Floats, Sizes
from areabench.streams import Purpose, stream

_TOLERANCE = 1e-12  # norm of the gradient at the median, where unit vectors cancel
_WARM_UP = 200  # Weiszfeld steps before Newton's method: cheap, and they never go up


@dataclass(frozen=True)
class Distances:
    """The mean distance to some points, shape (samples, d)."""

    points: Floats

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d)."""
        return np.array([np.linalg.norm(model - self.points, axis=1).mean() for model in models], dtype=np.float64)

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """The mean over the samples `rows` of the unit vectors away from them; 0 where the model is on a point."""
        offsets = model - self.points[rows]
        lengths = np.linalg.norm(offsets, axis=1)
        return np.asarray((offsets / np.where(lengths > 0, lengths, 1.0)[:, None]).mean(axis=0))

    def lipschitz(self) -> float:
        """1, by the triangle inequality."""
        return 1.0

    def mean_square(self) -> float:
        """1: the subgradient of one sample is a unit vector, or 0."""
        return 1.0

    def gradient(self, model: Vector) -> Floats:
        """The subgradient over all points."""
        return self.subgradient(model, np.arange(len(self.points)))

    def newton_step(self, model: Vector, gradient: Floats) -> Floats:
        """-H⁻¹·gradient with H = mean_j (I - u_j u_j')/|x - a_j|, u_j the unit vector from a_j to x."""
        offsets = model - self.points
        lengths = np.linalg.norm(offsets, axis=1)
        scaled = offsets / lengths[:, None] ** 1.5
        hessian = np.eye(len(model)) * (1 / lengths).mean() - scaled.T @ scaled / len(lengths)
        return np.asarray(np.linalg.solve(hessian, -gradient))

    def weiszfeld_step(self, model: Vector) -> Floats:
        """The mean of the other points, weighted by inverse distances; a point at x holds it back (Vardi and Zhang)."""
        lengths = np.linalg.norm(model - self.points, axis=1)
        away = lengths > 0
        weights = 1 / lengths[away]
        pull = max(float(np.linalg.norm(self.gradient(model))), np.finfo(np.float64).tiny)
        held = min(1.0, float((~away).mean()) / pull)
        return np.asarray(held * model + (1 - held) * (weights @ self.points[away]) / weights.sum())

    def excess(self, model: Vector) -> float:
        """Norm of the shortest subgradient: a point at x takes off up to its share of the others' pull."""
        share = float((model == self.points).all(axis=1).mean())
        return max(0.0, float(np.linalg.norm(self.gradient(model))) - share)


def draw_points(settings: Median, seed: int, client: int) -> Distances:
    """Client `client`'s points about a centre of its own."""
    generator = stream(seed, Purpose.PROBLEM, client)
    centre = settings.heterogeneity * generator.standard_normal(settings.dimension)
    return Distances(centre + settings.spread * generator.standard_normal((settings.samples, settings.dimension)))


def solve(pieces: Sequence[Distances]) -> Optimum:
    """The median of all clients' points together, of which all clients hold equally many.

    Convexity proves the gap: f(x) - f(x*) <= |g|·|x - x*| for any subgradient g at x, and averaging the triangle
    inequality over the points gives |x - x*| <= f(x) + f(x*) <= 2·f(x).
    """
    together = Distances(np.concatenate([piece.points for piece in pieces]))
    minimiser = _median(together)
    minimum = float(together.losses(minimiser[None])[0])
    return Optimum(minimiser, minimum, 2 * minimum * together.excess(minimiser))


def _median(distances: Distances) -> Floats:
    """One of the points where the median is one of them; otherwise f is smooth at the median, and Newton finds it."""
    model = distances.points.mean(axis=0)
    for _ in range(_WARM_UP):
        model = distances.weiszfeld_step(model)
    nearest = distances.points[np.linalg.norm(model - distances.points, axis=1).argmin()]
    if distances.excess(nearest) == 0:
        return np.asarray(nearest)
    return minimise(Smooth(distances.gradient, distances.newton_step), model, _TOLERANCE, "problem median")


def median_problem(settings: Median, clients: int, local_steps: int, seed: int) -> DrawnProblem:
    """The problem of an experiment."""
    sizes = Sizes(settings.dimension, clients, settings.samples, settings.batch_size, local_steps, settings.start_norm)
    return DrawnProblem(sizes, seed, partial(draw_points, settings, seed), solve)
