"""Random strongly convex quadratics with a known minimiser, in float64: f_i(x) = ½ (x-c_i)'H_i(x-c_i), f = mean f_i.

Client i's function depends on the seed and on i alone, so adding clients does not change the first ones. A process
draws only the functions that it needs; where `zeta` is given it draws all, to find the common factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.experiment.problem_records import Quadratic
from areabench.problems.base import Metrics
from areabench.problems.optimum import Optimum
from areabench.streams import Purpose, stream

FLOAT = np.dtype(np.float64)
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Bowl:
    """One client's function ½ (x-c)'H(x-c): H symmetric, shape (d, d), and c, shape (d,)."""

    hessian: Matrix
    centre: NDArray[np.float64]

    def loss(self, model: Vector) -> float:
        """The value at x."""
        offset = model - self.centre
        return 0.5 * float(offset @ self.hessian @ offset)

    def gradient(self, model: Vector) -> NDArray[np.float64]:
        """H(x-c)."""
        offset: NDArray[np.float64] = model - self.centre
        return self.hessian @ offset


def draw_bowl(settings: Quadratic, seed: int, client: int) -> Bowl:
    """Client `client`'s function; it has both extreme curvatures, in dimension 1 only the largest."""
    generator = stream(seed, Purpose.PROBLEM, client)
    centre = settings.heterogeneity * generator.standard_normal(settings.dimension)
    curvatures = _draw_curvatures(settings, generator)
    basis, _ = np.linalg.qr(generator.standard_normal((settings.dimension, settings.dimension)))
    hessian = (basis * curvatures) @ basis.T
    return Bowl(0.5 * (hessian + hessian.T), centre)


def _draw_curvatures(settings: Quadratic, generator: np.random.Generator) -> NDArray[np.float64]:
    low, high = settings.curvature_min, settings.curvature_max
    curvatures = generator.uniform(low, high, settings.dimension)
    curvatures[0], curvatures[-1] = low, high
    return curvatures


class QuadraticProblem:
    """The mean of the clients' quadratics."""

    dtype = FLOAT

    def __init__(self, settings: Quadratic, clients: int, local_steps: int, seed: int) -> None:
        self.settings, self.clients, self.dimension = settings, clients, settings.dimension
        self.local_steps, self.seed = local_steps, seed

    def bowl(self, client: int) -> Bowl:
        """Client `client`'s function."""
        bowl = draw_bowl(self.settings, self.seed, client)
        return bowl if self.settings.zeta is None else Bowl(bowl.hessian, self._factor * bowl.centre)

    @cached_property
    def _factor(self) -> float:
        """What the centres are multiplied by: x* is linear in them, so zeta grows as they do."""
        as_drawn = QuadraticProblem(replace(self.settings, zeta=None), self.clients, self.local_steps, self.seed)
        return self.settings.zeta / as_drawn.zeta if self.settings.zeta else 0.0

    @property
    def mu(self) -> float:
        """Strong convexity of every f_i: their smallest curvature."""
        return self.settings.curvature_min if self.dimension > 1 else self.L

    @property
    def L(self) -> float:
        """Smoothness of every f_i: their largest curvature."""
        return self.settings.curvature_max

    @property
    def sigma(self) -> float:
        """Gradient noise of Assumption 1: E|g - grad f_i|² = sigma²."""
        return self.settings.noise

    @cached_property
    def zeta(self) -> float:
        """The greatest distance of a local minimiser from the global one: max_i |x* - c_i|."""
        return max(float(np.linalg.norm(self.minimiser - self.bowl(i).centre)) for i in range(self.clients))

    @property
    def optimum(self) -> Optimum:
        """The minimiser and the minimum, exact up to rounding."""
        return Optimum(self.minimiser, self.minimum, gap=0.0)

    @cached_property
    def mean_hessian(self) -> Matrix:
        """The Hessian of f, shape (d, d)."""
        return np.asarray(sum(self.bowl(client).hessian for client in range(self.clients)) / self.clients)

    @cached_property
    def minimiser(self) -> NDArray[np.float64]:
        """Where f is least: the solution of (mean H_i) x = mean H_i c_i."""
        bowls = map(self.bowl, range(self.clients))
        pull = np.asarray(sum(bowl.hessian @ bowl.centre for bowl in bowls) / self.clients)
        return np.asarray(np.linalg.solve(self.mean_hessian, pull), dtype=FLOAT)

    @cached_property
    def minimum(self) -> float:
        """The least value of f; above 0 where the centres differ."""
        return sum(self.bowl(client).loss(self.minimiser) for client in range(self.clients)) / self.clients

    def start(self) -> Vector:
        """The minimiser plus `start_distance` in a random direction."""
        direction = stream(self.seed, Purpose.START).standard_normal(self.dimension)
        return self.minimiser + self.settings.start_distance * direction / np.linalg.norm(direction)

    def local(self, client: int) -> LocalQuadratic:
        """Client `client`'s objective, at its first round."""
        generator = stream(self.seed, Purpose.SAMPLES, client)
        return LocalQuadratic(self.bowl(client), generator, self.local_steps, self.settings.noise)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """f, if asked for, and the squared distance to the minimiser; there is no accuracy."""
        offsets = np.asarray(models, dtype=FLOAT).reshape(len(models), self.dimension) - self.minimiser
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            loss = self.minimum + 0.5 * np.einsum("md,md->m", offsets @ self.mean_hessian, offsets)
            squared_distance = np.einsum("md,md->m", offsets, offsets)
        nothing = np.full(len(models), np.nan)
        return Metrics(loss if with_loss else nothing, nothing, squared_distance, nothing)


class LocalQuadratic:
    """One client's function with noisy gradients."""

    def __init__(self, bowl: Bowl, generator: np.random.Generator, local_steps: int, noise: float) -> None:
        self._bowl, self._generator = bowl, generator
        self._local_steps = local_steps
        self._deviation = noise / sqrt(len(bowl.centre))  # of one entry, so that E|noise|² = sigma²

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps x <- x - alpha·(H(x-c) + noise); a new array."""
        result = np.array(model, dtype=FLOAT)
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected by the norm
            for noise in self._next_noise(self._local_steps if steps is None else steps):
                result -= step_size * (self._bowl.gradient(result) + noise)
        return result

    def gradient(self, model: Vector) -> Vector:
        """H(x-c) + noise; a new array."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._bowl.gradient(model) + self._next_noise(1)[0])

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        for done in range(0, steps, self._local_steps):  # the noise of a round at a time
            self._next_noise(min(self._local_steps, steps - done))

    def _next_noise(self, steps: int) -> Matrix:
        """The gradient noise of the next local steps, shape (steps, d)."""
        shape = (steps, len(self._bowl.centre))
        if self._deviation == 0:
            return np.zeros(shape)
        return self._deviation * self._generator.standard_normal(shape)
