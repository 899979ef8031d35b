"""l1 regression, the geometric median and the hinge loss by hand: subgradients, minimisers with proofs, constants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from areabench.problems import hinge
from areabench.problems.datasets import Dataset
from areabench.problems.hinge import Hinge, HingeProblem, Samples, estimate, solve_program
from areabench.problems.median import MeanDistance, Median, solve_median
from areabench.problems.minibatches import Minibatches
from areabench.problems.robust import AbsoluteErrors, Robust, solve_robust
from areabench.problems.subgradients import DrawnProblem, LocalSubgradient
from areabench.streams import Purpose, stream

ROBUST = Robust(dimension=3, samples=7, batch_size=2)
MEDIAN = Median(dimension=2, samples=4, batch_size=2)
FEATURES, CLASSES, SAMPLES = 3, 3, 24


def drawn(settings: Robust | Median, clients: int = 3, seed: int = 7) -> DrawnProblem:
    """Three clients by default."""
    problem = settings.build(None, clients, 1, seed)
    assert isinstance(problem, DrawnProblem)
    return problem


def draw(settings: Robust, client: int) -> AbsoluteErrors:
    """The samples of a client of such a problem."""
    return settings.draw(stream(7, Purpose.PROBLEM, client))


def square() -> MeanDistance:
    """The corners of a square with the diagonal 2."""
    return MeanDistance(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]))


@cache
def hinge_problem(rows: int = SAMPLES) -> HingeProblem:
    """Random bytes with random classes, which no model gets all right; client 1 holds the rows from 6 to `rows`."""
    generator = np.random.default_rng(3)
    features = generator.integers(0, 256, (SAMPLES, FEATURES), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, SAMPLES)
    data = Dataset("bytes", features, labels, features[:11], np.arange(11) % 3, CLASSES, 1 / 255)
    return HingeProblem(Hinge(batch_size=4), data, [np.arange(6), np.arange(6, rows)], 1, 5)


def hinge_loss(model: NDArray[np.float64], rows: NDArray[np.int64]) -> float:
    """The mean cost, sample by sample."""
    data = hinge_problem().data
    weights = model.reshape(CLASSES, FEATURES)
    total = 0.0
    for row in rows:
        scores = weights @ (data.train_features[row] / 255)
        label = data.train_labels[row]
        total += max((other != label) + scores[other] for other in range(CLASSES)) - scores[label]
    return total / len(rows)


# ---------------------------------------------------------------------------------------------------- subgradients


def test_l1_loss_and_subgradient_by_hand() -> None:
    piece = AbsoluteErrors(
        np.array([[1.0, 0], [0, 2], [3, -3]]), np.array([1.0, 0, -1])
    )  # |x - 1|, |2y|, |3x - 3y + 1|
    # at (1, 1): residuals 0, 2 and 1
    np.testing.assert_array_equal(piece.losses(np.array([[1.0, 1.0], [2.0, 0.0]])), [1.0, (1 + 0 + 7) / 3])
    np.testing.assert_array_equal(piece.subgradient(np.ones(2), np.array([0, 1, 2])), [1.0, -1 / 3])
    np.testing.assert_array_equal(piece.subgradient(np.ones(2), np.array([1, 1])), [0.0, 2.0])
    assert piece.mean_square() == (1 + 4 + 18) / 3
    local = LocalSubgradient(piece, Minibatches(0, 0, np.array([1]), 2, 3))
    # only sample 1, |2y|: two steps of 0.5·2 from y = 1.5, the second of them over the kink and back
    np.testing.assert_array_equal(local.descend(np.array([4.0, 1.5]), 0.5), [4.0, -0.5])
    assert local.descend(np.array([4.0, 0.0]), 0.5).tolist() == [4.0, 0.0]  # on the kink 0 is a subgradient


def test_distances_and_their_derivatives_by_hand() -> None:
    # from (3, 4), whose distance from the origin is 5
    piece = MeanDistance(np.array([[0.0, 0.0], [3.0, 3.0]]))
    model = np.array([3.0, 4.0])
    np.testing.assert_array_equal(piece.losses(model[None]), [3.0])
    np.testing.assert_array_equal(piece.subgradient(model, np.array([0])), [0.6, 0.8])
    np.testing.assert_array_equal(piece.subgradient(model, np.array([0, 1])), [0.3, 0.9])
    np.testing.assert_array_equal(piece.subgradient(np.zeros(2), np.array([0])), [0.0, 0.0])
    # at the origin each corner of the square adds (I - uu')/1 to the Hessian: H = ½·I
    np.testing.assert_allclose(square().newton_step(np.zeros(2), np.array([1.0, 2.0])), [-2.0, -4.0], rtol=1e-15)


def test_hinge_steps_by_hand() -> None:
    features, labels = np.array([[1, 0]], dtype=np.uint8), np.array([0])
    data = Dataset("hand", features, labels, features, labels, 2, 1.0)
    problem = HingeProblem(Hinge(batch_size=2, start_width=0.0), data, [np.array([0])], 1, 0)
    # W = 0: class 1 costs 1, class 0 costs 0, so the subgradient is -1 for class 0 and +1 for class 1
    moved = problem.local(0).descend(problem.start(), 0.25)
    np.testing.assert_array_equal(moved, [0.25, 0, -0.25, 0])
    # after another such step class 1 costs 1 + (-0.5) - 0.5 = 0: a tie, of which the first class, the right one, counts
    settled = problem.local(0).descend(moved, 0.25)
    np.testing.assert_array_equal(settled, [0.5, 0, -0.5, 0])
    np.testing.assert_array_equal(problem.local(0).descend(settled, 0.25), settled)
    np.testing.assert_array_equal(problem.evaluate([moved, settled]).train_loss, [0.5, 0.0])
    assert (problem.B, problem.sigma) == pytest.approx((np.sqrt(2), 1.0), rel=1e-15)


# ---------------------------------------------------------------------------------------------------- minimisers


def test_l1_minimiser_in_one_dimension_is_a_median() -> None:
    # mean |x - b| has its minimum at the median 2: (3 + 0 + 98)/3
    optimum = solve_robust([AbsoluteErrors(np.ones((1, 1)), np.array([target])) for target in (-1.0, 2.0, 100.0)])
    np.testing.assert_allclose(optimum.minimiser, [2.0], atol=1e-12)
    assert optimum.minimum == pytest.approx(101 / 3, rel=1e-14)
    assert optimum.exact
    assert not replace(optimum, gap=1e-3).exact


def test_l1_minimiser_is_the_best_vertex() -> None:
    """The minimum is attained where two residuals vanish: try every pair of samples."""
    settings = replace(ROBUST, dimension=2)
    functions = [draw(settings, client) for client in range(3)]
    inputs = np.concatenate([function.inputs for function in functions])
    targets = np.concatenate([function.targets for function in functions])
    vertices = [np.linalg.solve(inputs[list(pair)], targets[list(pair)]) for pair in combinations(range(21), 2)]
    robust = drawn(settings)
    losses = robust.evaluate(vertices).train_loss
    np.testing.assert_allclose(robust.optimum.minimiser, vertices[losses.argmin()], rtol=1e-9)
    assert robust.optimum.minimum == pytest.approx(losses.min(), rel=1e-12)
    assert robust.optimum.exact


def test_median_of_a_square_and_of_an_obtuse_triangle() -> None:
    optimum = solve_median([square()])
    np.testing.assert_allclose(optimum.minimiser, [0.0, 0.0], atol=1e-12)
    assert optimum.minimum == pytest.approx(1.0, rel=1e-15)
    # with an angle of 120° or more the median is that corner, where f has a kink
    corner = solve_median([MeanDistance(np.array([[0.0, 0.0], [5.0, 1.0], [-5.0, 1.0]]))])
    np.testing.assert_array_equal(corner.minimiser, [0.0, 0.0])
    assert corner.minimum == pytest.approx(2 * np.sqrt(26) / 3, rel=1e-15)
    assert (optimum.exact, corner.exact, corner.gap) == (True, True, 0.0)


def test_iterations_get_past_a_point_that_is_not_the_median() -> None:
    # the mean, where iterations start, is the point (0, 0), which the crowd at (1, ±0.1) outweighs
    points = np.array([[0.0, 0], [1, 0.1], [1, -0.1], [1.1, 0], [0.9, 0], [-4, 0]])
    optimum = solve_median([MeanDistance(points)])
    assert points.mean(axis=0).tolist() == [0.0, 0.0]
    assert optimum.exact
    assert optimum.minimiser[0] > 0.5
    np.testing.assert_allclose(optimum.minimiser[1], 0.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_median_agrees_with_brute_force_in_the_plane(seed: int) -> None:
    median = drawn(MEDIAN, clients=2, seed=seed)
    centre = np.zeros(2)
    width = 8.0
    for _ in range(12):  # ever finer grids about the best point of the last
        axis = np.linspace(-width, width, 21)
        grid = centre + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        losses = median.evaluate(list(grid)).train_loss
        centre = grid[losses.argmin()]
        width /= 4
    # the last grid has a spacing of 2e-7, and f is 1-Lipschitz
    assert losses.min() - 2e-7 <= median.optimum.minimum <= losses.min() + 1e-12
    np.testing.assert_allclose(median.optimum.minimiser, centre, atol=1e-3)
    assert median.optimum.exact


def test_least_hinge_loss_by_hand() -> None:
    # the samples 1 and 1 of two classes: one costs 1 - t and the other 1 + t, so 1 is the best mean for |t| <= 1
    optimum = solve_program(Samples(np.ones((2, 1)), np.array([0, 1]), 2))
    assert optimum.minimum == pytest.approx(1.0, rel=1e-12)
    assert optimum.exact
    # three of class 0 and one of class 1: t = 1 costs (0 + 0 + 0 + 2)/4
    optimum = solve_program(Samples(np.ones((4, 1)), np.array([0, 1, 0, 0]), 2))
    assert optimum.minimum == pytest.approx(0.5, rel=1e-12)
    np.testing.assert_allclose(optimum.minimiser, [0.5, -0.5], rtol=1e-9)


def test_least_hinge_loss_of_two_classes_agrees_with_brute_force() -> None:
    """With two classes f depends on w_0 - w_1 alone, and is least where two samples have a margin of exactly 1."""
    inputs = np.random.default_rng(4).random((9, 2))
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    signs = np.where(labels == 0, 1.0, -1.0)
    corners = [np.linalg.solve(inputs[list(pair)], signs[list(pair)]) for pair in combinations(range(9), 2)]
    least = min(np.maximum(0, 1 - signs * (inputs @ corner)).mean() for corner in corners)
    optimum = solve_program(Samples(inputs, labels, 2))
    assert 0.1 < optimum.minimum == pytest.approx(least, rel=1e-9)


def test_linear_program_is_proven_and_the_estimate_close_above() -> None:
    data = hinge_problem().data
    samples = Samples(data.train_features / 255, data.train_labels, CLASSES)
    proven, estimated = solve_program(samples), estimate(samples)
    assert proven.exact
    assert 0.1 < proven.minimum == pytest.approx(hinge_loss(proven.minimiser, np.arange(SAMPLES)), rel=1e-12)
    assert proven.minimum <= estimated.minimum <= proven.minimum * 1.01
    assert not estimated.exact
    assert estimated.gap == estimated.minimum
    for optimum in (proven, estimated):
        np.testing.assert_allclose(optimum.minimiser.reshape(CLASSES, FEATURES).sum(axis=0), 0.0, atol=1e-9)
    # the smoothed loss lies just above and has its gradient
    point = 3 * hinge_problem().start()
    value, gradient = samples.smoothed(point, 0.1)
    exact = samples.mean_cost(point)
    assert exact < value <= exact + 0.1 * np.log(CLASSES)
    slopes = [
        (samples.smoothed(point + axis, 0.1)[0] - samples.smoothed(point - axis, 0.1)[0]) / 2e-5
        for axis in 1e-5 * np.eye(9)
    ]
    np.testing.assert_allclose(gradient, slopes, atol=1e-8)


@pytest.mark.parametrize(
    ("limit", "size"), [("MOST_CONSTRAINTS", SAMPLES * CLASSES), ("MOST_ENTRIES", SAMPLES * CLASSES * FEATURES)]
)
def test_only_small_programs_are_solved(monkeypatch: pytest.MonkeyPatch, limit: str, size: int) -> None:
    for most, exact in ((size, True), (size - 1, False)):
        monkeypatch.setattr(hinge, limit, most)
        hinge_problem.cache_clear()
        assert hinge_problem().optimum.exact == exact
    hinge_problem.cache_clear()


def test_least_loss_is_over_the_rows_that_clients_hold() -> None:
    problem = hinge_problem(rows=20)
    optimum = problem.optimum
    assert optimum.minimum == pytest.approx(hinge_loss(optimum.minimiser, np.arange(20)), rel=1e-12)
    assert problem.evaluate([optimum.minimiser]).train_loss[0] == pytest.approx(optimum.minimum, rel=1e-12)
    assert problem.evaluate([7 * problem.start()]).train_loss[0] == pytest.approx(
        hinge_loss(7 * problem.start(), np.arange(20)), rel=1e-12
    )


# ---------------------------------------------------------------------------------------------------- constants


@cache
def solved() -> list[DrawnProblem | HingeProblem]:
    return [drawn(ROBUST), *(drawn(MEDIAN, seed=seed) for seed in range(3)), hinge_problem()]


def value(problem: DrawnProblem | HingeProblem, client: int, point: NDArray[np.float64]) -> float:
    """What a client descends."""
    if isinstance(problem, HingeProblem):
        return problem.weights[client] * hinge_loss(point, problem.parts[client])
    return float(problem.functions[client].losses(point[None])[0])


entries = st.lists(st.floats(-100, 100), min_size=9, max_size=9).map(np.array)


@given(entries, entries, st.integers(0, 4))
def test_functions_are_lipschitz_and_nowhere_below_the_proven_minimum(
    one: NDArray[np.float64], other: NDArray[np.float64], number: int
) -> None:
    problem = solved()[number]
    one = one[: problem.dimension]
    other = other[: problem.dimension]
    if isinstance(problem, HingeProblem):
        functions = [(problem, weight, rows) for weight, rows in zip(problem.weights, problem.parts, strict=True)]
    else:
        functions = [(function, 1.0, np.arange(problem.settings.samples)) for function in problem.functions]  # type: ignore[misc]
    values = []
    for client, (function, weight, rows) in enumerate(functions):
        values.append(value(problem, client, one))
        far = value(problem, client, other)
        slope = weight * function.subgradient(one, rows)
        assert abs(values[-1] - far) <= problem.B * np.linalg.norm(one - other) * (1 + 1e-12) + 1e-12
        assert far >= values[-1] + slope @ (other - one) - 1e-10  # a subgradient supports the function everywhere
        assert np.linalg.norm(slope) <= problem.B * (1 + 1e-12)
        single = weight * np.array([function.subgradient(one, np.array([row])) for row in rows])
        variance = ((single - slope) ** 2).sum(axis=1).mean()
        assert variance / problem.settings.batch_size <= problem.sigma**2
    loss = problem.evaluate([one]).train_loss[0]
    assert loss == pytest.approx(np.mean(values), rel=1e-12)
    assert loss >= problem.optimum.minimum - problem.optimum.gap - 1e-12


@given(entries)
def test_the_proof_of_the_medians_gap_holds_anywhere(point: NDArray[np.float64]) -> None:
    value = float(square().losses(point[None, :2])[0])
    assert value - 2 * value * square().excess(point[:2]) <= 1 + 1e-12  # the least value is 1, at the origin


def test_constants_by_hand() -> None:
    median = drawn(replace(MEDIAN, batch_size=16))
    assert (median.B, median.sigma) == (1.0, 0.25)
    # mean |a| = 2.5; A'A/2 has the eigenvalue 12.5, whose root is 3.54: the mean is the smaller
    assert AbsoluteErrors(np.array([[3.0, 4.0], [0.0, 0.0]]), np.zeros(2)).lipschitz() == 2.5
    wide = AbsoluteErrors(np.eye(2), np.zeros(2))
    assert wide.lipschitz() == pytest.approx(np.sqrt(0.5), rel=1e-15)  # mean |a| = 1, lambda_max(A'A/2) = ½


# ---------------------------------------------------------------------------------------------------- drawn problems


def test_each_client_has_its_own_true_parameters() -> None:
    quiet = Robust(dimension=3, samples=7, noise=0.0, heterogeneity=2.0)
    truths = [solve_robust([draw(quiet, client)]) for client in range(2)]
    assert max(truth.minimum for truth in truths) < 1e-9
    assert np.linalg.norm(truths[0].minimiser - truths[1].minimiser) > 0.5
    same = drawn(replace(quiet, heterogeneity=0.0))
    np.testing.assert_allclose(same.optimum.minimiser, np.zeros(3), atol=1e-9)


@pytest.mark.parametrize("settings", [replace(ROBUST, start_norm=3.0), replace(MEDIAN, start_norm=3.0)])
def test_squared_distances_and_start(settings: Robust | Median) -> None:
    problem = drawn(settings)
    away = np.zeros(problem.dimension)
    away[:2] = (3.0, 4.0)
    metrics = problem.evaluate([problem.optimum.minimiser + away, problem.optimum.minimiser])
    np.testing.assert_allclose(metrics.squared_distance, [25.0, 0.0], rtol=1e-12)
    assert metrics.train_loss[0] > metrics.train_loss[1]
    assert np.isnan(metrics.test_accuracy).all()
    assert np.linalg.norm(problem.start()) == pytest.approx(3.0, rel=1e-15)
