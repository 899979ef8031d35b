"""l2-regularised multinomial logistic regression, the paper's section 5, in float32.

The model is W, shape (classes, features), flattened. Client i descends weight_i·f_i with
f_i(W) = mean cross-entropy of its samples + (nu/2)·|W|² and weight_i = s_i/S (`share`) or n·s_i/S (`exact`).
The printed formula lacks the minus sign in front of the log-likelihood; this is the usual loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT32, FLOAT64, Stack, Vector
from areabench.errors import UserError
from areabench.problems.base import ClientData, Metrics, Problem, ProblemSettings
from areabench.problems.datasets import Dataset, is_sparse
from areabench.problems.minibatches import DataProblem, Minibatches
from areabench.problems.optimum import Optimum
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment
    from areabench.problems.logistic_optimum import CrossEntropy


@dataclass(frozen=True, kw_only=True)
class Logistic(ProblemSettings):
    """l2-regularised multinomial logistic regression without bias, in float32, as in the paper."""

    takes_sparse = True
    computes_lanes = True
    entry_bytes = 4
    solved_quickly = False

    name: str = "logistic"
    regularisation: float = key("weight nu of (nu/2)·|W|²", 1e-3, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="images", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "client i, with s_i of all S samples, descends (s_i/S)·f_i with `share`, n·(s_i/S)·f_i with `exact`",
        "share",
    )
    start_width: float = key("W starts uniform on (-width, width)", 0.5, minimum=0, maximum=LARGEST)
    minimiser: bool = key("solve for the minimiser first, and record the squared distance to it", False)

    @property
    def not_convex_enough(self) -> str:
        """Without a regulariser."""
        return "" if self.regularisation else "problem.regularisation = 0: not strongly convex (Assumption 3)"

    @property
    def wants_minimiser(self) -> bool:
        """Where the key says so."""
        return self.minimiser

    def check(self, experiment: Experiment) -> None:
        """There is a minimiser if it is wanted."""
        if self.minimiser and self.regularisation == 0:
            raise UserError(
                "problem.minimiser: there may be none where problem.regularisation = 0; give a regularisation above 0"
            )

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        assert held is not None
        return LogisticProblem(self, held.data, held.parts, local_steps, seed)


_ROWS_AT_ONCE = 4000  # images an evaluation converts at a time: 12.5 MB of float32 for MNIST
_COLUMNS_AT_ONCE = 640  # model rows (classes × models) an evaluation multiplies at a time
_LARGEST_EXPONENT = 14.0  # c stays between exp(-14) and exp(14), far inside the range of float32


class LogisticProblem(DataProblem):
    """The global objective over a data set that is split over the clients."""

    dtype = FLOAT32

    def __init__(
        self, settings: Logistic, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        super().__init__(data, parts, local_steps, seed, settings.batch_size, settings.weighting)
        self.settings = settings
        self.shape = (data.classes, data.train_features.shape[1])
        self.dimension = self.shape[0] * self.shape[1]
        kind = SparseWorkspace if is_sparse(data.train_features) else Workspace
        self.workspace: Workspace | SparseWorkspace = kind(settings.batch_size, self.shape, data)
        self._lane_workspace: LaneWorkspace | None = None

    def start(self) -> Vector:
        """W with independent entries, uniform on (-width, width)."""
        return self.draw_start(self.settings.start_width).astype(FLOAT32)

    def local(self, client: int) -> LocalLogistic:
        """Client `client`'s objective, at its first round."""
        return LocalLogistic(self, self.batches(client), self.weights[client])

    def lane_workspace(self, lanes: int) -> LaneWorkspace:
        """The buffers of so many models; all clients of a process share them."""
        if self._lane_workspace is None or len(self._lane_workspace.scores) != lanes:
            assert isinstance(self.workspace, Workspace)  # runs on sparse features share no pass
            self._lane_workspace = LaneWorkspace(lanes, self.workspace)
        return self._lane_workspace

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss with regulariser over all training images, if asked for, and accuracy (%) over all test images."""
        count = len(models)
        loss = np.full(count, np.nan)
        correct = np.zeros(count)
        per_pass = max(1, _COLUMNS_AT_ONCE // self.shape[0])
        # Several models share one conversion of the images, and one product.
        for first in range(0, count, per_pass):
            chosen = slice(first, first + per_pass)
            weights = np.stack([model.reshape(self.shape) for model in models[chosen]])
            if with_loss:
                loss[chosen] = self._train_loss(weights)
            for inputs, labels in self.data.chunks("test", FLOAT32, _ROWS_AT_ONCE):
                correct[chosen] += count_hits(self._scores(weights, inputs), labels)
        accuracy = 100.0 * correct / len(self.data.test_labels)
        if not self.settings.minimiser:
            return Metrics.of(loss, accuracy)
        offsets = (model - self.optimum.minimiser for model in models)  # one at a time, as they are float64
        return Metrics.of(loss, accuracy, [float(offset @ offset) for offset in offsets])

    def _scores(self, weights: NDArray[Any], inputs: Any) -> NDArray[np.float32]:
        """Scores of many models on some images, shape (models, classes, images)."""
        flat = weights.reshape(-1, self.shape[1]) @ inputs.T
        scores: NDArray[np.float32] = flat.reshape(*weights.shape[:2], -1)
        return scores

    def _train_loss(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Loss of each model."""
        total = np.zeros(len(weights))
        for inputs, labels in self.data.chunks("train", FLOAT32, _ROWS_AT_ONCE):
            scores = self._scores(weights, inputs)
            highest = scores.max(axis=1)
            right = scores[:, labels, np.arange(len(labels))]
            total -= right.sum(axis=1, dtype=np.float64)
            # Without the highest score no exponential overflows.
            np.exp(np.subtract(scores, highest[:, None, :], out=scores), out=scores)
            total += (highest + np.log(scores.sum(axis=1))).sum(axis=1, dtype=np.float64)
        squares = np.einsum("mcf,mcf->m", weights, weights, dtype=np.float64)
        samples = len(self.data.train_labels)
        total += 0.5 * self.settings.regularisation * samples * squares
        return total / samples

    # ------------------------------------------------------------------------------------------------ constants
    #
    # Theory is about f = (1/n)·sum of what clients descend. With `exact` it is the loss that runs record. With `share`
    # f, mu, L and sigma are 1/n of it, and the minimisers are the same. `optimum` has the least recorded loss for both.
    # Samples that a split leaves unused are left out here, while the recorded loss is over all samples.

    @property
    def mu(self) -> float:
        """Strong convexity of every weight_i·f_i: min_i weight_i·nu, which holds for any samples."""
        return min(self.weights) * self.settings.regularisation

    @cached_property
    def L(self) -> float:
        """Smoothness of every weight_i·f_i: max_i weight_i·(nu + lambda_max(X_i'X_i/s_i)/2).

        The Hessian of one sample's cross-entropy is (diag(p) - pp') times xx', and diag(p) - pp' <= I/2: v'(diag(p) -
        pp')v is the variance of v's entries under p, at most (max v - min v)²/4 (Popoviciu) <= |v|²/2.
        """
        from areabench.problems.logistic_optimum import largest_eigenvalue  # loads scipy; no client needs it

        curvatures = [largest_eigenvalue(self.data.inputs(rows, FLOAT64)) / 2 for rows in self.parts]
        return max(
            weight * (self.settings.regularisation + curvature)
            for weight, curvature in zip(self.weights, curvatures, strict=True)
        )

    @cached_property
    def sigma(self) -> float:
        """Gradient noise: sigma² = max_i weight_i²·2·mean_j |x_ij|²/b, for every W.

        b draws with replacement divide by b the variance of one, which is at most its mean square; the gradient of one
        sample is (p - e_y)x', and |p - e_y|² <= 2. The regulariser is the same for all samples.
        """
        noise = []
        for weight, rows in zip(self.weights, self.parts, strict=True):
            inputs = self.data.inputs(rows, FLOAT64)
            squares = inputs.data @ inputs.data if is_sparse(inputs) else np.einsum("sf,sf->", inputs, inputs)
            noise.append(weight * sqrt(2 * (float(squares) / len(rows)) / self.settings.batch_size))
        return max(noise)

    @cached_property
    def zeta(self) -> float:
        """The greatest distance of a local minimiser from the global one: max_i |x* - argmin f_i|."""
        from areabench.problems.logistic_optimum import minimiser_of

        minimiser = self.optimum.minimiser
        losses = map(self._cross_entropy, self.parts)
        return max(float(np.linalg.norm(minimiser - minimiser_of(loss, minimiser))) for loss in losses)

    @cached_property
    def optimum(self) -> Optimum:
        """The minimiser and the minimum of sum (s_i/S)·f_i; strong convexity bounds the gap by |gradient|²/(2·nu)."""
        from areabench.problems.logistic_optimum import minimiser_of

        if self.settings.regularisation == 0:
            raise UserError(
                "problem.regularisation: 0 leaves logistic regression without a known minimiser; give a value above 0, "
                "or schedule.distance where a schedule asks for it"
            )
        loss = self._cross_entropy(np.concatenate(self.parts))
        minimiser = minimiser_of(loss, np.zeros(self.dimension))
        value, gradient = loss.value_and_gradient(minimiser)
        return Optimum(minimiser, value, float(gradient @ gradient) / (2 * self.settings.regularisation))

    def _cross_entropy(self, rows: NDArray[np.int64]) -> CrossEntropy:
        from areabench.problems.logistic_optimum import CrossEntropy

        inputs = self.data.inputs(rows, FLOAT64)
        return CrossEntropy(inputs, self.data.train_labels[rows], self.data.classes, self.settings.regularisation)


