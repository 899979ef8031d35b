"""Convex Lipschitz functions that need not be smooth, in float64: local steps, and functions that are drawn.

Client i's function depends on the seed and on i alone. A client draws only its own function; an evaluation, and the
constants of the paper's assumptions, need all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64, Stack, Vector
from areabench.problems.base import Metrics
from areabench.problems.minibatches import Minibatches
from areabench.problems.optimum import Optimum
from areabench.streams import Purpose, stream

Floats = NDArray[np.float64]


class Subgradient(Protocol):
    """A function that is a mean over samples."""

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """A subgradient of the mean over the samples `rows`, shape (d,); of each model of a stack."""
        ...


class LocalSubgradient:
    """One client's function, seen through mini-batches of its samples."""

    def __init__(self, function: Subgradient, batches: Minibatches, weight: float = 1.0) -> None:
        self._function = function
        self._batches = batches
        self._weight = weight

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps x <- x - alpha·weight·(subgradient of a mini-batch); a new array."""
        batches = self._batches.next_batches(steps)
        return self._descend(np.array(model, dtype=FLOAT64), step_size, batches)

    def descend_lanes(self, models: Sequence[Stack], step_sizes: Floats) -> Stack:
        """M steps of each lane; a new array."""
        return self._descend(np.concatenate(models), step_sizes[:, None], self._batches.next_round())

    def _descend(self, result: Vector | Stack, step_size: Any, batches: NDArray[np.int64]) -> Vector | Stack:
        """Change a model, or all models of a stack."""
        for rows in batches:
            result -= step_size * self._weight * self._function.subgradient(result, rows)
        return result

    def gradient(self, model: Vector) -> Vector:
        """weight·(subgradient of the next mini-batch); a new array."""
        return self._weight * self._function.subgradient(model, self._batches.next_batches(1)[0])

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self._batches.skip_batches(steps)


# ---------------------------------------------------------------------------------------------------- drawn samples


class DrawnFunction(Subgradient, Protocol):
    """One client's function f_i(x) = mean_j loss_ij(x) over the samples that it drew."""

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d), result of shape (models,)."""
        ...

    def lipschitz(self) -> float:
        """A Lipschitz constant of f_i."""
        ...

    def mean_square(self) -> float:
        """A bound, for every x, on mean_j |d_ij|² over the subgradients d_ij that single samples give."""
        ...


class DrawnProblem:
    """f = mean f_i; `solve` gives the optimum of all functions together.

    `settings` have dimension, samples, batch_size, start_norm, and draw(generator), which gives a client's function.
    """

    dtype = FLOAT64  # float32 cannot resolve the excess f - f* of a good model

    def __init__(
        self,
        settings: Any,
        clients: int,
        local_steps: int,
        seed: int,
        solve: Callable[[Sequence[Any]], Optimum],
    ) -> None:
        self.settings = settings
        self.clients = clients
        self.local_steps = local_steps
        self.seed = seed
        self._solve = solve
        self.dimension: int = settings.dimension

    def draw(self, client: int) -> DrawnFunction:
        """Client `client`'s function."""
        return self.settings.draw(stream(self.seed, Purpose.PROBLEM, client))  # type: ignore[no-any-return]

    @cached_property
    def functions(self) -> list[DrawnFunction]:
        """The functions of all clients."""
        return [self.draw(client) for client in range(self.clients)]

    @cached_property
    def optimum(self) -> Optimum:
        """The minimiser, unique with probability one where there are enough samples, and the minimum."""
        return self._solve(self.functions)

    @cached_property
    def B(self) -> float:
        """A Lipschitz constant of every f_i."""
        return max(function.lipschitz() for function in self.functions)

    @cached_property
    def sigma(self) -> float:
        """Subgradient noise: b draws with replacement divide the variance of one, at most its mean square, by b."""
        return sqrt(max(function.mean_square() for function in self.functions) / self.settings.batch_size)

    def start(self) -> Vector:
        """A point of norm `start_norm` in a random direction; the samples lie about the origin."""
        direction = stream(self.seed, Purpose.START).standard_normal(self.dimension)
        return np.asarray(self.settings.start_norm * direction / np.linalg.norm(direction))

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        rows = np.arange(self.settings.samples)
        batches = Minibatches(self.seed, client, rows, self.local_steps, self.settings.batch_size)
        return LocalSubgradient(self.draw(client), batches)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """f, if asked for, and the squared distance to the minimiser; there is no accuracy."""
        points = np.asarray(models, dtype=FLOAT64).reshape(len(models), self.dimension)
        loss = np.full(len(points), np.nan)
        offsets = points - self.optimum.minimiser
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            if with_loss:
                loss = np.mean([function.losses(points) for function in self.functions], axis=0)
            return Metrics.of(loss, squared_distance=np.einsum("md,md->m", offsets, offsets))
