"""The quadratics: their curvature, minimisers, noise and local descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.quadratics import GivenQuadratic

from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.streams import Purpose, stream

SETTINGS = Quadratic(dimension=5, curvature_min=0.5, curvature_max=8.0, heterogeneity=2.0, start_distance=3.0)


def problem(settings: Quadratic = SETTINGS, clients: int = 3) -> QuadraticProblem:
    """Three clients in five dimensions by default."""
    return QuadraticProblem(settings, clients, 1, 7)


def two_functions(local_steps: int = 1, noise: float = 0.0) -> QuadraticProblem:
    """H_0 = diag(1, 2) about (1, 0), H_1 = diag(3, 2) about (0, 2)."""
    hessians = [[[1, 0], [0, 2]], [[3, 0], [0, 2]]]
    return GivenQuadratic(hessians, [[1, 0], [0, 2]], [4, 4], local_steps, noise)


def test_two_functions_by_hand() -> None:
    quadratic = two_functions(local_steps=2, noise=0.0)
    # (1·1 + 3·0) / (1 + 3) and (2·0 + 2·2) / (2 + 2)
    np.testing.assert_array_equal(quadratic.minimiser, [0.25, 1.0])
    # f_0 = ½ (1·0.75² + 2·1²) = 1.28125, f_1 = ½ (3·0.25² + 2·1²) = 1.09375
    assert (quadratic.optimum.minimum, quadratic.optimum.exact) == (1.1875, True)
    assert (quadratic.mu, quadratic.L, two_functions(noise=0.5).sigma) == (1.0, 3.0, 0.5)
    # x* lies sqrt(0.75² + 1²) = 1.25 from (1, 0) and sqrt(0.25² + 1²) from (0, 2)
    assert quadratic.zeta == 1.25
    # client 0, alpha = 1/4: (4, 4) -> (4 - 3/4, 4 - 8/4) = (3.25, 2) -> (3.25 - 2.25/4, 2 - 4/4)
    np.testing.assert_array_equal(quadratic.local(0).descend(quadratic.start(), 0.25), [2.6875, 1.0])
    # client 1, alpha = 1/4: (4, 4) -> (4 - 12/4, 4 - 4/4) = (1, 3) -> (1 - 3/4, 3 - 2/4)
    np.testing.assert_array_equal(quadratic.local(1).descend(quadratic.start(), 0.25), [0.25, 2.5])
    metrics = quadratic.evaluate([np.array([4.0, 4.0]), np.array([0.25, 1.0])])
    # at (4, 4): f_0 = ½ (9 + 32) = 20.5, f_1 = ½ (48 + 8) = 28; offset from the minimiser (3.75, 3)
    np.testing.assert_array_equal(metrics.train_loss, [24.25, 1.1875])
    np.testing.assert_array_equal(metrics.squared_distance, [23.0625, 0.0])
    assert np.isnan(metrics.test_accuracy).all()


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
    centre = 2.0 * generator.standard_normal(5)
    curvatures = generator.uniform(0.5, 8.0, 5)
    curvatures[0] = 0.5
    curvatures[-1] = 8.0
    basis, _ = np.linalg.qr(generator.standard_normal((5, 5)))
    hessian = (basis * curvatures) @ basis.T
    found = list(problem().functions())[1]
    np.testing.assert_array_equal(found.centre, centre)
    np.testing.assert_array_equal(found.hessian, 0.5 * (hessian + hessian.T))
    drawn = problem(Quadratic(dimension=3), clients=2).function(1).centre
    assert [entry.hex() for entry in drawn] == ["0x1.8c59e5d2cced5p-1", "0x1.0de82d80da2ddp+0", "-0x1.2929434b08702p-2"]


@pytest.mark.parametrize(("dimension", "ends"), [(1, [8.0, 8.0]), (2, [0.5, 8.0]), (3, [0.5, 8.0]), (12, [0.5, 8.0])])
def test_both_extreme_curvatures_are_attained(dimension: int, ends: list[float]) -> None:
    quadratic = problem(replace(SETTINGS, dimension=dimension))
    assert [quadratic.mu, quadratic.L] == ends
    for function in quadratic.functions():
        np.testing.assert_array_equal(function.hessian, function.hessian.T)
        np.testing.assert_allclose(np.linalg.eigvalsh(function.hessian)[[0, -1]], ends, rtol=1e-12)


def test_no_heterogeneity_means_one_common_minimiser() -> None:
    quadratic = problem(Quadratic(dimension=4, heterogeneity=0.0))
    np.testing.assert_array_equal(quadratic.minimiser, np.zeros(4))
    assert quadratic.minimum == 0.0


def test_start_lies_at_the_given_distance() -> None:
    quadratic = problem()
    np.testing.assert_allclose(quadratic.evaluate([quadratic.start()]).squared_distance, [9.0], rtol=1e-12)


def test_noise_has_the_given_total_variance_and_is_each_clients_own() -> None:
    noisy = problem(Quadratic(dimension=4, noise=3.0))
    client = noisy.local(0)
    centre = noisy.function(0).centre  # the gradient is 0 here: a step of size 1 shows the noise alone
    noise = np.array([client.descend(centre, 1.0) - centre for _ in range(4000)])
    squared_norms = (noise**2).sum(axis=1)
    # E = 9; the mean of 4,000 draws deviates by 9·sqrt(2/4)/sqrt(4000) = 0.1: five deviations are 0.5
    assert abs(squared_norms.mean() - 9.0) < 0.5
    assert np.abs(noise.mean(axis=0)).max() < 0.15
    same = GivenQuadratic([np.eye(2)] * 2, np.zeros((2, 2)), [0, 0], local_steps=1, noise=1.0)
    first, second = (same.local(client).descend(same.start(), 1.0) for client in range(2))
    assert not np.array_equal(first, second)


def test_without_noise_nothing_is_drawn() -> None:
    client = problem().local(0)
    before = client._generator.bit_generator.state
    client.descend(np.zeros(5), 0.1)
    assert client._generator.bit_generator.state == before


@pytest.mark.parametrize("zeta", [0.0, 1e-3, 2.5, 1e6])
@pytest.mark.parametrize("clients", [2, 7])
def test_zeta_scales_the_centres_alone(zeta: float, clients: int) -> None:
    plain = problem(Quadratic(dimension=4), clients)
    scaled = problem(Quadratic(dimension=4, zeta=zeta), clients)
    other = problem(Quadratic(dimension=4, zeta=zeta, heterogeneity=30.0), clients)
    offsets = [scaled.minimiser - function.centre for function in scaled.functions()]
    np.testing.assert_allclose(max(np.linalg.norm(offset) for offset in offsets), zeta, rtol=1e-12)
    np.testing.assert_allclose(scaled.zeta, zeta, rtol=1e-12)
    np.testing.assert_allclose(scaled.minimiser, other.minimiser, rtol=1e-12)
    factor = zeta / plain.zeta
    for one, same in zip(scaled.functions(), plain.functions(), strict=True):
        np.testing.assert_array_equal(one.hessian, same.hessian)
        np.testing.assert_allclose(one.centre, factor * same.centre, rtol=1e-14)
    np.testing.assert_allclose(scaled.minimum, factor**2 * plain.minimum, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(scaled.start() - scaled.minimiser), 1.0, rtol=1e-9)
