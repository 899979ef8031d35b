"""Linear regression on data, in float64: squared, Huber's or absolute error of a prediction w'a + c.

The model is x = (w, c), the intercept last. Client i descends weight_i·f_i with f_i(x) = mean loss of its samples +
(nu/2)·|x|² and weight_i = s_i/S (`share`) or n·s_i/S (`exact`). A class, where the data have classes, is its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64, Vector, each_times, times_each
from areabench.problems.base import ClientData, Metrics, Problem, ProblemSettings
from areabench.problems.datasets import Dataset
from areabench.problems.minibatches import DataProblem
from areabench.problems.subgradients import Floats, LocalSubgradient
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, SMALLEST


@dataclass(frozen=True, kw_only=True)
class Regression(ProblemSettings):
    """Linear regression with an intercept on data, in float64: least squares, Huber's loss or least absolute errors."""

    takes_targets = True
    computes_lanes = True
    has_accuracy = False

    name: str = "regression"
    loss: Literal["squared", "huber", "absolute"] = key(
        "of an error r: r²/2; or |r|; or with `huber` r²/2 up to |r| = `huber_width`, and linear beyond", "squared"
    )
    huber_width: float = key("where Huber's loss becomes linear", 1.0, minimum=SMALLEST, maximum=LARGEST)
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key("as for `logistic`", "exact")
    start_width: float = key("x starts uniform on (-width, width)", 0.0, minimum=0, maximum=LARGEST)

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        assert held is not None
        return RegressionProblem(self, held.data, held.parts, local_steps, seed)


_ROWS_AT_ONCE = 4000  # samples an evaluation converts at a time


class RegressionProblem(DataProblem):
    """The global objective over a data set that is split over the clients."""

    dtype = FLOAT64

    def __init__(
        self, settings: Regression, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        super().__init__(data, parts, local_steps, seed, settings.batch_size, settings.weighting)
        self.settings = settings
        self.dimension = data.train_features.shape[1] + 1

    def start(self) -> Vector:
        """Independent entries, uniform on (-width, width)."""
        return self.draw_start(self.settings.start_width)

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        return LocalSubgradient(self, self.batches(client), self.weights[client])

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """A subgradient of the mean over the samples `rows`, with the regulariser."""
        inputs = self.data.inputs(rows, FLOAT64)
        errors = times_each(inputs, model[..., :-1]) + model[..., -1:] - self.data.train_labels[rows]
        slopes = self._slopes(errors) / len(rows)
        gradient = np.concatenate([each_times(slopes, inputs), slopes.sum(axis=-1, keepdims=True)], axis=-1)
        return np.asarray(gradient + self.settings.regularisation * model)

    def _slopes(self, errors: Floats) -> Floats:
        """The derivative of the loss at each error; 0 at the kink of the absolute value."""
        match self.settings.loss:
            case "squared":
                return errors
            case "huber":
                return np.clip(errors, -self.settings.huber_width, self.settings.huber_width)
            case "absolute":
                return np.sign(errors)

    def _losses(self, errors: Floats) -> Floats:
        """The loss of each error: ½r², |r|, or width·|r| - width²/2 where |r| exceeds Huber's width, else ½r²."""
        match self.settings.loss:
            case "squared":
                return np.asarray(0.5 * errors**2)
            case "huber":
                slopes = np.abs(self._slopes(errors))
                return np.asarray(slopes * (np.abs(errors) - 0.5 * slopes))
            case "absolute":
                return np.abs(errors)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss with regulariser over all training samples, if asked for; there is no accuracy."""
        total = np.full(len(models), 0.0 if with_loss else np.nan)
        if not models or not with_loss:
            return Metrics.of(total)
        points = np.asarray(models, dtype=FLOAT64)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            for inputs, targets in self.data.chunks("train", FLOAT64, _ROWS_AT_ONCE):
                errors = points[:, :-1] @ inputs.T + points[:, -1:] - targets
                total += self._losses(errors).sum(axis=1)
            regulariser = 0.5 * self.settings.regularisation * np.einsum("md,md->m", points, points)
        return Metrics.of(total / len(self.data.train_labels) + regulariser)
