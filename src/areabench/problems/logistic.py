"""l2-regularised multinomial logistic regression, the paper's section 5, in float32.

The model is W, shape (classes, features), flattened. Client i descends weight_i·f_i with
f_i(W) = mean cross-entropy of its samples + (nu/2)·|W|² and weight_i = s_i/S (`share`) or n·s_i/S (`exact`).
The printed formula lacks the minus sign in front of the log-likelihood; this is the usual loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from areabench.datasets import Dataset
from areabench.problem_settings import Logistic
from areabench.problems.base import Metrics, Vector
from areabench.problems.minibatches import Minibatches, client_weights
from areabench.problems.optimum import Optimum
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.problems.logistic_lanes import LaneWorkspace, LogisticLanes
    from areabench.problems.logistic_optimum import LogisticConstants

FLOAT = np.dtype(np.float32)
_ROWS_AT_ONCE = 4000  # images an evaluation converts at a time: 12.5 MB of float32 for MNIST
_COLUMNS_AT_ONCE = 640  # model rows (classes × models) an evaluation multiplies at a time


class Workspace:
    """The buffers of one mini-batch gradient; shared by all clients of a process, which compute in turn."""

    def __init__(self, batch_size: int, features: int, classes: int) -> None:
        self.raw = np.empty((batch_size, features), dtype=np.uint8)
        self.inputs = np.empty((batch_size, features), dtype=FLOAT)
        self.scores = np.empty((classes, batch_size), dtype=FLOAT)
        self.column = np.empty((1, batch_size), dtype=FLOAT)
        self.spread = np.empty((classes, batch_size), dtype=FLOAT)
        self.gradient = np.empty((classes, features), dtype=FLOAT)
        self.labels = np.empty(batch_size, dtype=np.int64)
        self.identity = np.eye(classes, dtype=FLOAT)
        self.one_hot = np.empty((classes, batch_size), dtype=FLOAT)

    def load(self, data: Dataset, rows: NDArray[np.int64]) -> None:
        """Gather the mini-batch; the features stay unscaled, the small factors are scaled instead."""
        data.train_features.take(rows, axis=0, out=self.raw, mode="clip")
        np.copyto(self.inputs, self.raw)
        data.train_labels.take(rows, out=self.labels, mode="clip")
        self.identity.take(self.labels, axis=1, out=self.one_hot, mode="clip")

    def softmax(self) -> None:
        """Turn the scores into class probabilities, in place, column by column."""
        scores, column, spread = self.scores, self.column, self.spread
        np.maximum.reduce(scores, axis=0, keepdims=True, out=column)
        np.copyto(spread, column)  # a ufunc that broadcasts allocates a buffer as large as the scores
        np.subtract(scores, spread, out=scores)
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=0, keepdims=True, out=column)
        np.copyto(spread, column)
        np.divide(scores, spread, out=scores)


class LogisticProblem:
    """The global objective over a data set that is split over the clients."""

    def __init__(
        self, settings: Logistic, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        self.settings, self.data, self.parts = settings, data, parts
        self.local_steps, self.seed = local_steps, seed
        self.shape: tuple[int, int] = (data.classes, data.train_features.shape[1])
        self.workspace = Workspace(settings.batch_size, self.shape[1], self.shape[0])
        self._lane_workspace: LaneWorkspace | None = None
        self._weights = client_weights(parts, settings.weighting)

    @property
    def dimension(self) -> int:
        """Number of parameters: classes × features."""
        return self.shape[0] * self.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return FLOAT

    def start(self) -> Vector:
        """W with independent entries, uniform on (-width, width)."""
        width = self.settings.start_width
        generator = stream(self.seed, Purpose.START)
        return generator.uniform(-width, width, self.dimension).astype(FLOAT)

    def weight(self, client: int) -> float:
        """What multiplies client `client`'s objective."""
        return self._weights[client]

    @cached_property
    def _constants(self) -> LogisticConstants:
        from areabench.problems.logistic_optimum import LogisticConstants  # loads scipy; no client needs it

        return LogisticConstants(self)

    @property
    def mu(self) -> float:
        """Strong convexity of every weight_i·f_i."""
        return self._constants.mu()

    @cached_property
    def L(self) -> float:
        """Smoothness of every weight_i·f_i."""
        return self._constants.L()

    @cached_property
    def sigma(self) -> float:
        """Gradient noise: a bound for every W."""
        return self._constants.sigma()

    @cached_property
    def zeta(self) -> float:
        """How far the local minimisers lie from the global one at most."""
        return self._constants.zeta(self.optimum.minimiser)

    @cached_property
    def optimum(self) -> Optimum:
        """The minimiser and the minimum of the recorded loss."""
        return self._constants.optimum()

    def local(self, client: int) -> LocalLogistic:
        """Client `client`'s objective, at its first round."""
        batches = Minibatches(self.seed, client, self.parts[client], self.local_steps, self.settings.batch_size)
        return LocalLogistic(self, batches, self.weight(client))

    def lanes(self, client: int, lanes: int) -> LogisticLanes:
        """Client `client`'s objective for so many models at once, at its first round."""
        from areabench.problems.logistic_lanes import LaneWorkspace, LogisticLanes  # loads scipy; no rank needs it

        if self._lane_workspace is None or len(self._lane_workspace.scores) != lanes:
            self._lane_workspace = LaneWorkspace(lanes, self.settings.batch_size, self.shape)
        batches = Minibatches(self.seed, client, self.parts[client], self.local_steps, self.settings.batch_size)
        return LogisticLanes(self, self._lane_workspace, batches, self.weight(client))

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss with regulariser over all training images, where asked for, and accuracy (%) over all test images."""
        count = len(models)
        loss, gap, correct = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count)
        per_pass = max(1, _COLUMNS_AT_ONCE // self.shape[0])
        for first in range(0, count, per_pass):
            chosen = slice(first, first + per_pass)
            weights = np.stack([model.reshape(self.shape) for model in models[chosen]])
            if with_loss:
                loss[chosen], gap[chosen] = self._train_loss(weights)
            correct[chosen] = self._test_hits(weights)
        accuracy = 100.0 * correct / len(self.data.test_labels)
        return Metrics(loss, accuracy, self._squared_distance(models), gap)

    def _squared_distance(self, models: Sequence[Vector]) -> NDArray[np.float64]:
        """To the minimiser, where the settings ask for it."""
        if not self.settings.minimiser:
            return np.full(len(models), np.nan)
        minimiser = self.optimum.minimiser
        offsets = (model - minimiser for model in models)  # one at a time: they are float64
        return np.array([offset @ offset for offset in offsets], dtype=np.float64)

    def _scores(self, weights: NDArray[Any], features: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Scores of many models on some images, shape (models, classes, images)."""
        inputs = features.astype(FLOAT) * FLOAT.type(self.data.scale)
        flat = weights.reshape(-1, self.shape[1]) @ inputs.T
        scores: NDArray[np.float32] = flat.reshape(len(weights), self.shape[0], len(features))
        return scores

    def _train_loss(self, weights: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and score gap of each model."""
        data, total, gap = self.data, np.zeros(len(weights)), np.zeros(len(weights))
        for first in range(0, len(data.train_labels), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            scores, labels = self._scores(weights, data.train_features[rows]), data.train_labels[rows]
            highest, right = scores.max(axis=1), scores[:, labels, np.arange(len(labels))]
            gap = np.maximum(gap, (highest - right).max(axis=1))
            total -= right.sum(axis=1, dtype=np.float64)
            np.exp(np.subtract(scores, highest[:, None, :], out=scores), out=scores)
            total += (highest + np.log(scores.sum(axis=1))).sum(axis=1, dtype=np.float64)
        squares = np.einsum("mcf,mcf->m", weights, weights, dtype=np.float64)
        total += 0.5 * self.settings.regularisation * len(data.train_labels) * squares
        return total / len(data.train_labels), gap

    def _test_hits(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        data, hits = self.data, np.zeros(len(weights))
        for first in range(0, len(data.test_labels), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            scores, labels = self._scores(weights, data.test_features[rows]), data.test_labels[rows]
            hits += _hits(scores, labels)
        return hits


def _hits(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each model scores the right class highest; of equal scores the first class counts.

    The same as with argmax along the classes, which is slow across memory; scores of shape (models, classes, images)
    are spoilt.
    """
    images = np.arange(len(labels))
    right = scores[:, labels, images]
    scores[:, labels, images] = -np.inf
    others = scores.max(axis=1)
    hits = right > others
    for model, image in np.argwhere(right == others):
        hits[model, image] = labels[image] < scores[model, :, image].argmax()
    return np.asarray(hits.sum(axis=1))


class LocalLogistic:
    """One client's share of the objective."""

    def __init__(self, problem: LogisticProblem, batches: Minibatches, weight: float) -> None:
        self._problem, self._batches, self._weight = problem, batches, weight

    def descend(self, model: Vector, step_size: float) -> Vector:
        """M steps W <- W - alpha·weight·(mini-batch gradient + nu·W); a new array."""
        before = model.reshape(self._problem.shape)
        after = np.empty_like(before)
        for rows in self._batches.next_round():
            self._step(before, after, rows, step_size * self._weight)
            before = after
        return after.reshape(-1)

    def skip(self, rounds: int) -> None:
        """Draw what so many rounds draw."""
        self._batches.skip(rounds)

    def _step(self, before: NDArray[Any], after: NDArray[Any], rows: NDArray[np.int64], rate: float) -> None:
        """One step, from one array into another, which may be the same."""
        problem, work = self._problem, self._problem.workspace
        scale = problem.data.scale
        work.load(problem.data, rows)
        np.dot(before, work.inputs.T, out=work.scores)
        np.multiply(work.scores, FLOAT.type(scale), out=work.scores)
        work.softmax()
        np.subtract(work.scores, work.one_hot, out=work.scores)
        np.multiply(work.scores, FLOAT.type(rate * scale / len(rows)), out=work.scores)
        np.dot(work.scores, work.inputs, out=work.gradient)
        np.multiply(before, FLOAT.type(1 - rate * problem.settings.regularisation), out=after)
        np.subtract(after, work.gradient, out=after)
