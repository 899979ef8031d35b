"""The cross-entropy in float64, as the constants and minimisers of logistic regression need it. Loads scipy.

On one core of a busy machine the minimiser took 0.1 s for the digits and 44 s for MNIST; the local minimisers of 128
clients took 14 s more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg, svds
from scipy.special import log_softmax

from areabench.problems.datasets import is_sparse
from areabench.problems.optimum import Point, minimise
from areabench.threads import limited_threads

TOLERANCE = 1e-10  # norm of the gradient at a minimiser; the minimiser is then exact to TOLERANCE/nu
_NEAR = 1e-5  # norm of the gradient at which L-BFGS hands over to Newton's method


class CrossEntropy:
    """fhat(W) = mean cross-entropy of some samples + (nu/2)·|W|², W of shape (classes, features) flattened."""

    def __init__(self, inputs: Any, labels: NDArray[np.int64], classes: int, regularisation: float) -> None:
        self._inputs = inputs  # scaled, of shape (samples, features)
        self._regularisation = regularisation
        self._shape = (classes, inputs.shape[1])
        self._one_hot = np.eye(classes)[labels]

    def value_and_gradient(self, point: Point) -> tuple[float, Point]:
        """fhat and its gradient."""
        logarithms = log_softmax(self._inputs @ point.reshape(self._shape).T, axis=1)
        residuals = (np.exp(logarithms) - self._one_hot) / len(self._one_hot)
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
            curved: Point = (scores.T @ self._inputs).reshape(-1) / len(self._one_hot)
            return curved + self._regularisation * vector

        hessian = LinearOperator((len(point), len(point)), matvec=hessian_times, dtype=np.float64)
        accuracy = min(0.1, max(1e-6, float(np.linalg.norm(gradient))))
        return np.asarray(cg(hessian, -gradient, rtol=accuracy, maxiter=2000)[0])


@limited_threads()
def minimiser_of(loss: CrossEntropy, start: Point) -> Point:
    """Where the gradient's norm is at most TOLERANCE; needs nu > 0."""
    # L-BFGS comes near in few passes over the data; its line search fails before the gradient is as short as needed.
    near = minimize(
        loss.value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "gtol": _NEAR}
    )
    return minimise(loss.gradient, loss.newton_step, near.x, TOLERANCE, "problem.regularisation")


@limited_threads()
def largest_eigenvalue(inputs: Any) -> float:
    """lambda_max(X'X/s) of X of shape (s, features): through the smaller of X'X and XX', of a CSR array by ARPACK."""
    if is_sparse(inputs):
        least = min(inputs.shape)
        if least == 1:
            return float(inputs.data @ inputs.data / inputs.shape[0])
        largest = svds(inputs, k=1, v0=np.ones(least), return_singular_vectors=False)[0]
        return float(largest**2 / inputs.shape[0])
    gram = inputs.T @ inputs if len(inputs) > inputs.shape[1] else inputs @ inputs.T
    last = len(gram) - 1
    return float(eigvalsh(gram, subset_by_index=[last, last])[0]) / len(inputs)
