"""The multiclass hinge loss: subgradients, least loss, constants, and evaluation against plain loops."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from areabench.problems import hinge
from areabench.problems import hinge as hinge_optimum
from areabench.problems.datasets import Dataset
from areabench.problems.hinge import Hinge, HingeProblem, Samples, estimate, solve_program
from areabench.problems.minibatches import Minibatches

FEATURES, CLASSES, SAMPLES = 3, 3, 24


def blobs() -> Dataset:
    """Twenty-four samples of random bytes with random classes: no model gets all right."""
    generator = np.random.default_rng(3)
    features = generator.integers(0, 256, (SAMPLES, FEATURES), dtype=np.uint8)
    return Dataset(
        "bytes", features, generator.integers(0, CLASSES, SAMPLES), features[:11], np.arange(11) % 3, CLASSES, 1 / 255
    )


def problem(local_steps: int = 1, seed: int = 5, rows: int = SAMPLES, width: float = 0.5) -> HingeProblem:
    """Client 0 holds the first six rows, client 1 the others up to `rows`."""
    parts = [np.arange(6), np.arange(6, rows)]
    return HingeProblem(Hinge(batch_size=4, start_width=width), blobs(), parts, local_steps, seed)


def samples() -> Samples:
    """All rows of the problem above."""
    return Samples(blobs().train_features / 255, blobs().train_labels, CLASSES)


def naive_loss(model: NDArray[np.float64], rows: NDArray[np.int64]) -> float:
    """The mean cost, sample by sample."""
    data, weights, total = blobs(), model.reshape(CLASSES, FEATURES), 0.0
    for row in rows:
        scores, label = weights @ (data.train_features[row] / 255), data.train_labels[row]
        total += max((other != label) + scores[other] for other in range(CLASSES)) - scores[label]
    return total / len(rows)


def one_sample() -> HingeProblem:
    """One client with one sample (1, 0) of class 0 out of two classes."""
    features, labels = np.array([[1, 0]], dtype=np.uint8), np.array([0])
    data = Dataset("hand", features, labels, features, labels, 2, 1.0)
    return HingeProblem(Hinge(batch_size=2, start_width=0.0), data, [np.array([0])], 1, 0)


def test_steps_by_hand() -> None:
    problem = one_sample()
    # W = 0: class 1 costs 1, class 0 costs 0, so the subgradient is -1 for class 0 and +1 for class 1
    moved = problem.local(0).descend(problem.start(), 0.25)
    np.testing.assert_array_equal(moved, [0.25, 0, -0.25, 0])
    # after another such step class 1 costs 1 + (-0.5) - 0.5 = 0: a tie, of which the first class, the right one, counts
    settled = problem.local(0).descend(moved, 0.25)
    np.testing.assert_array_equal(settled, [0.5, 0, -0.5, 0])
    np.testing.assert_array_equal(problem.local(0).descend(settled, 0.25), settled)
    np.testing.assert_array_equal(problem.evaluate([moved, settled]).train_loss, [0.5, 0.0])
    assert (problem.B, problem.sigma) == pytest.approx((np.sqrt(2), 1.0), rel=1e-15)


def test_subgradient_matches_finite_differences() -> None:
    rows, width = np.arange(6, SAMPLES), 1e-6
    point = 3 * problem().start()
    slopes = [
        (naive_loss(point + width * axis, rows) - naive_loss(point - width * axis, rows)) / (2 * width)
        for axis in np.eye(9)
    ]
    np.testing.assert_allclose(problem().subgradient(point, rows), slopes, atol=1e-8)


def test_step_is_weighted_so_that_the_mean_is_the_recorded_loss() -> None:
    model = problem().start()
    assert problem().evaluate([model]).train_loss[0] == pytest.approx(
        0.5 * (0.5 * naive_loss(model, np.arange(6)) + 1.5 * naive_loss(model, np.arange(6, SAMPLES))), rel=1e-12
    )
    rows = Minibatches(5, 1, np.arange(6, SAMPLES), 1, 4).next_round()[0]
    expected = model - 0.1 * 1.5 * problem().subgradient(model, rows)
    np.testing.assert_allclose(problem().local(1).descend(model, 0.1), expected, rtol=1e-14)


def test_evaluation_matches_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hinge, "_ROWS_AT_ONCE", 5)  # several chunks, the last of them short
    data, chosen = blobs(), problem(rows=20)  # four rows that no client holds
    models = [chosen.start(), 7 * chosen.start(), np.roll(chosen.start(), 4)]
    metrics = chosen.evaluate(models)
    for number, model in enumerate(models):
        scores = data.test_features @ model.reshape(CLASSES, FEATURES).T
        assert metrics.train_loss[number] == pytest.approx(naive_loss(model, np.arange(20)), rel=1e-12)
        assert metrics.test_accuracy[number] == pytest.approx(100 * np.mean(scores.argmax(axis=1) == data.test_labels))
    assert len(set(metrics.test_accuracy)) > 1
    assert np.isnan(metrics.squared_distance).all()


# ---------------------------------------------------------------------------------------------------- least loss


def test_least_loss_by_hand() -> None:
    # the samples 1 and 1 of two classes: one costs 1 - t and the other 1 + t, so 1 is the best mean for |t| <= 1
    optimum = solve_program(Samples(np.ones((2, 1)), np.array([0, 1]), 2))
    assert optimum.minimum == pytest.approx(1.0, rel=1e-12)
    assert optimum.exact
    # three of class 0 and one of class 1: t = 1 costs (0 + 0 + 0 + 2)/4
    optimum = solve_program(Samples(np.ones((4, 1)), np.array([0, 1, 0, 0]), 2))
    assert optimum.minimum == pytest.approx(0.5, rel=1e-12)
    np.testing.assert_allclose(optimum.minimiser, [0.5, -0.5], rtol=1e-9)


def test_least_loss_of_two_classes_agrees_with_brute_force() -> None:
    """With two classes f depends on w_0 - w_1 alone, and is least where two samples have a margin of exactly 1."""
    inputs = np.random.default_rng(4).random((9, 2))
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    signs = np.where(labels == 0, 1.0, -1.0)
    corners = [
        np.linalg.solve(inputs[[one, other]], signs[[one, other]]) for one, other in product(range(9), repeat=2)
        if one < other
    ]  # fmt: skip
    least = min(np.maximum(0, 1 - signs * (inputs @ corner)).mean() for corner in corners)
    optimum = solve_program(Samples(inputs, labels, 2))
    assert 0.1 < optimum.minimum == pytest.approx(least, rel=1e-9)


def test_linear_program_is_proven_and_the_estimate_close_above() -> None:
    proven, estimated = solve_program(samples()), estimate(samples())
    assert proven.exact
    assert proven.minimum > 0.1
    assert proven.minimum == pytest.approx(naive_loss(proven.minimiser, np.arange(SAMPLES)), rel=1e-12)
    assert proven.minimum <= estimated.minimum <= proven.minimum * 1.01
    assert not estimated.exact
    assert estimated.gap == estimated.minimum
    for optimum in (proven, estimated):
        np.testing.assert_allclose(optimum.minimiser.reshape(CLASSES, FEATURES).sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("limit", "size"), [("MOST_CONSTRAINTS", SAMPLES * CLASSES), ("MOST_ENTRIES", SAMPLES * CLASSES * FEATURES)]
)
def test_only_small_programs_are_solved(monkeypatch: pytest.MonkeyPatch, limit: str, size: int) -> None:
    monkeypatch.setattr(hinge_optimum, limit, size)
    assert problem().optimum.exact
    monkeypatch.setattr(hinge_optimum, limit, size - 1)
    assert not problem().optimum.exact


def test_least_loss_is_over_the_rows_that_clients_hold() -> None:
    optimum = problem(rows=20).optimum
    assert optimum.minimum == pytest.approx(naive_loss(optimum.minimiser, np.arange(20)), rel=1e-12)
    assert problem(rows=20).evaluate([optimum.minimiser]).train_loss[0] == pytest.approx(optimum.minimum, rel=1e-12)


def test_smoothed_loss_lies_just_above_and_has_its_gradient() -> None:
    point, width = 3 * problem().start(), 1e-5
    value, gradient = samples().smoothed(point, 0.1)
    exact = samples().mean_cost(point)
    assert exact < value <= exact + 0.1 * np.log(CLASSES)
    ends = [
        (samples().smoothed(point + width * a, 0.1)[0], samples().smoothed(point - width * a, 0.1)[0])
        for a in np.eye(9)
    ]
    np.testing.assert_allclose(gradient, [(above - below) / (2 * width) for above, below in ends], atol=1e-8)


# ---------------------------------------------------------------------------------------------------- constants

vectors = st.lists(st.floats(-100, 100), min_size=9, max_size=9).map(np.array)


@cache
def solved() -> HingeProblem:
    """The problem above, solved once for all examples."""
    return problem()


@given(vectors, vectors)
def test_functions_are_lipschitz_and_nowhere_below_the_minimum(
    one: NDArray[np.float64], other: NDArray[np.float64]
) -> None:
    known = solved()
    for rows, weight in zip(known.parts, (0.5, 1.5), strict=True):
        first, second = (weight * naive_loss(point, rows) for point in (one, other))
        subgradient = weight * known.subgradient(one, rows)
        assert abs(first - second) <= known.B * np.linalg.norm(one - other) + 1e-12
        assert second >= first + subgradient @ (other - one) - 1e-10
        single = weight * np.array([known.subgradient(one, np.array([row])) for row in rows])
        assert ((single - subgradient) ** 2).sum(axis=1).mean() / 4 <= known.sigma**2
    assert naive_loss(one, np.arange(SAMPLES)) >= known.optimum.minimum - 1e-12


# ---------------------------------------------------------------------------------------------------- runs


def test_start_lies_within_the_width() -> None:
    assert 0.1 < np.abs(problem(width=0.25).start()).max() <= 0.25
    assert not problem(width=0.0).start().any()


def test_divergence_is_silent() -> None:
    with np.errstate(all="raise"):
        assert not np.isfinite(problem().evaluate([np.full(9, np.inf)]).train_loss).any()
