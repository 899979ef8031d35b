"""The statistics and figures of the numerical studies, from numbers whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.quadratics import GivenQuadratic

import areabench
from areabench.api import read_experiment
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from studies import gallery, statistics
from studies.letters import typeset
from studies.limits import Limit, draw_limits, weighted_minimiser
from studies.points import Point, Trace
from studies.server_rates import ServerRates, draw_server_rates


def test_slope_of_power_laws_is_their_exponent_and_its_interval_covers_the_trials() -> None:
    across = np.geomspace(10, 1000, 7)
    found = statistics.fit_slope(across, np.array([1.0, 2.0, 5.0])[:, None] * across**-0.5)
    assert (found.value, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))
    found = statistics.fit_slope(across, np.array([across**-1.0, across**-0.5]))
    assert -1.001 < found.low < found.value < found.high < -0.499


def test_band_is_as_wide_as_the_standard_error() -> None:
    values = np.random.default_rng(1).standard_normal((400, 1))
    found = statistics.band(values)
    error = values.std() / 20
    assert (found.high - found.low)[0] == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert statistics.band(np.full((4, 3), 2.0)).high == pytest.approx([2, 2, 2])


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


SECTIONS = {"clients": {"count": 2}, "method": {"name": "area", "step_size": 0.1}, "stop": {"iterations": 10}}


def experiment(method: str) -> Experiment:
    problem = {"name": "quadratic", "dimension": 2, "zeta": 1.0}
    return read_experiment(SECTIONS, problem=problem, method={"name": method, "step_size": 0.1})


def point(method: str, *squared: float) -> Point:
    """One trial with snapshots at 0, 5, 10, ... iterations."""
    own = experiment(method)
    distances = np.array(squared)
    return Point(own, (Trace(own, 5 * np.arange(len(squared)), distances, distances, np.zeros((len(squared), 2))),))


def test_limits_of_each_method_over_the_ratio_and_the_way_there() -> None:
    limits = [Limit("area", 1.0, ratio, np.array([1e-3, 3e-3]), 0.25) for ratio in (1.0, 90.0)]
    limits += [Limit("fedbuff", 1.0, ratio, np.array([0.2, 0.4]), 0.25) for ratio in (1.0, 90.0)]
    points = [point("area", 9.0), point("area", 1.0, 4e-4), point("fedbuff", 9.0), point("fedbuff", 1.0, 0.09)]
    way, ends = draw_limits(limits, points, width_in=3.3).axes
    shown = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in ends.lines}
    assert shown["AREA"] == pytest.approx([2e-3, 2e-3])
    assert shown["FedBuff"] == pytest.approx([0.3, 0.3])
    assert [value for name, value in shown.items() if name.startswith("minimiser")] == [[0.25]]  # not at ratio 1
    assert [np.asarray(line.get_ydata()).tolist() for line in way.lines] == [[1.0, 0.02], [1.0, 0.3]]  # roots
    assert way.get_title() == "ratio of rates 90, ζ = 1"


def test_gaps_are_relative_to_that_at_the_best_rate_of_the_closed_form() -> None:
    gaps = np.array([[4.0, 2.0, 6.0], [8.0, 2.0, 2.0]])
    found = ServerRates("equal rates", 20.0, np.array([0.25, 1.0, 4.0]), gaps, np.array([30.0, 10.0, 20.0]))
    (axes,) = draw_server_rates([found], width_in=3.3).axes
    shown = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert shown["measured, 95 % interval"] == pytest.approx([3.0, 1.0, 2.0])
    assert shown["bound of Theorem 2"] == pytest.approx([3.0, 1.0, 2.0])
    assert axes.get_title() == r"equal rates: $\lambda_s^*$ = 20 1/s"


def test_a_study_says_which_sweep_it_needs(tmp_path: Path) -> None:
    def swept(problem: str, **data: Any) -> areabench.Sweep:
        return areabench.sweep(SECTIONS, problem=problem, **data, trials=1, jobs=1, output=tmp_path / problem)

    robust = swept("robust")
    quadratic = swept("quadratic")
    logistic = swept("logistic", data="synthetic", split="dirichlet")
    for draw, sweep, told in (
        (gallery.theorem1, robust, r"needs a sweep of smooth, strongly convex problems \(quadratic\), not robust"),
        (gallery.theorem2, quadratic, 'needs a sweep of problem.name = "robust", not "quadratic"'),
        (gallery.limits, quadratic, 'needs a sweep of problem.name = "quadratic" with a problem.zeta'),
        (gallery.server_rate, robust, 'needs a sweep over aggregation.rate, with aggregation.name = "poisson"'),
        (gallery.theorem1, logistic, "this study needs a sweep of a problem that draws its own data"),
        (gallery.server_rate, logistic, "this study needs a sweep of a problem that draws its own data"),
    ):
        with pytest.raises(UserError, match=told):
            draw(sweep)


def test_letters_are_set() -> None:
    figure = Figure()
    figure.suptitle("E|x_s,K - x*|² at zeta = 1, and x_s")
    typeset(figure)
    assert figure.get_suptitle() == "E|$x_{s,K}$ - $x^*$|² at ζ = 1, and $x_s$"
