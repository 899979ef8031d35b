"""The geometric median: subgradients, minimisers with their proofs, and constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from areabench.problems.median import MeanDistance, Median
from areabench.problems.median import solve_median as solve
from areabench.problems.subgradients import DrawnProblem

SETTINGS = Median(dimension=2, samples=4, batch_size=2)


def problem(chosen: Median = SETTINGS, clients: int = 3, local_steps: int = 1, seed: int = 7) -> DrawnProblem:
    """Three clients with four points each in the plane by default."""
    return DrawnProblem(chosen, clients, local_steps, seed, solve)


def square() -> MeanDistance:
    """The corners of a square with the diagonal 2."""
    return MeanDistance(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]))


def test_loss_and_subgradient_by_hand() -> None:
    # from (3, 4), whose distance from the origin is 5
    piece = MeanDistance(np.array([[0.0, 0.0], [3.0, 3.0]]))
    model = np.array([3.0, 4.0])
    np.testing.assert_array_equal(piece.losses(model[None]), [3.0])
    np.testing.assert_array_equal(piece.subgradient(model, np.array([0])), [0.6, 0.8])
    np.testing.assert_array_equal(piece.subgradient(model, np.array([0, 1])), [0.3, 0.9])
    np.testing.assert_array_equal(piece.subgradient(np.zeros(2), np.array([0])), [0.0, 0.0])


def test_subgradient_matches_finite_differences() -> None:
    piece = problem().draw(1)
    point, width = np.array([0.3, -2.0]), 1e-6
    ends = [piece.losses(np.array([point + width * axis, point - width * axis])) for axis in np.eye(2)]
    slopes = [(above - below) / (2 * width) for above, below in ends]
    np.testing.assert_allclose(piece.subgradient(point, np.arange(4)), slopes, atol=1e-8)


def test_newton_step_by_hand() -> None:
    # at the origin each corner adds (I - uu')/1: H = ½·I
    np.testing.assert_allclose(square().newton_step(np.zeros(2), np.array([1.0, 2.0])), [-2.0, -4.0], rtol=1e-15)


def test_median_of_a_square_and_of_an_obtuse_triangle() -> None:
    optimum = solve([square()])
    np.testing.assert_allclose(optimum.minimiser, [0.0, 0.0], atol=1e-12)
    assert optimum.minimum == pytest.approx(1.0, rel=1e-15)
    # with an angle of 120° or more the median is that corner, where f has a kink
    corner = solve([MeanDistance(np.array([[0.0, 0.0], [5.0, 1.0], [-5.0, 1.0]]))])
    np.testing.assert_array_equal(corner.minimiser, [0.0, 0.0])
    assert corner.minimum == pytest.approx(2 * np.sqrt(26) / 3, rel=1e-15)
    assert (optimum.exact, corner.exact, corner.gap) == (True, True, 0.0)


def test_iterations_get_past_a_point_that_is_not_the_median() -> None:
    # the mean, where iterations start, is the point (0, 0), which the crowd at (1, ±0.1) outweighs
    points = np.array([[0.0, 0], [1, 0.1], [1, -0.1], [1.1, 0], [0.9, 0], [-4, 0]])
    optimum = solve([MeanDistance(points)])
    assert points.mean(axis=0).tolist() == [0.0, 0.0]
    assert optimum.exact
    assert optimum.minimiser[0] > 0.5
    np.testing.assert_allclose(optimum.minimiser[1], 0.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_minimum_agrees_with_brute_force_in_the_plane(seed: int) -> None:
    median = problem(clients=2, seed=seed)
    centre, width = np.zeros(2), 8.0
    for _ in range(12):  # ever finer grids about the best point of the last
        axis = np.linspace(-width, width, 21)
        grid = centre + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        losses = median.evaluate(list(grid)).train_loss
        centre, width = grid[losses.argmin()], width / 4
    # the last grid has a spacing of 2e-7, and f is 1-Lipschitz
    assert losses.min() - 2e-7 <= median.optimum.minimum <= losses.min() + 1e-12
    np.testing.assert_allclose(median.optimum.minimiser, centre, atol=1e-3)
    assert median.optimum.exact


vectors = st.lists(st.floats(-100, 100), min_size=2, max_size=2).map(np.array)


@given(vectors, vectors, st.sampled_from([problem(seed=seed) for seed in range(6)]))
def test_functions_are_lipschitz_and_nowhere_below_the_proven_bound(
    one: NDArray[np.float64], other: NDArray[np.float64], median: DrawnProblem
) -> None:
    for piece in median.functions:
        losses = piece.losses(np.array([one, other]))
        subgradient = piece.subgradient(one, np.arange(4))
        assert abs(losses[0] - losses[1]) <= median.B * np.linalg.norm(one - other) * (1 + 1e-12) + 1e-12
        assert losses[1] >= losses[0] + subgradient @ (other - one) - 1e-10
        single = np.array([piece.subgradient(one, np.array([row])) for row in range(4)])
        assert ((single - subgradient) ** 2).sum(axis=1).mean() / SETTINGS.batch_size <= median.sigma**2
    assert median.evaluate([one]).train_loss[0] >= median.optimum.minimum - median.optimum.gap - 1e-12


@given(vectors)
def test_the_proof_of_the_gap_holds_anywhere(point: NDArray[np.float64]) -> None:
    value = float(square().losses(point[None])[0])
    assert value - 2 * value * square().excess(point) <= 1 + 1e-12  # the least value is 1, at the origin


def test_constants() -> None:
    median = problem(replace(SETTINGS, batch_size=16))
    assert (median.B, median.sigma) == (1.0, 0.25)


def test_evaluation_and_start() -> None:
    median = problem(replace(SETTINGS, start_norm=3.0))
    metrics = median.evaluate([median.optimum.minimiser + [3.0, 4.0]])
    np.testing.assert_allclose(metrics.squared_distance, [25.0], rtol=1e-12)
    assert np.isnan(metrics.test_accuracy).all()
    assert np.linalg.norm(median.start()) == pytest.approx(3.0, rel=1e-15)
