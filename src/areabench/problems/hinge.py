"""Multiclass hinge loss of Crammer and Singer, a Lipschitz function with kinks, on the data sets.

The model is W, shape (classes, features), flattened. A sample x of class y costs max_c (1[c != y] + w_c'x) - w_y'x.
Client i descends f_i = n·(s_i/S)·(mean cost of its samples), so that f = (1/n)·sum f_i is the mean cost of all samples
that clients hold, which is also the recorded loss. There is no regulariser: it would not be Lipschitz.

scipy is imported only where the minimum is solved for: no client needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT64, Vector
from areabench.errors import UserError
from areabench.problems.base import ClientData, Metrics, Problem, ProblemSettings
from areabench.problems.datasets import Dataset
from areabench.problems.minibatches import DataProblem
from areabench.problems.optimum import Optimum
from areabench.problems.subgradients import Floats, LocalSubgradient
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST
from areabench.threads import limited_threads


@dataclass(frozen=True, kw_only=True)
class Hinge(ProblemSettings):
    """Multiclass hinge loss (Crammer and Singer) in float64; client i descends n·(s_i/S)·(its mean loss)."""

    computes_lanes = True
    solved_quickly = False

    name: str = "hinge"
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    start_width: float = key("W starts uniform on (-width, width)", 0.5, minimum=0, maximum=LARGEST)

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        assert held is not None
        return HingeProblem(self, held.data, held.parts, local_steps, seed)


_ROWS_AT_ONCE = 2000  # samples an evaluation converts at a time: 12.5 MB for MNIST
MOST_CONSTRAINTS = 20_000  # samples × classes up to which the linear program is solved, in seconds
MOST_ENTRIES = 1_000_000  # samples × classes × features, likewise: with many features the matrix is nearly full
_TEMPERATURES = (1.0, 0.1, 0.01, 0.001)  # of the smoothed maximum, in turn
_MOST_ITERATIONS = 200  # of L-BFGS at each temperature


def with_margin(scores: Floats, labels: NDArray[np.int64]) -> Floats:
    """Scores of shape (..., samples, classes), plus 1 for the wrong classes; the right class keeps its score's bits."""
    margins = scores + 1.0
    samples = np.arange(len(labels))
    margins[..., samples, labels] = scores[..., samples, labels]
    return margins


