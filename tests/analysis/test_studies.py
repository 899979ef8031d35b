"""The statistics of the numerical studies, on curves whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.quadratics import GivenQuadratic

pytest.importorskip("matplotlib")

from studies import statistics
from studies.limits import weighted_minimiser
from studies.server_rates import ServerRates


def test_slope_of_a_power_law_is_its_exponent() -> None:
    across = np.geomspace(10, 1000, 7)
    found = statistics.fit_slope(across, np.array([1.0, 2.0, 5.0])[:, None] * across**-0.5)
    assert (found.value, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))


def test_slope_interval_covers_trials_that_differ() -> None:
    across = np.geomspace(10, 1000, 7)
    found = statistics.fit_slope(across, np.array([across**-1.0, across**-0.5]))
    assert -1.001 < found.low < found.value < found.high < -0.499
    assert str(statistics.Interval(-0.5, -0.6, -0.4)) == "-0.500 (-0.600 to -0.400)"


def test_band_of_equal_trials_has_no_width() -> None:
    found = statistics.band(np.full((4, 3), 2.0))
    for values in (found.mean, found.low, found.high):
        assert values == pytest.approx([2, 2, 2])


def test_band_is_as_wide_as_the_standard_error() -> None:
    values = np.random.default_rng(1).standard_normal((400, 1))
    found = statistics.band(values)
    error = values.std() / 20
    assert (found.high - found.low)[0] == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_spaced_points_rise_and_reach_both_ends() -> None:
    chosen = statistics.spaced(np.arange(1.0, 1001.0), 10)
    assert chosen[0] == 0
    assert chosen[-1] == 999
    assert (np.diff(chosen) > 0).all()
    assert len(chosen) == 10


def test_weighted_minimiser_by_hand() -> None:
    """(1/4)·x² at 0 with weight 1/4 against x² at 4 with weight 3/4, curvatures 1 and 2: (2·4·3/4)/(1/4 + 6/4)."""
    problem = GivenQuadratic([[[1.0]], [[2.0]]], [[0.0], [4.0]], [0.0], local_steps=1)
    found = weighted_minimiser(problem, np.array([0.25, 0.75]))
    np.testing.assert_allclose(found, [6 / 1.75])
    np.testing.assert_allclose(weighted_minimiser(problem, np.array([0.5, 0.5])), problem.minimiser)


@pytest.mark.parametrize("best", [0.25, 1.0, 1.7])
def test_best_server_rate_of_a_parabola_is_its_vertex(best: float) -> None:
    factors = np.array([2.0**power for power in range(-4, 5)])
    gaps = np.exp((np.log(factors) - np.log(best)) ** 2)
    found = ServerRates("", 1.0, factors, np.array([gaps, 2 * gaps]), gaps).measured_best
    assert (found.value, found.low, found.high) == pytest.approx((best, best, best))
