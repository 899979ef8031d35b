"""Multiclass hinge loss of Crammer and Singer, a Lipschitz function with kinks, on the data sets.

The model is W, shape (classes, features), flattened. A sample x of class y costs max_c (1[c != y] + w_c'x) - w_y'x.
Client i descends f_i = n·(s_i/S)·(mean cost of its samples), so that f = (1/n)·sum f_i is the mean cost of all samples
that clients hold, which is also the recorded loss. There is no regulariser: it would not be Lipschitz.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.datasets import Dataset
from areabench.problem_settings import Hinge
from areabench.problems.base import Metrics, Vector
from areabench.problems.minibatches import Minibatches, client_weights
from areabench.problems.optimum import Optimum
from areabench.problems.subgradient import FLOAT, Floats, LocalSubgradient
from areabench.streams import Purpose, stream

_ROWS_AT_ONCE = 2000  # samples an evaluation converts at a time: 12.5 MB for MNIST


class HingeLoss:
    """The cost of training samples, by their row numbers."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self.shape: tuple[int, int] = (data.classes, data.train_features.shape[1])
        self._identity = np.eye(data.classes)

    def inputs(self, rows: NDArray[np.int64]) -> Floats:
        """The samples as the model sees them, shape (rows, features)."""
        return np.asarray(self._data.train_features[rows].astype(FLOAT) * self._data.scale)

    def labels(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Their classes."""
        return self._data.train_labels[rows]

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """mean_j (e_c - e_y)x_j' over the samples `rows`, c the class that costs most; of equals the first."""
        inputs, labels = self.inputs(rows), self.labels(rows)
        costliest = with_margin(inputs @ model.reshape(self.shape).T, labels).argmax(axis=1)
        factors = (self._identity[costliest] - self._identity[labels]) / len(rows)
        return np.asarray(factors.T @ inputs).reshape(-1)


def with_margin(scores: Floats, labels: NDArray[np.int64]) -> Floats:
    """Scores of shape (samples, classes), plus 1 for the classes that are wrong; the right one's stays to the bit."""
    margins, samples = scores + 1.0, np.arange(len(labels))
    margins[samples, labels] = scores[samples, labels]
    return margins


class HingeProblem:
    """The global objective over a data set that is split over the clients.

    In float64, unlike logistic regression: theory bounds f - f*, which float32 would lose where it is small.
    """

    def __init__(
        self, settings: Hinge, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        self.settings, self.data, self.parts = settings, data, parts
        self.local_steps, self.seed = local_steps, seed
        self.loss = HingeLoss(data)
        self._weights = client_weights(parts, "exact")

    @property
    def dimension(self) -> int:
        """Number of parameters: classes × features."""
        return self.loss.shape[0] * self.loss.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64."""
        return FLOAT

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """The rows that clients hold, in order."""
        return np.sort(np.concatenate(self.parts))

    @cached_property
    def optimum(self) -> Optimum:
        """One of the minimisers, and the minimum: exact where small, else estimated, see `hinge_optimum`."""
        from areabench.problems.hinge_optimum import solve  # loads scipy; no client needs it

        return solve(self.loss, self.held)

    @cached_property
    def B(self) -> float:
        """A Lipschitz constant of every f_i: n·(s_i/S)·sqrt(2)·mean_j |x_j|, as |(e_c - e_y)x'| = sqrt(2)·|x|."""
        return max(weight * sqrt(2) * float(lengths.mean()) for weight, lengths in self._lengths())

    @cached_property
    def sigma(self) -> float:
        """Subgradient noise: b draws with replacement divide the variance of one, at most its mean square, by b."""
        root = sqrt(2 / self.settings.batch_size)
        return max(weight * root * sqrt((lengths**2).mean()) for weight, lengths in self._lengths())

    def _lengths(self) -> list[tuple[float, Floats]]:
        """The weight of each client, and |x_j| of its samples."""
        lengths = [np.linalg.norm(self.loss.inputs(rows), axis=1) for rows in self.parts]
        return list(zip(self._weights, lengths, strict=True))

    def start(self) -> Vector:
        """W with independent entries, uniform on (-width, width)."""
        width = self.settings.start_width
        return stream(self.seed, Purpose.START).uniform(-width, width, self.dimension)

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        batches = Minibatches(self.seed, client, self.parts[client], self.local_steps, self.settings.batch_size)
        return LocalSubgradient(self.loss, batches, self._weights[client])

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss over all samples held, where asked for, and accuracy (%) over all test samples.

        There is no distance to the minimiser, which is never unique: adding one vector to all w_c changes nothing.
        """
        count = len(models)
        loss, gap, accuracy = np.full(count, np.nan), np.full(count, np.nan), np.empty(count)
        with np.errstate(over="ignore", invalid="ignore"):  # a model that diverged has no finite loss
            for number, model in enumerate(models):
                weights = model.reshape(self.loss.shape)
                accuracy[number] = 100.0 * self._test_hits(weights) / len(self.data.test_labels)
                if with_loss:
                    loss[number], gap[number] = self._train_loss(weights)
        return Metrics(loss, accuracy, np.full(count, np.nan), gap)

    def _train_loss(self, weights: Floats) -> tuple[float, float]:
        """Loss and score gap of a model of shape (classes, features)."""
        total, gap = 0.0, 0.0
        for first in range(0, len(self.held), _ROWS_AT_ONCE):
            rows = self.held[first : first + _ROWS_AT_ONCE]
            scores, labels = self.loss.inputs(rows) @ weights.T, self.loss.labels(rows)
            right = scores[np.arange(len(labels)), labels]
            total += float((with_margin(scores, labels).max(axis=1) - right).sum())
            gap = max(gap, float((scores.max(axis=1) - right).max()))
        return total / len(self.held), gap

    def _test_hits(self, weights: Floats) -> int:
        """How often the right class scores highest; of equal scores the first class counts."""
        data, hits = self.data, 0
        for first in range(0, len(data.test_labels), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            scores = (data.test_features[rows].astype(FLOAT) * data.scale) @ weights.T
            hits += int((scores.argmax(axis=1) == data.test_labels[rows]).sum())
        return hits
