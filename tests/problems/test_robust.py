"""l1 regression: subgradients, minimiser, constants and local descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from areabench.problems.minibatches import Minibatches
from areabench.problems.robust import AbsoluteErrors, Robust
from areabench.problems.robust import solve_robust as solve
from areabench.problems.subgradients import DrawnProblem, LocalSubgradient
from areabench.streams import Purpose, stream

SETTINGS = Robust(dimension=3, samples=7, batch_size=2)


def problem(chosen: Robust = SETTINGS, clients: int = 3, local_steps: int = 1, seed: int = 7) -> DrawnProblem:
    """Three clients with seven samples each by default."""
    return DrawnProblem(chosen, clients, local_steps, seed, solve)


def by_hand() -> AbsoluteErrors:
    """|x - 1|, |2y| and |3x - 3y + 1|, one per sample."""
    return AbsoluteErrors(np.array([[1.0, 0], [0, 2], [3, -3]]), np.array([1.0, 0, -1]))


def test_loss_and_subgradient_by_hand() -> None:
    piece = by_hand()
    # at (1, 1): residuals 0, 2 and 1
    np.testing.assert_array_equal(piece.losses(np.array([[1.0, 1.0], [2.0, 0.0]])), [1.0, (1 + 0 + 7) / 3])
    np.testing.assert_array_equal(piece.subgradient(np.ones(2), np.array([0, 1, 2])), [1.0, -1 / 3])
    np.testing.assert_array_equal(piece.subgradient(np.ones(2), np.array([1, 1])), [0.0, 2.0])
    assert piece.mean_square() == (1 + 4 + 18) / 3


def test_trajectory_by_hand() -> None:
    local = LocalSubgradient(by_hand(), Minibatches(0, 0, np.array([1]), 2, 3))
    # only sample 1, |2y|: two steps of 0.5·2 from y = 1.5, the second of them over the kink and back
    np.testing.assert_array_equal(local.descend(np.array([4.0, 1.5]), 0.5), [4.0, -0.5])
    assert local.descend(np.array([4.0, 0.0]), 0.5).tolist() == [4.0, 0.0]  # on the kink 0 is a subgradient


def test_subgradient_matches_finite_differences() -> None:
    piece = problem().draw(1)
    point, width = np.arange(3.0), 1e-6
    ends = [piece.losses(np.array([point + width * axis, point - width * axis])) for axis in np.eye(3)]
    slopes = [(above - below) / (2 * width) for above, below in ends]
    np.testing.assert_allclose(piece.subgradient(point, np.arange(7)), slopes, atol=1e-8)


def test_minimiser_in_one_dimension_is_a_median() -> None:
    # mean |x - b| has its minimum at the median 2: (3 + 0 + 98)/3
    optimum = solve([AbsoluteErrors(np.ones((1, 1)), np.array([target])) for target in (-1.0, 2.0, 100.0)])
    np.testing.assert_allclose(optimum.minimiser, [2.0], atol=1e-12)
    assert optimum.minimum == pytest.approx(101 / 3, rel=1e-14)
    assert optimum.exact


def test_minimiser_is_the_best_vertex() -> None:
    """The minimum is attained where two residuals vanish: try every pair of samples."""
    robust = problem(replace(SETTINGS, dimension=2))
    functions = [replace(SETTINGS, dimension=2).draw(stream(7, Purpose.PROBLEM, client)) for client in range(3)]
    inputs, targets = np.concatenate([p.inputs for p in functions]), np.concatenate([p.targets for p in functions])
    pairs = [(one, other) for one in range(21) for other in range(one)]
    vertices = np.array([np.linalg.solve(inputs[list(pair)], targets[list(pair)]) for pair in pairs])
    losses = robust.evaluate(list(vertices)).train_loss
    np.testing.assert_allclose(robust.optimum.minimiser, vertices[losses.argmin()], rtol=1e-9)
    assert robust.optimum.minimum == pytest.approx(losses.min(), rel=1e-12)
    assert robust.optimum.exact


def test_an_unproven_minimum_is_not_exact() -> None:
    assert not replace(problem().optimum, gap=1e-3).exact


vectors = st.lists(st.floats(-100, 100), min_size=3, max_size=3).map(np.array)


@given(vectors, vectors)
def test_functions_are_lipschitz_and_nowhere_below_the_minimum(
    one: NDArray[np.float64], other: NDArray[np.float64]
) -> None:
    robust = problem()
    for piece in robust.functions:
        losses = piece.losses(np.array([one, other]))
        assert abs(losses[0] - losses[1]) <= robust.B * np.linalg.norm(one - other) * (1 + 1e-12) + 1e-12
        assert np.linalg.norm(piece.subgradient(one, np.arange(7))) <= robust.B
        # a subgradient supports the function everywhere
        assert losses[1] >= losses[0] + piece.subgradient(one, np.arange(7)) @ (other - one) - 1e-10
    assert robust.evaluate([one]).train_loss[0] >= robust.optimum.minimum - 1e-12


@given(vectors)
def test_noise_of_a_mini_batch_is_below_sigma(point: NDArray[np.float64]) -> None:
    robust = problem()
    for piece in robust.functions:
        single = np.array([piece.subgradient(point, np.array([row])) for row in range(7)])
        variance = ((single - piece.subgradient(point, np.arange(7))) ** 2).sum(axis=1).mean()
        assert variance / SETTINGS.batch_size <= robust.sigma**2


def test_constants_by_hand() -> None:
    piece = AbsoluteErrors(np.array([[3.0, 4.0], [0.0, 0.0]]), np.zeros(2))
    # mean |a| = 2.5; A'A/2 has the eigenvalue 12.5, whose root is 3.54: the mean is the smaller
    assert piece.lipschitz() == 2.5
    wide = AbsoluteErrors(np.eye(2), np.zeros(2))
    assert wide.lipschitz() == pytest.approx(np.sqrt(0.5), rel=1e-15)  # mean |a| = 1, lambda_max(A'A/2) = ½


def test_each_client_has_its_own_true_parameters() -> None:
    quiet = Robust(dimension=3, samples=7, noise=0.0, heterogeneity=2.0)
    truths = [solve([quiet.draw(stream(7, Purpose.PROBLEM, client))]) for client in range(2)]
    assert max(truth.minimum for truth in truths) < 1e-9
    assert np.linalg.norm(truths[0].minimiser - truths[1].minimiser) > 0.5
    same = problem(replace(quiet, heterogeneity=0.0))
    np.testing.assert_allclose(same.optimum.minimiser, np.zeros(3), atol=1e-9)


def test_evaluation() -> None:
    robust = problem()
    metrics = robust.evaluate([robust.optimum.minimiser + [3.0, 0.0, 4.0], robust.optimum.minimiser])
    np.testing.assert_allclose(metrics.squared_distance, [25.0, 0.0], rtol=1e-12)
    assert metrics.train_loss[1] == pytest.approx(robust.optimum.minimum, rel=1e-14)
    assert metrics.train_loss[0] > metrics.train_loss[1]
    assert np.isnan(metrics.test_accuracy).all()


def test_more_clients_leave_the_first_ones_alone() -> None:
    few, many = problem(clients=2).functions, problem(clients=5).functions
    point = np.ones((1, 3))
    assert [piece.losses(point) for piece in few] == [piece.losses(point) for piece in many[:2]]
