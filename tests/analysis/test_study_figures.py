"""The figures of the studies: from numbers made by hand, and their errors for a sweep of another kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from areabench.cli.main import main
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.sweeps.read import Sweep, open_sweep

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from studies import gallery
from studies.letters import typeset
from studies.limits import Limit, draw_limits
from studies.points import Point, Trace
from studies.server_rates import ServerRates, draw_server_rates

EXPERIMENT = """
[problem]
name = "quadratic"
dimension = 2
zeta = 1.0
[clients]
count = 2
[method]
name = "{method}"
step_size = 0.1
[stop]
iterations = 10
"""


def experiment(method: str) -> Experiment:
    return parse_experiment(EXPERIMENT.format(method=method))


def point(method: str, *squared: float) -> Point:
    """One trial with snapshots at 0, 5, 10, ... iterations."""
    own, distances = experiment(method), np.array(squared)
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


def sweep_of(folder: Path, problem: str, more: str = "") -> Sweep:
    """A sweep of one short run on a problem, with a server that steps after two updates."""
    text = f"""
[problem]
name = "{problem}"
{more}
[clients]
count = 2
[method]
name = "area"
step_size = 0.1
[stop]
horizon_s = 0.5
[sweep]
trials = 1
"""
    (folder / f"{problem}.toml").write_text(text)
    assert main(["sweep", str(folder / f"{problem}.toml"), "--output", str(folder / problem), "--jobs", "1"]) == 0
    return open_sweep(folder / problem)


def test_a_study_says_which_sweep_it_needs(tmp_path: Path) -> None:
    quadratic, robust = sweep_of(tmp_path, "quadratic", "dimension = 2"), sweep_of(tmp_path, "robust", "dimension = 2")
    with pytest.raises(UserError, match=r"needs a sweep of smooth, strongly convex problems \(quadratic\), not robust"):
        gallery.theorem1(robust)
    with pytest.raises(UserError, match=r'needs a sweep of problem.name = "robust", not "quadratic"'):
        gallery.theorem2(quadratic)
    with pytest.raises(UserError, match=r'needs a sweep of problem.name = "quadratic" with a problem.zeta'):
        gallery.limits(quadratic)
    with pytest.raises(UserError, match=r'needs a sweep over aggregation.rate, with aggregation.name = "poisson"'):
        gallery.server_rate(robust)


def test_a_study_needs_a_problem_that_draws_its_own_data(tmp_path: Path) -> None:
    data = '[data]\nname = "synthetic"\n[split]\nname = "dirichlet"'
    logistic = sweep_of(tmp_path, "logistic", data)
    for draw in (gallery.theorem1, gallery.theorem2, gallery.limits, gallery.server_rate):
        with pytest.raises(UserError, match=r"this study needs a sweep of a problem that draws its own data"):
            draw(logistic)


def test_letters_are_set() -> None:
    figure = Figure()
    figure.suptitle("E|x_s,K - x*|² at zeta = 1, and x_s")
    typeset(figure)
    assert figure.get_suptitle() == "E|$x_{s,K}$ - $x^*$|² at ζ = 1, and $x_s$"