class HingeProblem(DataProblem):
    """The global objective over a data set that is split over the clients.

    In float64, unlike logistic regression: theory bounds f - f*, which float32 cannot resolve where it is small.
    """

    dtype = FLOAT64

    def __init__(
        self, settings: Hinge, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        super().__init__(data, parts, local_steps, seed, settings.batch_size, "exact")
        self.settings = settings
        self.shape: tuple[int, int] = (data.classes, data.train_features.shape[1])
        self.dimension = data.classes * self.shape[1]
        self._identity = np.eye(data.classes)

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """The rows that clients hold, in order."""
        return np.sort(np.concatenate(self.parts))

    @cached_property
    def optimum(self) -> Optimum:
        """One of the minimisers, and the minimum: exact for small problems, else estimated."""
        samples = Samples(self.data.inputs(self.held, FLOAT64), self.data.train_labels[self.held], self.data.classes)
        return solve_program(samples) if samples.few else estimate(samples)

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
        lengths = [np.linalg.norm(self.data.inputs(rows, FLOAT64), axis=1) for rows in self.parts]
        return list(zip(self.weights, lengths, strict=True))

    def start(self) -> Vector:
        """W with independent entries, uniform on (-width, width)."""
        return self.draw_start(self.settings.start_width)

    def local(self, client: int) -> LocalSubgradient:
        """Client `client`'s objective, at its first round."""
        return LocalSubgradient(self, self.batches(client), self.weights[client])

    def subgradient(self, model: Vector, rows: NDArray[np.int64]) -> Floats:
        """mean_j (e_c - e_y)x_j' over the samples `rows`, c the class that costs most; the first of several."""
        inputs = self.data.inputs(rows, FLOAT64)
        labels = self.data.train_labels[rows]
        weights = model.reshape(*model.shape[:-1], *self.shape)
        costliest = with_margin(inputs @ weights.swapaxes(-1, -2), labels).argmax(axis=-1)
        factors = (self._identity[costliest] - self._identity[labels]) / len(rows)
        return np.asarray(factors.swapaxes(-1, -2) @ inputs).reshape(model.shape)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss over all samples that clients hold, if asked for, and accuracy (%) over all test samples.

        There is no distance to the minimiser, which is never unique: adding the same vector to all w_c changes nothing.
        """
        loss = np.full(len(models), np.nan)
        hits = np.zeros(len(models))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged model has no finite loss
            for number, model in enumerate(models):
                weights = model.reshape(self.shape)
                for inputs, labels in self.data.chunks("test", FLOAT64, _ROWS_AT_ONCE):
                    hits[number] += np.count_nonzero((inputs @ weights.T).argmax(axis=1) == labels)
                if with_loss:
                    loss[number] = self._train_loss(weights)
        return Metrics.of(loss, 100.0 * hits / len(self.data.test_labels))

    def _train_loss(self, weights: Floats) -> float:
        """Loss of a model of shape (classes, features)."""
        total = 0.0
        for first in range(0, len(self.held), _ROWS_AT_ONCE):
            rows = self.held[first : first + _ROWS_AT_ONCE]
            scores = self.data.inputs(rows, FLOAT64) @ weights.T
            labels = self.data.train_labels[rows]
            right = scores[np.arange(len(labels)), labels]
            total += float((with_margin(scores, labels).max(axis=1) - right).sum())
        return total / len(self.held)


# ---------------------------------------------------------------------------------------------------- minimum


@dataclass(frozen=True)
class Samples:
    """All samples that clients hold: scaled inputs, shape (samples, features), and their classes."""

    inputs: Floats
    labels: NDArray[np.int64]
    classes: int

    @property
    def features(self) -> int:
        """Features of a sample; W has the shape (classes, features)."""
        return int(self.inputs.shape[1])

    @property
    def few(self) -> bool:
        """Whether the linear program is small enough to be solved."""
        constraints = len(self.labels) * self.classes
        return constraints <= MOST_CONSTRAINTS and constraints * self.features <= MOST_ENTRIES

    @cached_property
    def right(self) -> Floats:
        """1 at the class of each sample, shape (samples, classes)."""
        return np.eye(self.classes)[self.labels]

    def mean_cost(self, model: Floats) -> float:
        """f(W), never below 0: the right class costs exactly 0."""
        scores = self.inputs @ model.reshape(self.classes, -1).T
        margins = scores - (scores * self.right).sum(axis=1, keepdims=True) + (1 - self.right)
        return float(margins.max(axis=1).mean())

    def centred(self, model: Floats) -> Floats:
        """The minimiser, of all that cost as much as this one, whose w_c add up to 0."""
        weights = model.reshape(self.classes, -1)
        return np.asarray(weights - weights.mean(axis=0)).reshape(-1)

    def smoothed(self, model: Floats, temperature: float) -> tuple[float, Floats]:
        """f with tau·log sum exp(./tau) for the maximum, at most tau·log(classes) above f, and its gradient."""
        from scipy.special import logsumexp

        scores = self.inputs @ model.reshape(self.classes, -1).T
        powers = (scores + 1 - self.right) / temperature
        logarithms = logsumexp(powers, axis=1, keepdims=True)
        factors = (np.exp(powers - logarithms) - self.right) / len(self.labels)
        value = float((temperature * logarithms[:, 0] - (scores * self.right).sum(axis=1)).mean())
        return value, (factors.T @ self.inputs).reshape(-1)


@limited_threads()
def solve_program(samples: Samples) -> Optimum:
    """min mean_j xi_j subject to xi_j >= 0 and xi_j >= 1 + (w_c - w_y)'x_j for every wrong class c.

    Multipliers q_jc >= 0 with sum_c q_jc <= 1/S prove f(W) >= sum q + <r, W>, r = sum q_jc·(e_c - e_y)x_j', which is 0
    up to the solver's tolerance.
    """
    from scipy.optimize import linprog

    constraints = _constraints(samples)
    count = len(samples.labels)
    parameters = samples.classes * samples.features
    costs = np.concatenate([np.zeros(parameters), np.full(count, 1 / count)])
    bounds = np.column_stack([np.where(costs > 0, 0.0, -np.inf), np.full(len(costs), np.inf)])
    found = linprog(costs, constraints, np.full(constraints.shape[0], -1.0), bounds=bounds, method="highs-ipm")
    if found.x is None:
        raise UserError(f"problem hinge: the linear program of its minimum failed ({found.message}); take other data")
    model = samples.centred(found.x[:parameters])
    minimum = samples.mean_cost(model)
    # the solver's multipliers, changed to satisfy both conditions exactly
    table = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0).reshape(count, -1)
    sums = np.maximum(table.sum(axis=1, keepdims=True), 1 / count)
    multipliers = (table / (sums * count)).reshape(-1)
    residual = float(np.linalg.norm((constraints.T @ multipliers)[:parameters]))
    proven = float(multipliers.sum() - residual * np.linalg.norm(model))
    return Optimum(model, minimum, max(0.0, minimum - proven))


def _constraints(samples: Samples) -> Any:
    """One row per sample and wrong class, in this order: (e_c - e_y)x_j' for W, and -1 for xi_j."""
    from scipy.sparse import csc_array, hstack

    sample, wrong = np.nonzero(samples.right == 0)
    rows = np.arange(len(sample))
    signs = -samples.right[sample]
    signs[rows, wrong] = 1.0
    # A block of columns for each w_c; only the blocks of two classes are filled in a row.
    inputs = samples.inputs[sample]
    blocks = [csc_array(signs[:, [each]] * inputs) for each in range(samples.classes)]
    slack = csc_array((np.full(len(rows), -1.0), (rows, sample)), (len(rows), len(samples.labels)))
    return hstack([*blocks, slack], format="csc")


@limited_threads()
def estimate(samples: Samples) -> Optimum:
    """The best point that L-BFGS finds on less and less smoothed costs; all that is proven is f* >= 0."""
    from scipy.optimize import minimize

    model = best = np.zeros(samples.classes * samples.features)
    for temperature in _TEMPERATURES:
        options = {"maxiter": _MOST_ITERATIONS}
        found = minimize(samples.smoothed, model, (temperature,), method="L-BFGS-B", jac=True, options=options)
        model = np.asarray(found.x, dtype=np.float64)
        best = min(best, model, key=samples.mean_cost)
    minimum = samples.mean_cost(best)
    return Optimum(samples.centred(best), minimum, minimum)
