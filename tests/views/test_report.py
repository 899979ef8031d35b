"""The data of the report: curves, ends of runs, bars, JSON. Results are made by hand."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.results import PAPER, counts, made

from areabench.engine.diagnosis import DIAGNOSIS_CLIENT
from areabench.engine.events import State, Status
from areabench.experiment.experiment import Clients, Stop
from areabench.methods.area import Area
from areabench.methods.fedbuff import FedBuff
from areabench.problems.data.synthetic import Synthetic
from areabench.results.statistics import Band
from areabench.sweeps.result import Result
from areabench.timing.rates import NormalRates
from areabench.views.report.details import participation_of
from areabench.views.report.page import SCRIPTS, page_text
from areabench.views.report.records import (
    Line,
    NamedValue,
    ReportPage,
    Series,
    Timeline,
    script_json,
)
from areabench.views.report.series import (
    axes_of,
    median_reached_s,
    outcome_of,
    place_series,
    profile_of,
    series_of,
    settings_of,
    thinned,
)
from areabench.views.report.sources import Sources, Trial

NAN = math.nan
EXPERIMENT = replace(
    PAPER, clients=Clients(count=4), method=Area(step_size=1.0), stop=Stop(horizon_s=4.0), data=Synthetic()
)


def result(
    accuracy: Sequence[float] = (10.0, 50.0, 90.0),
    loss: Sequence[float] = (4.0, 2.0, 1.0),
    *,
    updates: Sequence[int] = (0, 4, 8),
    steps: Sequence[int] = (0, 2, 4),
    state: State = State.DONE,
    end_s: float = 4.0,
    name: str = "run.h5",
    **changes: Any,
) -> Result:
    """A run with snapshots at 0, 1, 2, ... s."""
    return made(
        replace(EXPERIMENT, **changes), range(len(accuracy)), accuracy, loss,
        path=Path(name), status=Status(state, "", end_s, updates[-1], 0, steps[-1]), staleness=counts([1, 3]),
        updates=counts(updates), server_steps=counts(steps),
    )  # fmt: skip


def trials(*results: Result) -> Sources:
    """Runs, each in a file of its own."""
    named = [replace(each, path=Path(f"{number}.h5")) for number, each in enumerate(results)]
    return Sources(tuple(Trial(each, "simulator", each.path.stem) for each in named), ())


def series_of_runs(*results: Result) -> list[Series]:
    return list(series_of(place_series(trials(*results))[1], 80.0))


def values(line: Line | None) -> list[list[float]]:
    assert line is not None
    return [line.x.tolist(), line.mean.tolist(), line.low.tolist(), line.high.tolist()]


# ---------------------------------------------------------------------------------------------------- curves


def test_one_run_along_three_axes() -> None:
    axes = axes_of([result(updates=(0, 3, 7), steps=(0, 1, 1))], 100)
    assert values(axes.time.test_accuracy) == [[0, 1, 2], [10, 50, 90], [], []]
    assert values(axes.updates.train_loss) == [[0, 3, 7], [4, 2, 1], [], []]
    assert values(axes.aggregations.test_accuracy) == [[0, 1], [10, 90], [], []]  # of one version the last value


def test_trials_are_averaged_along_the_axis_that_is_shown() -> None:
    trials = [result(), result((20.0, 40.0, 100.0), updates=(0, 2, 8), seed=1)]
    axes = axes_of(trials, 100, "range")
    assert values(axes.time.test_accuracy) == [[0, 1, 2], [15, 45, 95], [10, 40, 90], [20, 50, 100]]
    # the second has 40 % after 2 updates and 100 % after 8, so 60 % after 4
    assert values(axes.updates.test_accuracy) == [[0, 4, 8], [15, 55, 95], [10, 50, 90], [20, 60, 100]]


def test_a_loss_that_was_not_asked_for_leaves_a_gap_and_none_leaves_no_line() -> None:
    axes = axes_of([result(loss=(4.0, NAN, 1.0))], 100)
    assert values(axes.time.train_loss) == [[0, 2], [4, 1], [], []]
    assert axes_of([result(accuracy=(NAN, NAN, NAN))], 100).time.test_accuracy is None


def test_thinning_keeps_ends_and_extremes() -> None:
    mean = np.sin(np.arange(1000) / 50)
    mean[317] = 9.0
    mean[708] = -9.0
    kept = thinned(Band(np.arange(1000.0), mean, mean, mean), 60)
    assert len(kept) <= 60
    assert {0, 317, 708, 999} <= set(kept.tolist())
    assert thinned(Band(*np.zeros((4, 60))), 60).tolist() == list(range(60))


# ---------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("seen", "kind", "time_s"),
    [
        (result(), "reached", 2.0),
        (result((10.0, 20.0, 30.0)), "not reached", 4.0),
        (result((10.0, 20.0, 30.0), end_s=3.0), "ended early", 3.0),
        (result((10.0, 20.0, 30.0), end_s=3.0, state=State.TARGET), "ended early", 3.0),
        (result((10.0, 20.0, 30.0), state=State.TARGET, stop=Stop(iterations=9)), "ended early", 4.0),
        (result((10.0, 20.0, 30.0), stop=Stop(iterations=9)), "not reached", 4.0),
        (result((10.0, 20.0, 30.0), end_s=2.5, state=State.DIVERGED), "diverged", 2.5),
        (result(end_s=2.5, state=State.DIVERGED), "reached", 2.0),  # before it diverged
        (result((), (), end_s=1.5, state=State.FAILED), "unfinished", 1.5),
        (result((NAN, NAN, NAN)), "not measured", 4.0),
    ],
)
def test_ends_on_the_way_to_the_target(seen: Result, kind: str, time_s: float) -> None:
    outcome = outcome_of(seen, 80.0)
    assert (outcome.kind, outcome.time_s) == (kind, time_s)


def test_trials_that_did_not_reach_the_target_are_later_than_all_in_the_median() -> None:
    at_1_s = result()
    at_0_s = result((50.0, 60.0, 70.0))
    never = result((1.0, 2.0, 3.0))
    early = result((1.0, 2.0, 3.0), end_s=3.0)
    for seen, median_s in (
        ((at_1_s, at_0_s, never), 1.0),  # the mean of those that reached it is 0.5
        ((at_1_s, at_0_s, at_1_s, early), 1.0),
        ((at_0_s, at_1_s), 0.5),
        ((at_1_s, never), math.inf),
        ((never,), math.inf),
    ):
        assert median_reached_s([outcome_of(each, 50.0) for each in seen]) == median_s


# ---------------------------------------------------------------------------------------------------- series


def test_diverged_trials_are_counted_and_not_averaged() -> None:
    (series,) = series_of_runs(
        result(),
        result((20.0, 60.0, 70.0), (6.0, 5.0, 3.0), seed=1),
        result((0.0, 0.0, 0.0), (9.0, 99.0, 999.0), seed=2, state=State.DIVERGED),
    )
    assert (series.trials, series.diverged) == (3, 1)
    assert series.accuracy is not None
    assert series.loss is not None
    assert (series.accuracy.mean, series.accuracy.minimum, series.accuracy.maximum) == (80.0, 70.0, 90.0)
    assert series.loss.mean == 2.0
    assert values(series.curves.time.test_accuracy)[1] == [15.0, 55.0, 80.0]
    assert [(count.word, count.count) for count in series.states] == [("done", 2), ("diverged", 1)]
    assert series.staleness is not None
    assert (series.staleness.shares.tolist(), series.staleness.mean, series.staleness.p95) == ([25.0, 75.0], 0.75, 1)


def test_the_best_step_size_is_marked_and_colours_are_those_of_all_figures() -> None:
    methods = {Area(step_size=1.0): 80.0, Area(step_size=10.0): 90.0, FedBuff(step_size=1.0): 70.0}
    series = series_of_runs(*(result((10.0, 50.0, last), method=method) for method, last in methods.items()))
    assert [(each.label, each.step_size, each.is_best, each.colour) for each in series] == [
        ("AREA", 1.0, False, "#0072B2"),
        ("AREA", 10.0, True, "#0072B2"),
        ("FedBuff", 1.0, True, "#E69F00"),
    ]


@pytest.mark.parametrize(
    ("results", "planned", "is_eligible"),
    [
        ([result(), result(seed=1)], 2, True),
        ([result(), result(seed=1)], 3, False),
        ([result(), result(seed=1, state=State.DIVERGED)], 2, False),
        ([result(state=State.STOPPED)], 1, False),
        ([result(state=State.TARGET)], 1, True),
    ],
)
def test_the_best_has_all_its_trials_and_none_diverged(results: list[Result], planned: int, is_eligible: bool) -> None:
    (place,) = place_series(trials(*results))[1]
    assert replace(place.cell, planned=planned).is_eligible == is_eligible


def test_series_are_ranked_among_those_of_their_rates() -> None:
    first, second = series_of_runs(
        *(
            result((10.0, 50.0, last + seed), method=method, seed=seed)
            for method, last in ((Area(step_size=1.0), 85.0), (FedBuff(step_size=1.0), 70.0))
            for seed in range(6)
        )
    )
    assert (first.ranks["accuracy"].mark, second.ranks["accuracy"].mark) == ("best", "")
    assert (first.ranks["loss"].mark, second.ranks["loss"].mark) == ("tied", "tied")  # the same in all
    apart = second.ranks["accuracy"].difference
    assert apart is not None
    assert (apart.mean, apart.p) == (-15.0, 2 / 2**6)


def test_the_share_of_trials_that_reached_the_target_is_a_stair() -> None:
    (series,) = series_of_runs(result(), result((10.0, 20.0, 30.0), seed=1))
    assert series.reached is not None
    assert (series.reached.x.tolist(), series.reached.share.tolist()) == ([0, 2, 4], [0, 50, 50])
    assert series.reached.ended.tolist() == [4.0]


def test_a_profile_needs_two_settings() -> None:
    runs = [result(), result((10.0, 90.0, 90.0), method=FedBuff(step_size=1.0))]
    slow = [replace(each, experiment=replace(each.experiment, rates=NormalRates())) for each in runs]
    for results, lines in ((runs, {}), ([*runs, *slow], {"AREA": [1, 2], "FedBuff": [1]})):
        assert {line.label: line.line.x.tolist() for line in profile_of(series_of_runs(*results))} == lines


def test_settings_with_the_same_title_are_distinguished() -> None:
    comparisons, _ = place_series(trials(result(), result(stop=Stop(horizon_s=4.0, iterations=9))))
    first, second = settings_of(comparisons)
    assert first.differences == "stop.iterations = none"
    assert second.title.endswith("stop.iterations = 9")


def test_five_hundred_runs_stay_below_five_megabytes() -> None:
    rng = np.random.default_rng(0)
    runs = [
        result(
            rng.uniform(0, 100, 150).tolist(), rng.uniform(0, 9, 150).tolist(), updates=range(0, 1050, 7),
            steps=range(0, 450, 3), method=Area(step_size=1.0 + point), seed=seed,
        )
        for point in range(100)
        for seed in range(5)
    ]  # fmt: skip
    assert len(script_json(series_of_runs(*runs))) < 4e6


# ---------------------------------------------------------------------------------------------------- clients


def test_many_clients_are_grouped_by_expectation() -> None:
    clients = np.zeros(600, DIAGNOSIS_CLIENT)
    clients["client"] = np.arange(600)
    clients["served"] = np.arange(600)[::-1]
    clients["expected"] = np.arange(600)[::-1]
    shown = participation_of(clients)
    assert (shown.group, len(shown.client)) == (3, 200)
    assert (shown.client[0], shown.served[0], shown.least[0], shown.most[0]) == (599, 1.0, 0, 2)
    assert participation_of(clients[:4]).served.tolist() == [599.0, 598.0, 597.0, 596.0]


def test_clients_served_too_little_are_counted_one_by_one() -> None:
    clients = np.zeros(600, DIAGNOSIS_CLIENT)
    for column, value in (("expected", 10.0), ("low", 5.0), ("high", 15.0), ("served", 12)):
        clients[column] = value
    clients["served"][[0, 1, 300]] = 4  # the groups' means are 20/3, above 5, and 28/3
    assert participation_of(clients).short == 3
    assert participation_of(clients[2:300]).short == 0
    clients["expected"] = NAN
    assert participation_of(clients).short is None


# ---------------------------------------------------------------------------------------------------- page


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ((1.23456789, 3.0, NAN, math.inf, True), [1.23457, 3, None, None, True]),
        ((np.array([1e-9, NAN]), NamedValue("a", "b")), [[1e-9, None], {"name": "a", "value": "b"}]),
        ((3_612_345.0, 3_612_345.5, 1_234_567.891, 1.23456789e30), [3612345, 3612345.5, 1234567.9, 1.23457e30]),
    ],
)
def test_numbers_are_rounded_and_what_is_not_finite_becomes_null(record: object, expected: list[object]) -> None:
    assert json.loads(script_json(record)) == expected


def test_times_late_in_a_run_keep_their_digits() -> None:
    times_s = np.array([-98765.4321, 1234.56789, 0.000123456789])
    counts = np.zeros(3, np.int64)
    line = Timeline(
        clock="virtual time", begin_s=86400.123456789, until_s=1234.56789, run_s=1e5, clients=1, shown=3, of=3,
        start_s=times_s, end_s=times_s, client=counts, base=counts, staleness=counts, used=counts, step_s=times_s,
        version=counts,
    )  # fmt: skip
    told = json.loads(script_json(line))
    assert (told["begin_s"], told["until_s"]) == (86400.123456789, 1234.56789)
    assert told["start_s"] == told["end_s"] == told["step_s"] == [-98765.4321, 1234.56789, 0.000123457]


def test_no_text_ends_the_script_that_holds_it() -> None:
    hostile = "</script><!-- <script> &lt; \u2028 \ud800"
    text = script_json(NamedValue(hostile, ""))
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text)["name"] == hostile


def test_the_page_allows_its_own_scripts_only_and_names_nothing_outside() -> None:
    report = ReportPage("</title><b>", "", "0", 80.0, "interval", (), (), (), (), (), (), (), 0)
    text = page_text(report)
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;;")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == len(SCRIPTS)
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy[1]
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the namespace of SVG, which is not loaded
    assert not re.search(r"\s(src|on[a-z]+)=", text)
