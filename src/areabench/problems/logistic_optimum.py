"""The minimisers of logistic regression and the constants of the paper's assumptions, in float64.

Problem (1) of the paper is f = (1/n)·sum f_i, and f_i is what client i descends: weight_i·fhat_i, with fhat_i the mean
cross-entropy of its s_i samples + (nu/2)·|W|². With weighting `exact`, weight_i = n·s_i/S, and f is the loss that runs
record. With `share`, weight_i = s_i/S: all f_i, hence mu, L, sigma and f, are 1/n of that, and minimisers are the same.
The minimum given here is that of sum (s_i/S)·fhat_i, the recorded loss, for both. S counts the samples that clients
hold. Samples that a split leaves unused are left out here too, while the recorded loss is over all samples.

On one core of a busy machine the minimiser took 0.1 s for the digits and 44 s for MNIST; the local minimisers of 128
clients took 14 s more.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import log_softmax

from areabench.errors import UserError
from areabench.problems.optimum import Optimum, Point, SmoothFunction, minimise

if TYPE_CHECKING:
    from areabench.problems.logistic import LogisticProblem


TOLERANCE = 1e-10  # norm of the gradient at a minimiser; the minimiser is then exact to TOLERANCE/nu
_NEAR = 1e-5  # norm of the gradient at which L-BFGS hands over to Newton's method


class CrossEntropy:
    """fhat(W) = mean cross-entropy of some samples + (nu/2)·|W|², W of shape (classes, features) flattened."""

    def __init__(
        self, inputs: NDArray[np.float64], labels: NDArray[np.int64], classes: int, regularisation: float
    ) -> None:
        self._inputs, self._regularisation = inputs, regularisation  # inputs of shape (samples, features), scaled
        self._shape = (classes, inputs.shape[1])
        self._one_hot = np.eye(classes)[labels]

    def value_and_gradient(self, point: Point) -> tuple[float, Point]:
        """fhat and its gradient."""
        logarithms = log_softmax(self._inputs @ point.reshape(self._shape).T, axis=1)
        residuals = (np.exp(logarithms) - self._one_hot) / len(self._inputs)
        value = 0.5 * self._regularisation * float(point @ point) - float((self._one_hot * logarithms).sum(1).mean())
        return value, (residuals.T @ self._inputs).reshape(-1) + self._regularisation * point

    def gradient(self, point: Point) -> Point:
        """The gradient alone."""
        return self.value_and_gradient(point)[1]

    def newton_step(self, point: Point, gradient: Point) -> Point:
        """-H⁻¹·gradient by conjugate gradients; more exact near the end, for quadratic convergence."""
        chances = np.exp(log_softmax(self._inputs @ point.reshape(self._shape).T, axis=1))

        def hessian_times(vector: Point) -> Point:
            scores = chances * (self._inputs @ vector.reshape(self._shape).T)
            scores -= chances * scores.sum(axis=1, keepdims=True)
            curved: Point = (scores.T @ self._inputs).reshape(-1) / len(self._inputs)
            return curved + self._regularisation * vector

        hessian = LinearOperator((len(point), len(point)), matvec=hessian_times, dtype=np.float64)
        accuracy = min(0.1, max(1e-6, float(np.linalg.norm(gradient))))
        return np.asarray(cg(hessian, -gradient, rtol=accuracy, maxiter=2000)[0])


def minimiser_of(loss: CrossEntropy, start: Point) -> Point:
    """Where the gradient's norm is at most TOLERANCE; needs nu > 0."""
    near = minimize(
        loss.value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "gtol": _NEAR}
    )
    return minimise(SmoothFunction(loss.gradient, loss.newton_step), near.x, TOLERANCE, "problem.regularisation")


class LogisticConstants:
    """The constants of a logistic regression; minimisers are computed when asked for."""

    def __init__(self, problem: LogisticProblem) -> None:
        self._problem = problem

    def _inputs(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        data = self._problem.data
        return data.train_features[rows].astype(np.float64) * data.scale

    def _loss(self, rows: NDArray[np.int64]) -> CrossEntropy:
        data, settings = self._problem.data, self._problem.settings
        return CrossEntropy(self._inputs(rows), data.train_labels[rows], data.classes, settings.regularisation)

    def mu(self) -> float:
        """Strong convexity of every f_i: min_i weight_i·nu, which holds for any samples."""
        clients = range(len(self._problem.parts))
        return min(self._problem.weight(client) for client in clients) * self._problem.settings.regularisation

    def L(self) -> float:
        """Smoothness of every f_i: max_i weight_i·(nu + lambda_max(X_i'X_i/s_i)/2).

        The Hessian of one sample's cross-entropy is (diag(p) - pp') times xx', and diag(p) - pp' <= I/2: v'(diag(p) -
        pp')v is the variance of v's entries under p, at most (max v - min v)²/4 (Popoviciu) <= |v|²/2.
        """
        nu = self._problem.settings.regularisation
        return max(
            self._problem.weight(client) * (nu + largest_eigenvalue(self._inputs(rows)) / 2)
            for client, rows in enumerate(self._problem.parts)
        )

    def sigma(self) -> float:
        """Gradient noise: sigma² = max_i weight_i²·2·mean_j |x_ij|²/b, for every W.

        b draws with replacement divide by b the variance of one, which is at most its mean square; the gradient of one
        sample is (p - e_y)x', and |p - e_y|² <= 2. The regulariser is the same for all samples.
        """
        return max(
            self._problem.weight(client) * sqrt(2 * mean_square(self._inputs(rows)) / self._problem.settings.batch_size)
            for client, rows in enumerate(self._problem.parts)
        )

    def optimum(self) -> Optimum:
        """The minimiser of f; strong convexity bounds the gap by |gradient|²/(2·nu)."""
        if self._problem.settings.regularisation == 0:
            raise UserError(
                "problem.regularisation: 0 leaves logistic regression without a known minimiser; give a value above 0, "
                "or schedule.distance where a schedule asks for it"
            )
        loss = self._loss(np.concatenate(self._problem.parts))
        minimiser = minimiser_of(loss, np.zeros(self._problem.dimension))
        value, gradient = loss.value_and_gradient(minimiser)
        return Optimum(minimiser, value, float(gradient @ gradient) / (2 * self._problem.settings.regularisation))

    def zeta(self, minimiser: Point) -> float:
        """max_i |x* - argmin f_i|, given x*."""
        losses = map(self._loss, self._problem.parts)
        return max(float(np.linalg.norm(minimiser - minimiser_of(loss, minimiser))) for loss in losses)


def largest_eigenvalue(inputs: NDArray[np.float64]) -> float:
    """lambda_max(X'X/s) of X of shape (s, features), through the smaller of X'X and XX'."""
    gram = inputs.T @ inputs if len(inputs) > inputs.shape[1] else inputs @ inputs.T
    last = len(gram) - 1
    return float(eigvalsh(gram, subset_by_index=[last, last])[0]) / len(inputs)


def mean_square(inputs: NDArray[np.float64]) -> float:
    """mean_j |x_j|² of X of shape (s, features)."""
    return float(np.einsum("sf,sf->", inputs, inputs)) / len(inputs)
