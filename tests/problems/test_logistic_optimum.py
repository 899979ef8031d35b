"""Logistic regression apart from any run: minimisers, and constants that hold wherever one looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from areabench.errors import UserError
from areabench.problems.datasets import Dataset
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.logistic_optimum import CrossEntropy, largest_eigenvalue
from areabench.problems.optimum import minimise

FEATURES, CLASSES, SAMPLES = 4, 3, 40
EXACT = Logistic(regularisation=0.05, batch_size=8, weighting="exact", minimiser=True)


def blobs() -> Dataset:
    """Forty samples of random bytes, three classes, of which the first ten have the first two classes only."""
    generator = np.random.default_rng(3)
    features = generator.integers(0, 256, (SAMPLES, FEATURES), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, SAMPLES)
    labels[:10] %= 2
    return Dataset("bytes", features, labels, features, labels, CLASSES, 1 / 255)


def problem(chosen: Logistic = EXACT, rows: int = SAMPLES) -> LogisticProblem:
    """Client 0 holds the first ten rows, client 1 the others up to `rows`."""
    return LogisticProblem(chosen, blobs(), [np.arange(10), np.arange(10, rows)], 1, 5)


def local_loss(client: int) -> CrossEntropy:
    """fhat_i of a client of the problem above."""
    data, rows = blobs(), problem().parts[client]
    return CrossEntropy(data.train_features[rows] / 255, data.train_labels[rows], CLASSES, EXACT.regularisation)


def points(seed: int, width: float) -> NDArray[np.float64]:
    """Two models with independent entries."""
    return width * np.random.default_rng(seed).standard_normal((2, FEATURES * CLASSES))


def test_value_and_gradient_by_hand() -> None:
    # one sample (1, 0) of class 0, W = 0: ln 2, and the gradient is -½ for class 0 and +½ for class 1
    loss = CrossEntropy(np.array([[1.0, 0.0]]), np.array([0]), 2, 0.5)
    value, gradient = loss.value_and_gradient(np.zeros(4))
    assert value == pytest.approx(np.log(2), rel=1e-15)
    np.testing.assert_array_equal(gradient, [-0.5, 0, 0.5, 0])
    # the Hessian is (diag(½, ½) - ¼)·xx' + ½: 0.75 and -0.25 where x is 1
    step = loss.newton_step(np.zeros(4), gradient)
    hessian = np.array([[0.75, 0, -0.25, 0], [0, 0.5, 0, 0], [-0.25, 0, 0.75, 0], [0, 0, 0, 0.5]])
    np.testing.assert_allclose(hessian @ step, -gradient, atol=1e-12)


def test_gradient_and_hessian_match_finite_differences() -> None:
    loss, (point, _), width = local_loss(1), points(1, 1.0), 1e-5
    axes = np.eye(len(point))
    value = [loss.value_and_gradient(point + width * axis)[0] for axis in axes]
    below = [loss.value_and_gradient(point - width * axis)[0] for axis in axes]
    np.testing.assert_allclose(loss.gradient(point), (np.array(value) - below) / (2 * width), atol=1e-9)
    rises = [loss.gradient(point + width * axis) - loss.gradient(point - width * axis) for axis in axes]
    gradient = 1e-7 * loss.gradient(point)  # so small that the step is solved for to many digits
    step = loss.newton_step(point, gradient)
    np.testing.assert_allclose(np.array(rises) / (2 * width) @ step, -gradient, atol=1e-12)


def test_minimiser_agrees_with_another_method() -> None:
    logreg = problem()
    found = logreg.optimum
    pooled = 0.25, 0.75

    def recorded_loss(point: NDArray[np.float64]) -> float:
        return sum(share * local_loss(client).value_and_gradient(point)[0] for client, share in enumerate(pooled))

    other = minimize(recorded_loss, np.zeros(12), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(found.minimiser, other.x, atol=1e-4)
    assert found.exact
    assert recorded_loss(found.minimiser) == pytest.approx(found.minimum, rel=1e-14)
    assert found.minimum <= other.fun + 1e-15
    gradient = 0.25 * local_loss(0).gradient(found.minimiser) + 0.75 * local_loss(1).gradient(found.minimiser)
    assert np.linalg.norm(gradient) <= 1.01e-10


def test_zeta_is_the_distance_to_the_farthest_local_minimiser() -> None:
    logreg = problem()
    distances = []
    for client in range(2):
        found = minimize(local_loss(client).value_and_gradient, np.zeros(12), jac=True, method="BFGS")
        distances.append(np.linalg.norm(found.x - logreg.optimum.minimiser))
    assert logreg.zeta == pytest.approx(max(distances), rel=1e-3)
    assert logreg.zeta > 1.5 * min(distances)


def test_share_has_the_same_minimisers_and_smaller_constants() -> None:
    exact, share = problem(), problem(replace(EXACT, weighting="share"))
    np.testing.assert_array_equal(exact.optimum.minimiser, share.optimum.minimiser)
    assert (exact.optimum.minimum, exact.zeta) == (share.optimum.minimum, share.zeta)
    assert (exact.mu, exact.L, exact.sigma) == pytest.approx((2 * share.mu, 2 * share.L, 2 * share.sigma), rel=1e-15)
    assert exact.mu == 2 * 0.25 * 0.05  # client 0 holds a quarter


def test_constants_by_hand() -> None:
    # one client, samples (1, 0) and (0, 3): X'X/2 has the eigenvalues ½ and 4.5; mean |x|² = 5
    features, labels = np.array([[1, 0], [0, 3]], dtype=np.uint8), np.array([0, 1])
    data = Dataset("hand", features, labels, features, labels, 2, 1.0)
    logreg = LogisticProblem(Logistic(regularisation=0.5, batch_size=10), data, [np.arange(2)], 1, 0)
    assert (logreg.mu, logreg.L, logreg.sigma) == pytest.approx((0.5, 0.5 + 2.25, 1.0), rel=1e-15)


def test_largest_eigenvalue_of_wide_and_tall() -> None:
    tall = np.random.default_rng(1).standard_normal((7, 3))
    for inputs in (tall, tall.T):
        expected = np.linalg.norm(inputs, 2) ** 2 / len(inputs)
        assert largest_eigenvalue(inputs) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.integers(0, 1))
def test_curvature_lies_between_the_constants(seed: int, width: float, client: int) -> None:
    logreg, (one, other) = problem(), points(seed, width)
    rise = logreg.weights[client] * (local_loss(client).gradient(one) - local_loss(client).gradient(other))
    length = float(np.linalg.norm(one - other))
    assert np.linalg.norm(rise) <= logreg.L * length * (1 + 1e-12)
    assert rise @ (one - other) >= logreg.mu * length**2 * (1 - 1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1000), st.integers(0, 1))
def test_noise_of_a_mini_batch_is_below_sigma(seed: int, width: float, client: int) -> None:
    logreg, (point, _), data = problem(), points(seed, width), blobs()
    rows = logreg.parts[client]
    single = [
        CrossEntropy(data.train_features[[row]] / 255, data.train_labels[[row]], CLASSES, 0.0).gradient(point)
        for row in rows
    ]
    variance = ((np.array(single) - np.mean(single, axis=0)) ** 2).sum(axis=1).mean()
    assert logreg.weights[client] ** 2 * variance / EXACT.batch_size <= logreg.sigma**2


def test_squared_distance_is_to_the_minimiser() -> None:
    logreg = problem()
    minimiser = logreg.optimum.minimiser
    metrics = logreg.evaluate([(minimiser + 1).astype(np.float32), minimiser.astype(np.float32)], with_loss=False)
    np.testing.assert_allclose(metrics.squared_distance, [12.0, 0.0], rtol=1e-6, atol=1e-10)
    assert np.isnan(problem(replace(EXACT, minimiser=False)).evaluate([logreg.start()]).squared_distance).all()


def test_rows_that_no_client_holds_do_not_count() -> None:
    fewer, all_rows = problem(rows=30), problem()
    assert not np.allclose(fewer.optimum.minimiser, all_rows.optimum.minimiser, atol=1e-3)
    rows, data = np.arange(30), blobs()
    loss = CrossEntropy(data.train_features[rows] / 255, data.train_labels[rows], CLASSES, EXACT.regularisation)
    assert np.linalg.norm(loss.gradient(fewer.optimum.minimiser)) <= 1.01e-10


def test_same_bits_again() -> None:
    assert problem().optimum.minimiser.tobytes() == problem().optimum.minimiser.tobytes()


def test_a_solver_that_is_stuck_says_so_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^problem x: .* norm 1, above 1e-10; .* change its settings") as caught:
        minimise(lambda point: np.ones(1), lambda point, gradient: -gradient, np.zeros(1), 1e-10, "problem x")
    assert "\n" not in str(caught.value)
