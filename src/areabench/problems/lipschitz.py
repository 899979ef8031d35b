"""Convex Lipschitz functions that need not be smooth: subgradient steps, and problems whose clients draw their samples.

All in float64. Client i's function depends on the seed and on i alone. A client draws only its own; an evaluation, and
the constants of the paper's assumptions, need all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.problems.base import Metrics, Vector
from areabench.problems.minibatches import Minibatches
from areabench.problems.optimum import Optimum
from areabench.streams import Purpose, stream

FLOAT = np.dtype(np.float64)
Floats = NDArray[np.float64]


class Subgradient(Protocol):
    """A function that is a mean over samples."""

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """A subgradient of the mean over the samples `rows`, shape (d,)."""
        ...


class LocalSubgradient:
    """One client's function, seen through mini-batches of its samples."""

    def __init__(self, function: Subgradient, batches: Minibatches, weight: float = 1.0) -> None:
        self._function, self._batches, self._weight = function, batches, weight

    def descend(self, model: Vector, step_size: float) -> Vector:
        """M steps x <- x - alpha·weight·(subgradient of a mini-batch); a new array."""
        result = np.array(model, dtype=FLOAT)
        for rows in self._batches.next_round():
            result -= step_size * self._weight * self._function.subgradient(result, rows)
        return result

    def skip(self, rounds: int) -> None:
        """Draw what so many rounds draw."""
        self._batches.skip(rounds)


# ---------------------------------------------------------------------------------------------------- drawn samples


class Piece(Subgradient, Protocol):
    """One client's function f_i(x) = mean_j loss_ij(x) over samples it drew."""

    def losses(self, models: Floats) -> Floats:
        """f_i of each model; models of shape (models, d), result of shape (models,)."""
        ...

    def lipschitz(self) -> float:
        """A Lipschitz constant of f_i."""
        ...

    def mean_square(self) -> float:
        """A bound, for every x, on mean_j |d_ij|² over the subgradients d_ij that single samples give."""
        ...


@dataclass(frozen=True)
class Sizes:
    """The numbers that a problem of drawn samples has whatever its loss."""

    dimension: int
    clients: int
    samples: int  # of each client
    batch_size: int
    local_steps: int
    start_norm: float


class DrawnProblem:
    """f = mean f_i; `draw` gives client i's function, `solve` the optimum of all together."""

    def __init__(
        self, sizes: Sizes, seed: int, draw: Callable[[int], Piece], solve: Callable[[Sequence[Any]], Optimum]
    ) -> None:
        self.sizes, self.seed = sizes, seed
        self.draw, self._solve = draw, solve

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        return self.sizes.dimension

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64: the excess f - f* of a good model would be lost in float32."""
        return FLOAT

    @cached_property
    def pieces(self) -> list[Piece]:
        """The functions of all clients."""
        return [self.draw(client) for client in range(self.sizes.clients)]

    @cached_property
    def optimum(self) -> Optimum:
        """The minimiser, unique with probability one where there are enough samples, and the minimum."""
        return self._solve(self.pieces)

    @cached_property
    def B(self) -> float:
        """A Lipschitz constant of every f_i."""
        return max(piece.lipschitz() for piece in self.pieces)

    @cached_property
    def sigma(self) -> float:
        """Subgradient noise: b draws with replacement divide the variance of one, at most its mean square, by b."""
        return sqrt(max(piece.mean_square() for piece in self.pieces) / self.sizes.batch_size)

    def start(self) -> Vector:
        """A point of norm `start_norm` in a random direction; the samples lie about the origin."""
        direction = stream(self.seed, Purpose.START).standard_normal(self.dimension)
        return np.asarray(self.sizes.start_norm * direction / np.linalg.norm(direction))

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        sizes = self.sizes
        batches = Minibatches(self.seed, client, np.arange(sizes.samples), sizes.local_steps, sizes.batch_size)
        return LocalSubgradient(self.draw(client), batches)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """f, where asked for, and the squared distance to the minimiser; there is no accuracy."""
        points = np.asarray(models, dtype=FLOAT).reshape(len(models), self.dimension)
        nothing = np.full(len(points), np.nan)
        offsets = points - self.optimum.minimiser
        with np.errstate(over="ignore", invalid="ignore"):  # a model that diverged has no finite loss
            loss = np.mean([piece.losses(points) for piece in self.pieces], axis=0) if with_loss else nothing
            return Metrics(loss, nothing, np.einsum("md,md->m", offsets, offsets), nothing)
