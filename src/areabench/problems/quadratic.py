"""Random strongly convex quadratics with a known minimiser, in float64: f_i(x) = ½ (x-c_i)'H_i(x-c_i), f = mean f_i.

Client i's function depends on the seed and on i alone, so adding clients does not change the first ones, unless `zeta`
is given: its factor is common to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64, Stack, Vector, times_each
from areabench.errors import UserError
from areabench.problems.base import ClientData, Metrics, Problem, ProblemSettings
from areabench.problems.optimum import Optimum
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, LARGEST_SIZE, SMALLEST
from areabench.streams import Purpose, Streams, stream

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Quadratic(ProblemSettings):
    """Random quadratics f_i(x) = ½ (x-c_i)'H_i(x-c_i) in float64: strongly convex, minimiser known."""

    takes_data = False
    computes_lanes = True
    has_accuracy = False

    name: str = "quadratic"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    curvature_min: float = key("smallest eigenvalue mu of every H_i", 1.0, minimum=SMALLEST, maximum=LARGEST)
    curvature_max: float = key("largest eigenvalue L of every H_i", 10.0, minimum=SMALLEST, maximum=LARGEST)
    heterogeneity: float = key("standard deviation of the entries of the centres c_i", 1.0, minimum=0, maximum=LARGEST)
    zeta: float | None = key(
        "max_i |x* - c_i|, to which all centres are scaled; left out: as drawn",
        None,
        minimum=0,
        maximum=LARGEST,
    )
    noise: float = key("gradient noise sigma: E|g - grad f_i|² = sigma²", 0.0, minimum=0, maximum=LARGEST)
    start_distance: float = key("distance from the minimiser at the start", 1.0, minimum=0, maximum=LARGEST)

    def check(self, experiment: Experiment) -> None:
        """The curvatures are in order, and `zeta` can be reached."""
        clients = experiment.clients.count
        if self.curvature_max < self.curvature_min:
            raise UserError(
                f"problem.curvature_max: {self.curvature_max} is below curvature_min = {self.curvature_min}; swap them"
            )
        if self.zeta and (self.heterogeneity < SMALLEST or clients == 1):
            raise UserError(
                f"problem.zeta: {self.zeta} cannot be reached with clients.count = {clients} and heterogeneity = "
                f"{self.heterogeneity}, where all centres coincide; take two clients and a heterogeneity of at least "
                f"{SMALLEST:g}"
            )

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        return QuadraticProblem(self, clients, local_steps, seed)


Matrix = NDArray[np.float64]

_KEPT_BYTES = 2**28  # of all functions together, up to which they are kept
_RECORD_BYTES = 350  # of one function, besides its entries
_ENTRIES_AT_ONCE = 2**16  # of the functions that are drawn together: their matrices stay in the cache


@dataclass(frozen=True, slots=True)
class QuadraticFunction:
    """One client's function ½ (x-c)'H(x-c): H symmetric, shape (d, d), and c, shape (d,)."""

    hessian: Matrix
    centre: NDArray[np.float64]

    def loss(self, model: Vector) -> float:
        """The value at x."""
        offset = model - self.centre
        return 0.5 * float(offset @ self.hessian @ offset)

    def gradient(self, model: Vector) -> NDArray[np.float64]:
        """H(x-c), or that of each x of a stack."""
        offset: NDArray[np.float64] = model - self.centre
        if offset.ndim == 1:  # not by `times_each`: a call takes a twentieth of this step
            return self.hessian @ offset
        return times_each(self.hessian, offset)