def count_hits(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of images whose right class scores highest, per model; of equal scores the first class counts.

    Equal to argmax along the classes, which is slow because it goes across memory. Overwrites the scores, shape
    (models, classes, images).
    """
    images = np.arange(len(labels))
    right = scores[:, labels, images]
    # Taken out, so that the maximum is that of the other classes.
    scores[:, labels, images] = -np.inf
    others = scores.max(axis=1)
    hits = right > others
    for model, image in np.argwhere(right == others):
        hits[model, image] = labels[image] < scores[model, :, image].argmax()
    return np.asarray(hits.sum(axis=1))


# ---------------------------------------------------------------------------------------------------- one model


class Workspace:
    """The buffers of one mini-batch gradient; all clients of a process share them and compute in turn."""

    def __init__(self, batch_size: int, shape: tuple[int, int], data: Dataset) -> None:
        classes, features = shape
        self.data = data
        kind = data.train_features.dtype
        # All are made once: a step allocates no array.
        self.inputs = np.empty((batch_size, features), dtype=FLOAT32)
        self.raw = self.inputs if kind == FLOAT32 else np.empty((batch_size, features), dtype=kind)
        self.scores = np.empty((classes, batch_size), dtype=FLOAT32)
        self.column = np.empty((1, batch_size), dtype=FLOAT32)
        self.spread = np.empty((classes, batch_size), dtype=FLOAT32)  # the column, once per class
        self.gradient = np.empty((classes, features), dtype=FLOAT32)
        self.labels = np.empty(batch_size, dtype=np.int64)
        self.identity = np.eye(classes, dtype=FLOAT32)
        self.one_hot = np.empty((classes, batch_size), dtype=FLOAT32)

    def load(self, rows: NDArray[np.int64]) -> None:
        """Gather the mini-batch; the features stay unscaled, and smaller arrays are scaled instead."""
        self.data.train_features.take(rows, axis=0, out=self.raw, mode="clip")
        if self.raw is not self.inputs:
            np.copyto(self.inputs, self.raw, casting="same_kind")
        self.data.train_labels.take(rows, out=self.labels, mode="clip")
        self.identity.take(self.labels, axis=1, out=self.one_hot, mode="clip")

    def softmax(self) -> None:
        """Turn the scores into class probabilities, in place, column by column."""
        scores = self.scores
        column = self.column
        spread = self.spread
        np.maximum.reduce(scores, axis=0, keepdims=True, out=column)
        np.copyto(spread, column)  # a broadcasting ufunc would allocate a buffer as large as the scores
        np.subtract(scores, spread, out=scores)
        np.exp(scores, out=scores)
        np.add.reduce(scores, axis=0, keepdims=True, out=column)
        np.copyto(spread, column)
        np.divide(scores, spread, out=scores)

    def differentiate(self, model: NDArray[Any], rows: NDArray[np.int64], rate: float) -> None:
        """Leave `rate` times the mini-batch gradient, without regulariser, in `gradient`."""
        scale = self.data.scale
        self.load(rows)
        np.dot(model, self.inputs.T, out=self.scores)
        np.multiply(self.scores, np.float32(scale), out=self.scores)
        self.softmax()
        np.subtract(self.scores, self.one_hot, out=self.scores)
        np.multiply(self.scores, np.float32(rate * scale / len(rows)), out=self.scores)
        np.dot(self.scores, self.inputs, out=self.gradient)


class SparseWorkspace:
    """Mini-batch gradients on sparse features, which are never made dense.

    The model and its gradient are dense: a step costs the mini-batch's entries times the classes, and a pass over both.
    """

    def __init__(self, _batch_size: int, shape: tuple[int, int], data: Dataset) -> None:
        self.gradient = np.empty(shape, dtype=FLOAT32)
        features = data.train_features.astype(FLOAT32, copy=False)
        self._features = features if data.scale == 1 else features * np.float32(data.scale)
        self._labels = data.train_labels
        self._identity = np.eye(data.classes, dtype=FLOAT32)

    def differentiate(self, model: NDArray[Any], rows: NDArray[np.int64], rate: float) -> None:
        """Leave `rate` times the mini-batch gradient, without regulariser, in `gradient`."""
        inputs = self._features[rows]
        scores = inputs @ model.T
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        scores -= self._identity[self._labels[rows]]
        scores *= np.float32(rate / len(rows))
        np.copyto(self.gradient, (inputs.T @ scores).T)


class LocalLogistic:
    """One client's share of the objective, for one model or for those of many runs at once."""

    def __init__(self, problem: LogisticProblem, batches: Minibatches, weight: float) -> None:
        self._problem = problem
        self._batches = batches
        self._weight = weight
        self._step_sizes: NDArray[np.float64] | None = None  # of all lanes, for which the steps are planned
        self._steps: list[LaneStep] = []

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps W <- W - alpha·weight·(mini-batch gradient + nu·W); a new array."""
        batches = self._batches.next_batches(steps)
        # Workspaces are shared: of all clients of a process only one computes at a time.
        work = self._problem.workspace
        rate = step_size * self._weight
        kept = np.float32(1 - rate * self._problem.settings.regularisation)
        # The first step reads the model and writes elsewhere; the others change what the first has written.
        before = model.reshape(self._problem.shape)
        after = np.empty_like(before) if len(batches) else before.copy()
        for rows in batches:
            work.differentiate(before, rows, rate)
            np.multiply(before, kept, out=after)
            np.subtract(after, work.gradient, out=after)
            before = after
        return after.reshape(-1)

    def gradient(self, model: Vector) -> Vector:
        """weight·(gradient of the next mini-batch + nu·W); a new array."""
        problem = self._problem
        weights = model.reshape(problem.shape)
        problem.workspace.differentiate(weights, self._batches.next_batches(1)[0], self._weight)
        result = weights * np.float32(self._weight * problem.settings.regularisation)
        np.add(result, problem.workspace.gradient, out=result)
        return result.reshape(-1)

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self._batches.skip_batches(steps)

    def descend_lanes(self, models: Sequence[Stack], step_sizes: NDArray[np.float64]) -> Stack:
        """M steps of each lane; the result is valid until the next call for any client."""
        work = self._problem.lane_workspace(len(step_sizes))
        if step_sizes is not self._step_sizes:  # planning takes as long as some steps
            self._step_sizes = step_sizes
            problem = self._problem
            rates = step_sizes * self._weight
            kept = 1 - rates * problem.settings.regularisation
            per_sample = rates / problem.settings.batch_size
            self._steps = plan_round(kept, per_sample, problem.data.scale, problem.local_steps)
        for number, (rows, step) in enumerate(zip(self._batches.next_round(), self._steps, strict=True)):
            work.shared.load(rows)
            if number == 0:
                work.read(models, step.shrink)
            else:
                work.multiply(work.local)
                if step.first:
                    np.multiply(work.local, step.shrink, out=work.local)
            work.subtract_gradients(step)
        return work.local.reshape(len(work.local), -1)


# ---------------------------------------------------------------------------------------------------- many models


class LaneStep(NamedTuple):
    """The numbers of one local step, one per lane, with the models kept as W = c·V."""

    first: bool  # whether V is multiplied by `shrink`, as at the first step of a stretch
    shrink: NDArray[np.float32]  # kept^m for the m steps from this one to the end of its stretch, shape (lanes, 1, 1)
    scale: NDArray[np.float32]  # what turns V·x into scores, shape (lanes, 1)
    factor: NDArray[np.float32]  # what turns residuals into the small factor of V's change, shape (lanes, 1)


def plan_round(kept: NDArray[np.float64], rates: NDArray[np.float64], scale: float, count: int) -> list[LaneStep]:
    """The steps W <- kept·W - rates·gradient of one round of `count` steps; `kept` and `rates` of shape (lanes,).

    V is multiplied by kept^m at the first step of a stretch of m, so that c is 1 again after the last. A stretch is a
    whole round unless kept is far from 1.
    """
    # kept^m must stay within exp(±14); where `kept` is 1 a stretch may be of any length.
    with np.errstate(divide="ignore"):
        most = _LARGEST_EXPONENT / max(float(np.abs(np.log(np.abs(kept))).max()), 1e-300)
    length = max(1, int(min(most, count)))
    steps = []
    for number in range(count):
        first = number % length == 0
        left = min(length - number % length, count - number)  # steps to the end of the stretch, this one included
        before = np.ones_like(kept) if first else kept**-left
        after = kept ** (1 - left) if left > 1 else np.ones_like(kept)  # kept may be 0 where the stretch is one step
        columns = (values.astype(FLOAT32)[:, None] for values in (kept**left, scale * before, rates * scale / after))
        shrink, factor_of_scores, factor_of_residuals = columns
        steps.append(LaneStep(first, shrink[:, :, None], factor_of_scores, factor_of_residuals))
    return steps


class LaneWorkspace:
    """The buffers of one mini-batch gradient of many models; all clients of a process share them.

    The softmax runs on (classes, lanes, samples), where its loops are long; the products on (lanes, classes, samples).
    """

    def __init__(self, lanes: int, shared: Workspace) -> None:
        from scipy.linalg.blas import sgemm  # slow to import; only lanes need it

        classes, features = shared.gradient.shape
        batch_size = len(shared.inputs)
        self.shared = shared
        self._sgemm = sgemm
        self.scores = np.empty((lanes, classes, batch_size), dtype=FLOAT32)
        self.by_class = np.empty((classes, lanes, batch_size), dtype=FLOAT32)
        self.row = np.empty((lanes, batch_size), dtype=FLOAT32)
        self.local = np.empty((lanes, classes, features), dtype=FLOAT32)

    def read(self, models: Sequence[Stack], shrink: NDArray[np.float32]) -> None:
        """Copy the models, times `shrink`, into the workspace, and multiply them by the samples.

        One product of all lanes: how a lane rounds depends on how many there are, and must not depend on the parts.
        """
        local = self.local
        if len(models) == 1:
            source = models[0].reshape(local.shape)
            np.multiply(source, shrink, out=local)  # in order, which loads them into the cache
            self.multiply(source)
        else:
            np.concatenate(models, out=local.reshape(len(local), -1))
            self.multiply(local)
            np.multiply(local, shrink, out=local)

    def multiply(self, models: NDArray[Any]) -> None:
        """The products of all lanes' models, shape (lanes, classes, features), and the samples, into the scores."""
        inputs = self.shared.inputs
        np.dot(models.reshape(-1, inputs.shape[1]), inputs.T, out=self.scores.reshape(-1, len(inputs)))

    def softmax(self, scale: NDArray[np.float32]) -> None:
        """Turn the scores, times `scale` of shape (lanes, 1), into class probabilities: from `scores` to `by_class`."""
        by_class = self.by_class
        row = self.row
        np.multiply(self.scores.transpose(1, 0, 2), scale, out=by_class)
        np.maximum.reduce(by_class, axis=0, out=row)
        np.subtract(by_class, row, out=by_class)
        np.exp(by_class, out=by_class)
        np.add.reduce(by_class, axis=0, out=row)
        np.divide(by_class, row, out=by_class)

    def subtract_gradients(self, step: LaneStep) -> None:
        """V <- V - small factor · samples, from the products in `scores`."""
        inputs = self.shared.inputs
        self.softmax(step.scale)
        np.subtract(self.by_class, self.shared.one_hot[:, None, :], out=self.by_class)
        np.multiply(self.by_class, step.factor, out=self.scores.transpose(1, 0, 2))
        local = self.local.reshape(-1, inputs.shape[1])
        scores = self.scores.reshape(-1, len(inputs))
        # transposed, as BLAS expects Fortran's order
        self._sgemm(-1.0, inputs.T, scores.T, beta=1.0, c=local.T, overwrite_c=1)
