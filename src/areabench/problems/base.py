"""What a problem is: a starting point, local descent, and an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector


@dataclass(frozen=True)
class Metrics:
    """Quality of a sequence of models, one entry per model; NaN where a problem does not define it."""

    train_loss: NDArray[np.float64]
    test_accuracy: NDArray[np.float64]  # percent
    squared_distance: NDArray[np.float64]  # to the minimiser

    @classmethod
    def of(
        cls,
        train_loss: Sequence[float] | NDArray[np.float64],
        test_accuracy: Sequence[float] | NDArray[np.float64] | None = None,
        squared_distance: Sequence[float] | NDArray[np.float64] | None = None,
    ) -> Metrics:
        """The metrics that a problem defines; the others are NaN."""
        given = (train_loss, test_accuracy, squared_distance)
        undefined = np.full(len(train_loss), np.nan)
        return cls(*(undefined if each is None else np.asarray(each, dtype=np.float64) for each in given))


class LocalProblem(Protocol):
    """One client's objective. It owns the client's sample stream, of which each local step takes one mini-batch."""

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """The model after M local steps, or after `steps`; a new array, `model` is not changed."""
        ...

    def gradient(self, model: Vector) -> Vector:
        """The stochastic gradient of what the client descends, on its next mini-batch; a new array like `model`."""
        ...

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws, without computing them."""
        ...


class Problem(Protocol):
    """The global objective and its parts."""

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of every model and message."""
        ...

    def start(self) -> Vector:
        """The starting point x_{s,0}, drawn from the experiment's seed."""
        ...

    def local(self, client: int) -> LocalProblem:
        """Client `client`'s objective, at its first round."""
        ...

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss over all training data (NaN unless `with_loss`), accuracy over test data, distance to the minimiser."""
        ...
