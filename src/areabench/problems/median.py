"""The geometric median of drawn points, whose distance is not smooth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.problems.base import ClientData, Problem, ProblemSettings
from areabench.problems.optimum import Optimum, minimise
from areabench.problems.subgradients import DrawnProblem, Floats
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, LARGEST_SIZE, SMALLEST
from areabench.threads import limited_threads

_TOLERANCE = 1e-12  # norm of the gradient at the median, where unit vectors cancel
_WARM_UP = 200  # Weiszfeld steps before Newton's method: cheap, and they never increase f


@dataclass(frozen=True, kw_only=True)
class Median(ProblemSettings):
    """Geometric median f_i(x) = mean_j |x - a_ij| in float64: convex, 1-Lipschitz, not smooth, minimiser known."""

    takes_data = False
    computes_lanes = True
    has_accuracy = False

    name: str = "median"
    dimension: int = key("length of x", 10, minimum=2, maximum=LARGEST_SIZE)
    samples: int = key("points a_ij of each client", 50, unit="samples", minimum=3, maximum=LARGEST_SIZE)
    heterogeneity: float = key(
        "standard deviation of the entries of each client's centre", 1.0, minimum=0, maximum=LARGEST
    )
    spread: float = key(
        "standard deviation of the entries of a_ij about that centre", 1.0, minimum=SMALLEST, maximum=LARGEST
    )
    batch_size: int = key("mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key("norm of the starting point, in a random direction", 5.0, minimum=0, maximum=LARGEST)

    @property
    def wants_minimiser(self) -> bool:
        """Its distance is recorded."""
        return True

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        return DrawnProblem(self, clients, local_steps, seed, solve_median)

    def draw(self, generator: np.random.Generator) -> MeanDistance:
        """The points of a client around its own centre, from its stream."""
        centre = self.heterogeneity * generator.standard_normal(self.dimension)
        return MeanDistance(centre + self.spread * generator.standard_normal((self.samples, self.dimension)))


@dataclass(frozen=True)
class MeanDistance:
    """One client's function, the mean distance to its points, shape (samples, d)."""

    points: Floats

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d)."""
        return np.array([np.linalg.norm(model - self.points, axis=1).mean() for model in models], dtype=np.float64)

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """The mean over the samples `rows` of the unit vectors away from them; 0 where the model is on a point."""
        offsets = model[..., None, :] - self.points[rows]
        lengths = np.linalg.norm(offsets, axis=-1)
        return np.asarray((offsets / np.where(lengths > 0, lengths, 1.0)[..., None]).mean(axis=-2))

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
        """The mean of the other points, weighted by inverse distances; points at x hold it back (Vardi and Zhang)."""
        lengths = np.linalg.norm(model - self.points, axis=1)
        away = lengths > 0
        weights = 1 / lengths[away]
        pull = max(float(np.linalg.norm(self.gradient(model))), np.finfo(np.float64).tiny)
        held = min(1.0, float((~away).mean()) / pull)
        return np.asarray(held * model + (1 - held) * (weights @ self.points[away]) / weights.sum())

    def excess(self, model: Vector) -> float:
        """Norm of the shortest subgradient at x: points at x reduce it by up to their share of all points."""
        share = float((model == self.points).all(axis=1).mean())
        return max(0.0, float(np.linalg.norm(self.gradient(model))) - share)


@limited_threads()
def solve_median(functions: Sequence[MeanDistance]) -> Optimum:
    """The median of all clients' points together: one of the points, or else a point where f is smooth.

    Convexity proves the gap: f(x) - f(x*) <= |g|·|x - x*| for any subgradient g at x, and averaging the triangle
    inequality over the points gives |x - x*| <= f(x) + f(x*) <= 2·f(x). All clients hold the same number of points.
    """
    together = MeanDistance(np.concatenate([function.points for function in functions]))
    model = together.points.mean(axis=0)
    for _ in range(_WARM_UP):
        model = together.weiszfeld_step(model)
    nearest = np.asarray(together.points[np.linalg.norm(model - together.points, axis=1).argmin()])
    if together.excess(nearest) == 0:
        minimiser = nearest
    else:
        minimiser = minimise(together.gradient, together.newton_step, model, _TOLERANCE, "problem median")
    minimum = float(together.losses(minimiser[None])[0])
    return Optimum(minimiser, minimum, 2 * minimum * together.excess(minimiser))
