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
from areabench.sweeps.result import Result

pytest.importorskip("matplotlib")

from matplotlib.patches import Rectangle

from areabench.views.figures.targets import reached_words, time_to_target

SLOW = (10.0, 20.0, 30.0)  # percent at 0, 1 and 2 s: never 80
AT_1 = (10.0, 85.0, 80.0)
AT_2 = (10.0, 50.0, 80.0)


def ended_at(end_s: float, state: State) -> Result:
    """A trial that ended before its horizon of 15 s and had not reached 80 %."""
    return replace(result(accuracy=SLOW), status=Status(state, "", end_s, 4, 0, 2))


FIRST = result(accuracy=AT_1)
SECOND = result(accuracy=AT_2)
NEVER = result(accuracy=SLOW)


@pytest.mark.parametrize(
    ("trials", "times_s", "median_s", "words"),
    [
        ([FIRST, SECOND, SECOND], (1.0, 2.0, 2.0), 2.0, "3 of 3"),
        ([FIRST, NEVER, SECOND], (1.0, math.inf, 2.0), 2.0, "2 of 3"),  # it counts as later than all
        ([FIRST, NEVER], (1.0, math.inf), math.inf, "1 of 2"),
        ([], (), math.nan, "0 of 0"),
        # diverged before is never, and an early end is not known
        (
            [result(accuracy=SLOW, diverged=True), ended_at(3.0, State.DONE), FIRST],
            (math.inf, 1.0), math.inf, "1 of 2, 1 unknown",
        ),
        ([result(accuracy=AT_1, diverged=True)], (1.0,), 1.0, "1 of 1"),  # what was reached before counts
    ],
)  # fmt: skip
def test_times_to_a_target(trials: list[Result], times_s: tuple[float, ...], median_s: float, words: str) -> None:
    found = reach_of(trials, 80.0)
    assert (found.times_s, reached_words(found)) == (times_s, words)
    assert found.median_s == pytest.approx(median_s, nan_ok=True)


@pytest.mark.parametrize(
    ("trials", "times_s", "shares", "censored_s"),
    [
        # a diverged trial counts until the horizon
        ([ended_at(1.5, State.DIVERGED), SECOND, SECOND], [0.0, 2.0], [0.0, 2 / 3], [15.0]),
        # one that something else ended counts until its end
        ([ended_at(1.5, State.DONE), FIRST, SECOND], [0.0, 1.0, 2.0], [0.0, 1 / 3, 1.0], [1.5]),
    ],
)
def test_how_long_a_trial_counts_in_the_share(
    trials: list[Result], times_s: list[float], shares: list[float], censored_s: list[float]
) -> None:
    found = reach_curve(trials, 80.0)
    assert found is not None
    assert (found.time_s.tolist(), found.censored_s.tolist(), found.end_s) == (times_s, censored_s, 15.0)
    assert found.share == pytest.approx(shares)


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
