"""The quadratics: their curvature, minimisers, noise and local descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.quadratics import GivenQuadratic

from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.streams import Purpose, stream

SETTINGS = Quadratic(dimension=5, curvature_min=0.5, curvature_max=8.0, heterogeneity=2.0, start_distance=3.0)


def problem(settings: Quadratic = SETTINGS, clients: int = 3, local_steps: int = 1, seed: int = 7) -> QuadraticProblem:
    """Three clients in five dimensions by default."""
    return QuadraticProblem(settings, clients, local_steps, seed)


def two_bowls(local_steps: int = 1, noise: float = 0.0) -> QuadraticProblem:
    """H_0 = diag(1, 2) about (1, 0), H_1 = diag(3, 2) about (0, 2)."""
    hessians = [[[1, 0], [0, 2]], [[3, 0], [0, 2]]]
    return GivenQuadratic(hessians, [[1, 0], [0, 2]], [4, 4], local_steps, noise)


def test_gradient_matches_finite_differences() -> None:
    bowl = problem().function(1)
    point, width = np.arange(5.0), 1e-4
    slopes = [(bowl.loss(point + width * axis) - bowl.loss(point - width * axis)) / (2 * width) for axis in np.eye(5)]
    np.testing.assert_allclose(bowl.gradient(point), slopes, rtol=1e-7, atol=1e-7)


def test_one_step_goes_along_the_negative_gradient() -> None:
    quadratic = problem()
    point = np.arange(5.0)
    moved = quadratic.local(2).descend(point, 0.25)
    np.testing.assert_array_equal(moved, point - 0.25 * quadratic.function(2).gradient(point))


def test_global_gradient_vanishes_at_the_minimiser() -> None:
    quadratic = problem()
    gradient = sum(quadratic.function(client).gradient(quadratic.minimiser) for client in range(3))
    np.testing.assert_allclose(gradient, np.zeros(5), atol=1e-12)
    assert np.linalg.norm(quadratic.function(0).gradient(quadratic.minimiser)) > 0.1


def test_minimiser_of_two_bowls_by_hand() -> None:
    quadratic = two_bowls()
    # (1·1 + 3·0) / (1 + 3) and (2·0 + 2·2) / (2 + 2)
    np.testing.assert_array_equal(quadratic.minimiser, [0.25, 1.0])
    # f_0 = ½ (1·0.75² + 2·1²) = 1.28125, f_1 = ½ (3·0.25² + 2·1²) = 1.09375
    assert quadratic.minimum == 1.1875
    np.testing.assert_array_equal(quadratic.function(1).centre, [0.0, 2.0])
    assert (quadratic.mu, quadratic.L) == (1.0, 3.0)


@pytest.mark.parametrize("zeta", [None, 2.0])
def test_functions_that_are_kept_are_those_that_are_drawn_again(
    monkeypatch: pytest.MonkeyPatch, zeta: float | None
) -> None:
    settings = replace(SETTINGS, zeta=zeta)
    kept = problem(settings)
    monkeypatch.setattr("areabench.problems.quadratic._KEPT_BYTES", 0)
    monkeypatch.setattr("areabench.problems.quadratic._ENTRIES_AT_ONCE", 60)  # two functions of 5·(5+1) entries
    again = problem(settings)
    assert (kept.minimum, kept.zeta) == (again.minimum, again.zeta)
    np.testing.assert_array_equal(kept.start(), again.start())
    np.testing.assert_array_equal(kept.mean_hessian, again.mean_hessian)
    for client in (2, 0):
        np.testing.assert_array_equal(kept.function(client).hessian, again.function(client).hessian)
        np.testing.assert_array_equal(kept.function(client).centre, again.function(client).centre)


def test_a_function_has_the_bits_of_earlier_runs() -> None:
    """One matrix at a time, as LAPACK is called for a single client."""
    generator = stream(7, Purpose.PROBLEM, 1)
    centre, curvatures = 2.0 * generator.standard_normal(5), generator.uniform(0.5, 8.0, 5)
    curvatures[0], curvatures[-1] = 0.5, 8.0
    basis, _ = np.linalg.qr(generator.standard_normal((5, 5)))
    hessian = (basis * curvatures) @ basis.T
    found = list(problem().functions())[1]
    np.testing.assert_array_equal(found.centre, centre)
    np.testing.assert_array_equal(found.hessian, 0.5 * (hessian + hessian.T))


def test_trajectory_by_hand() -> None:
    quadratic = two_bowls(local_steps=2)
    # client 0, alpha = 1/4: (4, 4) -> (4 - 3/4, 4 - 8/4) = (3.25, 2) -> (3.25 - 2.25/4, 2 - 4/4)
    np.testing.assert_array_equal(quadratic.local(0).descend(quadratic.start(), 0.25), [2.6875, 1.0])
    # client 1, alpha = 1/4: (4, 4) -> (4 - 12/4, 4 - 4/4) = (1, 3) -> (1 - 3/4, 3 - 2/4)
    np.testing.assert_array_equal(quadratic.local(1).descend(quadratic.start(), 0.25), [0.25, 2.5])


def test_evaluation_by_hand() -> None:
    metrics = two_bowls().evaluate([np.array([4.0, 4.0]), np.array([0.25, 1.0])])
    # at (4, 4): f_0 = ½ (9 + 32) = 20.5, f_1 = ½ (48 + 8) = 28; offset from the minimiser (3.75, 3)
    np.testing.assert_array_equal(metrics.train_loss, [24.25, 1.1875])
    np.testing.assert_array_equal(metrics.squared_distance, [23.0625, 0.0])
    assert np.isnan(metrics.test_accuracy).all()


def test_evaluation_is_the_mean_of_the_local_losses() -> None:
    quadratic = problem()
    point = np.arange(5.0)
    mean = np.mean([quadratic.function(client).loss(point) for client in range(3)])
    np.testing.assert_allclose(quadratic.evaluate([point]).train_loss, [mean], rtol=1e-13)


@pytest.mark.parametrize("dimension", [2, 3, 12])
def test_both_extreme_curvatures_are_attained(dimension: int) -> None:
    quadratic = problem(Quadratic(dimension=dimension, curvature_min=0.5, curvature_max=8.0))
    for client in range(3):
        hessian = quadratic.function(client).hessian
        np.testing.assert_array_equal(hessian, hessian.T)
        curvatures = np.linalg.eigvalsh(hessian)
        np.testing.assert_allclose(curvatures[[0, -1]], [0.5, 8.0], rtol=1e-12)


def test_one_dimension_has_the_largest_curvature() -> None:
    quadratic = problem(Quadratic(dimension=1, curvature_min=0.5, curvature_max=8.0))
    np.testing.assert_allclose(quadratic.function(0).hessian, [[8.0]], rtol=1e-15)
    assert (quadratic.mu, quadratic.L) == (8.0, 8.0)


def test_more_clients_leave_the_first_ones_alone() -> None:
    few, many = problem(clients=2), problem(clients=9)
    np.testing.assert_array_equal(few.function(1).hessian, many.function(1).hessian)
    np.testing.assert_array_equal(few.function(1).centre, many.function(1).centre)
    assert not np.array_equal(many.function(1).centre, many.function(2).centre)


def test_no_heterogeneity_means_one_common_minimiser() -> None:
    quadratic = problem(Quadratic(dimension=4, heterogeneity=0.0))
    np.testing.assert_array_equal(quadratic.minimiser, np.zeros(4))
    assert quadratic.minimum == 0.0


def test_start_lies_at_the_given_distance() -> None:
    quadratic = problem()
    np.testing.assert_allclose(np.linalg.norm(quadratic.start() - quadratic.minimiser), 3.0, rtol=1e-12)
    np.testing.assert_allclose(quadratic.evaluate([quadratic.start()]).squared_distance, [9.0], rtol=1e-12)


def test_noise_has_the_given_total_variance() -> None:
    noisy = Quadratic(dimension=4, noise=3.0)
    client = problem(noisy, local_steps=1).local(0)
    centre = problem(noisy).function(0).centre  # the gradient is 0 here: a step of size 1 shows the noise alone
    noise = np.array([client.descend(centre, 1.0) - centre for _ in range(4000)])
    squared_norms = (noise**2).sum(axis=1)
    # E = 9; the mean of 4,000 draws deviates by 9·sqrt(2/4)/sqrt(4000) = 0.1: five deviations are 0.5
    assert abs(squared_norms.mean() - 9.0) < 0.5
    assert np.abs(noise.mean(axis=0)).max() < 0.15


def test_without_noise_nothing_is_drawn() -> None:
    client = problem().local(0)
    before = client._generator.bit_generator.state
    client.descend(np.zeros(5), 0.1)
    assert client._generator.bit_generator.state == before


def test_clients_have_noise_of_their_own() -> None:
    quadratic = GivenQuadratic([np.eye(2)] * 2, np.zeros((2, 2)), [0, 0], local_steps=1, noise=1.0)
    first, second = (quadratic.local(client).descend(quadratic.start(), 1.0) for client in range(2))
    assert not np.array_equal(first, second)


def test_divergence_is_silent_and_not_finite() -> None:
    quadratic = two_bowls(local_steps=400)
    with np.errstate(all="raise"):
        moved = quadratic.local(0).descend(quadratic.start(), 1e3)
        assert not np.isfinite(moved).any()
        assert not np.isfinite(quadratic.evaluate([moved]).train_loss).any()


# ---------------------------------------------------------------------------------------------------- constants


def test_constants_of_two_bowls_by_hand() -> None:
    quadratic = two_bowls(noise=0.5)
    assert quadratic.sigma == 0.5
    # x* = (0.25, 1) lies sqrt(0.75² + 1²) = 1.25 from (1, 0) and sqrt(0.25² + 1²) from (0, 2)
    assert quadratic.zeta == 1.25
    assert (quadratic.optimum.minimum, quadratic.optimum.exact) == (1.1875, True)


@pytest.mark.parametrize("zeta", [0.0, 1e-3, 2.5, 1e6])
@pytest.mark.parametrize("clients", [2, 7])
def test_zeta_is_as_asked_for(zeta: float, clients: int) -> None:
    scaled = problem(Quadratic(dimension=4, zeta=zeta), clients)
    offsets = [scaled.minimiser - scaled.function(client).centre for client in range(clients)]
    np.testing.assert_allclose(max(np.linalg.norm(offset) for offset in offsets), zeta, rtol=1e-12)
    np.testing.assert_allclose(scaled.zeta, zeta, rtol=1e-12)


def test_zeta_scales_the_centres_alone() -> None:
    plain, scaled = problem(Quadratic(dimension=4)), problem(Quadratic(dimension=4, zeta=2.5))
    factor = 2.5 / plain.zeta
    for client in range(3):
        np.testing.assert_array_equal(scaled.function(client).hessian, plain.function(client).hessian)
        np.testing.assert_allclose(scaled.function(client).centre, factor * plain.function(client).centre, rtol=1e-14)
    np.testing.assert_allclose(scaled.minimum, factor**2 * plain.minimum, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(scaled.start() - scaled.minimiser), 1.0, rtol=1e-12)


def test_zeta_makes_heterogeneity_a_matter_of_shape() -> None:
    one, other = (problem(Quadratic(dimension=4, zeta=2.5, heterogeneity=width)) for width in (0.1, 30.0))
    np.testing.assert_allclose(one.minimiser, other.minimiser, rtol=1e-12)


def test_without_zeta_the_draws_never_change() -> None:
    """Run files made before there was a zeta still replay."""
    centre = problem(Quadratic(dimension=3), clients=2).function(1).centre
    assert [entry.hex() for entry in centre] == [
        "0x1.8c59e5d2cced5p-1",
        "0x1.0de82d80da2ddp+0",
        "-0x1.2929434b08702p-2",
    ]
