"""Time to a target, with trials that did not reach it: by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.views.test_figures import result

from areabench.engine.events import State, Status
from areabench.results.grouping import arrange
from areabench.results.statistics import reach_curve, reach_of
from areabench.sweeps.read import Result

pytest.importorskip("matplotlib")

from matplotlib.patches import Rectangle

from areabench.views.figures.targets import reached_words, time_to_target

SLOW = (10.0, 20.0, 30.0)  # percent at 0, 1 and 2 s: never 80
AT_1, AT_2 = (10.0, 85.0, 80.0), (10.0, 50.0, 80.0)


def test_median_of_all_that_reached_it() -> None:
    found = reach_of([result(accuracy=AT_1), result(accuracy=AT_2), result(accuracy=AT_2)], 80.0)
    assert found.times_s == (1.0, 2.0, 2.0)
    assert (found.median_s, reached_words(found)) == (2.0, "3 of 3")


def test_a_trial_that_did_not_reach_it_counts_as_later_than_all() -> None:
    found = reach_of([result(accuracy=AT_1), result(accuracy=SLOW), result(accuracy=AT_2)], 80.0)
    assert found.times_s == (1.0, math.inf, 2.0)
    assert (found.reached, found.median_s, reached_words(found)) == (2, 2.0, "2 of 3")


def test_where_half_did_not_reach_it_there_is_no_median() -> None:
    found = reach_of([result(accuracy=AT_1), result(accuracy=SLOW)], 80.0)
    assert found.median_s == math.inf
    assert math.isnan(reach_of([], 80.0).median_s)


def test_diverged_before_is_never_and_an_early_end_is_not_known() -> None:
    early = replace(result(accuracy=SLOW), status=Status(State.DONE, "", 3.0, 4, 0, 2))
    found = reach_of([result(accuracy=SLOW, diverged=True), early, result(accuracy=AT_1)], 80.0)
    assert found.times_s == (math.inf, 1.0)
    assert (found.unknown, reached_words(found)) == (1, "1 of 2, 1 unknown")


def test_what_was_reached_before_a_run_diverged_counts() -> None:
    assert reach_of([result(accuracy=AT_1, diverged=True)], 80.0).times_s == (1.0,)


def ended_at(end_s: float, state: State) -> Result:
    """A trial that ended before its horizon of 15 s and had not reached 80 %."""
    return replace(result(accuracy=SLOW), status=Status(state, "", end_s, 4, 0, 2))


def test_a_diverged_trial_counts_in_the_share_until_the_horizon() -> None:
    found = reach_curve([ended_at(1.5, State.DIVERGED), result(accuracy=AT_2), result(accuracy=AT_2)], 80.0)
    assert found is not None
    assert (found.time_s.tolist(), found.share.tolist()) == ([0.0, 2.0], [0.0, pytest.approx(2 / 3)])
    assert (found.censored_s.tolist(), found.end_s) == ([15.0], 15.0)


def test_a_trial_that_something_else_ended_counts_in_the_share_until_its_end() -> None:
    found = reach_curve([ended_at(1.5, State.DONE), result(accuracy=AT_1), result(accuracy=AT_2)], 80.0)
    assert found is not None
    assert (found.time_s.tolist(), found.share.tolist()) == ([0.0, 1.0, 2.0], [0.0, pytest.approx(1 / 3), 1.0])
    assert found.censored_s.tolist() == [1.5]


def test_drawn_as_bar_or_hatched_to_the_horizon_with_one_mark_per_trial() -> None:
    trials = [result("area", accuracy=AT_1), result("area", seed=1, accuracy=AT_1)]
    trials += [result("fedbuff", accuracy=SLOW), result("fedbuff", seed=1, accuracy=AT_2)]
    (page,) = arrange(trials)
    axes = time_to_target(page, width=3.3).axes[0]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [(bar.get_width(), bar.get_hatch()) for bar in bars] == [(1.0, None), (15.0, "////")]  # the horizon is 15 s
    dots = {line.get_marker(): [] for line in axes.lines}  # type: dict[object, list[float]]
    for line in axes.lines:
        dots[line.get_marker()] += np.asarray(line.get_xdata()).tolist()
    assert (dots["o"], dots[">"]) == ([1.0, 1.0, 2.0], [15.0])
    assert [text.get_text() for text in axes.texts] == ["2 of 2", "1 of 2"]