class DrawnFunctions:
    """The functions of all clients as they are drawn: once where they take little memory, else each time."""

    def __init__(self, settings: Quadratic, clients: int, seed: int) -> None:
        self._settings = settings
        self._clients = clients
        self._streams = Streams(seed, Purpose.PROBLEM, clients)
        entries = settings.dimension * (settings.dimension + 1)
        self._at_once = max(1, _ENTRIES_AT_ONCE // entries)
        self._keeps = clients * (FLOAT64.itemsize * entries + _RECORD_BYTES) <= _KEPT_BYTES
        self._kept: list[QuadraticFunction] = []

    def __getitem__(self, client: int) -> QuadraticFunction:
        """One client's function."""
        return self._kept[client] if self._kept else self._draw(range(client, client + 1))[0]

    def __iter__(self) -> Iterator[QuadraticFunction]:
        """All functions in turn."""
        if self._keeps and not self._kept:
            self._kept = list(self._drawn())
        return iter(self._kept or self._drawn())

    def _drawn(self) -> Iterator[QuadraticFunction]:
        for first in range(0, self._clients, self._at_once):
            yield from self._draw(range(first, min(first + self._at_once, self._clients)))

    def _draw(self, clients: range) -> list[QuadraticFunction]:
        """The functions of some clients; each has both extreme curvatures, in dimension 1 only the largest."""
        settings = self._settings
        dimension = self._settings.dimension
        centres = []
        curvatures = np.empty((len(clients), 1, dimension))
        directions = np.empty((len(clients), dimension, dimension))
        for place, client in enumerate(clients):
            generator = self._streams.open(client)
            centres.append(settings.heterogeneity * generator.standard_normal(dimension))
            curvatures[place] = generator.uniform(settings.curvature_min, settings.curvature_max, dimension)
            generator.standard_normal(out=directions[place])
        curvatures[..., 0] = settings.curvature_min
        curvatures[..., -1] = settings.curvature_max
        bases, _ = np.linalg.qr(directions)
        hessians = (bases * curvatures) @ bases.swapaxes(1, 2)
        hessians = 0.5 * (hessians + hessians.swapaxes(1, 2))
        # Copies, because the rounding of some processors' BLAS depends on where an array begins.
        return [QuadraticFunction(hessian.copy(), centre) for hessian, centre in zip(hessians, centres, strict=True)]


class QuadraticProblem:
    """The mean of the clients' quadratics."""

    dtype = FLOAT64

    def __init__(
        self,
        settings: Quadratic,
        clients: int,
        local_steps: int,
        seed: int,
        drawn: DrawnFunctions | Sequence[QuadraticFunction] | None = None,
    ) -> None:
        """`drawn` are the clients' functions before `zeta` scales them, where they are known."""
        self.settings = settings
        self.clients = clients
        self.dimension = settings.dimension
        self.local_steps = local_steps
        self.seed = seed
        self._drawn = DrawnFunctions(settings, clients, seed) if drawn is None else drawn

    def function(self, client: int) -> QuadraticFunction:
        """Client `client`'s function."""
        return self._scaled(self._drawn[client])

    def functions(self) -> Iterator[QuadraticFunction]:
        """The functions of all clients."""
        return map(self._scaled, self._drawn)

    def _scaled(self, function: QuadraticFunction) -> QuadraticFunction:
        if self.settings.zeta is None:
            return function
        return QuadraticFunction(function.hessian, self._factor * function.centre)

    @cached_property
    def _factor(self) -> float:
        """What the centres are multiplied by: x* is linear in them, so zeta grows as they do."""
        settings = replace(self.settings, zeta=None)
        as_drawn = QuadraticProblem(settings, self.clients, self.local_steps, self.seed, self._drawn)
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
        return max(float(np.linalg.norm(self.minimiser - function.centre)) for function in self.functions())

    @property
    def optimum(self) -> Optimum:
        """The minimiser and the minimum, exact up to rounding."""
        return Optimum(self.minimiser, self.minimum, gap=0.0)

    @cached_property
    def _means(self) -> tuple[Matrix, NDArray[np.float64]]:
        """The means of H_i, shape (d, d), and of H_i c_i, shape (d,)."""
        hessian = np.zeros((self.dimension, self.dimension))
        pull = np.zeros(self.dimension)
        for function in self.functions():
            hessian += function.hessian
            pull += function.hessian @ function.centre
        return hessian / self.clients, pull / self.clients

    @property
    def mean_hessian(self) -> Matrix:
        """The Hessian of f, shape (d, d)."""
        return self._means[0]

    @cached_property
    def minimiser(self) -> NDArray[np.float64]:
        """Where f is least: the solution of (mean H_i) x = mean H_i c_i."""
        return np.asarray(np.linalg.solve(*self._means), dtype=FLOAT64)

    @cached_property
    def minimum(self) -> float:
        """The least value of f; above 0 where the centres differ."""
        return sum(function.loss(self.minimiser) for function in self.functions()) / self.clients

    def start(self) -> Vector:
        """The minimiser plus `start_distance` in a random direction."""
        direction = stream(self.seed, Purpose.START).standard_normal(self.dimension)
        return self.minimiser + self.settings.start_distance * direction / np.linalg.norm(direction)

    def local(self, client: int) -> LocalQuadratic:
        """Client `client`'s objective, at its first round."""
        return LocalQuadratic(self.function(client), self._noise.open(client), self.local_steps, self.settings.noise)

    @cached_property
    def _noise(self) -> Streams:
        return Streams(self.seed, Purpose.SAMPLES, self.clients)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """f, if asked for, and the squared distance to the minimiser; there is no accuracy."""
        offsets = np.asarray(models, dtype=FLOAT64).reshape(len(models), self.dimension) - self.minimiser
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            loss = self.minimum + 0.5 * np.einsum("md,md->m", offsets @ self.mean_hessian, offsets)
            squared_distance = np.einsum("md,md->m", offsets, offsets)
        if not with_loss:
            loss = np.full(len(models), np.nan)
        return Metrics.of(loss, squared_distance=squared_distance)


class LocalQuadratic:
    """One client's function with noisy gradients."""

    def __init__(
        self, function: QuadraticFunction, generator: np.random.Generator, local_steps: int, noise: float
    ) -> None:
        self._function = function
        self._generator = generator
        self._local_steps = local_steps
        self._deviation = noise / sqrt(len(function.centre))  # of one entry, so that E|noise|² = sigma²

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps x <- x - alpha·(H(x-c) + noise); a new array."""
        steps = self._local_steps if steps is None else steps
        return self._descend(np.array(model, dtype=FLOAT64), step_size, steps)

    def descend_lanes(self, models: Sequence[Stack], step_sizes: NDArray[np.float64]) -> Stack:
        """M steps of each lane, with the same noise; a new array."""
        return self._descend(np.concatenate(models), step_sizes[:, None], self._local_steps)

    def _descend(self, result: Vector | Stack, step_size: Any, steps: int) -> Vector | Stack:
        """Change a model, or all models of a stack."""
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected by the norm
            for noise in self._next_noise(steps):
                result -= step_size * (self._function.gradient(result) + noise)
        return result

    def gradient(self, model: Vector) -> Vector:
        """H(x-c) + noise; a new array."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._function.gradient(model) + self._next_noise(1)[0])

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        for done in range(0, steps, self._local_steps):  # the noise of a round at a time
            self._next_noise(min(self._local_steps, steps - done))

    def _next_noise(self, steps: int) -> Matrix:
        """The gradient noise of the next local steps, shape (steps, d)."""
        shape = (steps, len(self._function.centre))
        if self._deviation == 0:
            return np.zeros(shape)
        return self._deviation * self._generator.standard_normal(shape)
