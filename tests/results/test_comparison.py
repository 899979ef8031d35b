"""Two runs against each other: every measure on a few numbers, checked by hand, and the command on small runs."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.answers import answer
from tests.support.edited import edited
from tests.support.texts import logistic

import areabench
from areabench.engine.events import EVENT, Kind
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Record
from areabench.experiment.parse import parse_experiment
from areabench.results.comparison import (
    Curve,
    Pair,
    Rows,
    arrivals,
    compare_runs,
    differing_keys,
    discordance,
    histogram_distance,
    is_within,
    mean_of_counts,
    order_of,
    pair,
    quantiles,
    shift_of,
    time_shifts,
    trajectory,
)
from areabench.runfile.read import open_run
from areabench.timing.rates import UniformRates

EXPERIMENT = logistic("horizon_s = 2.0", name="pair", clients=3, step_size=0.5)


def sequence(*events: tuple[int, int, float]) -> Rows:
    """Updates from (client, round, time)."""
    rows = np.zeros(len(events), EVENT)
    for row, values in zip(rows, events, strict=True):
        row["client"], row["round"], row["time_s"] = values
    return rows


def curve(time_s: Sequence[float], values: Sequence[float]) -> Curve:
    return Curve(np.array(time_s, np.float64), np.array(values, np.float64))


# ---------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("first", "second", "percent"), [(200, 194, -3.0), (-2.0, -1.0, 50.0), (5, 5, 0.0), (0, 0, 0.0), (0, 3, math.inf)]
)
def test_difference_is_in_percent_of_the_first(first: float, second: float, percent: float) -> None:
    found = pair(first, second)
    assert found == Pair(first, second, percent)
    assert is_within(found, abs(percent))  # a limit is allowed
    assert not is_within(found, abs(percent) - 0.01) or math.isinf(percent)


def test_an_unknown_value_is_within_no_limit() -> None:
    assert not is_within(pair(math.nan, 1.0), 100.0)
    assert not is_within(pair(math.nan, math.nan), 100.0)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ([2, 2], [1, 1], 0.0),
        ([4], [0, 0, 0, 7], 3.0),  # all of the mass goes three steps
        ([2, 2], [2, 0, 2], 0.5),  # half of it goes one step
        ([0], [1], math.nan),
    ],
)
def test_distance_of_histograms(first: list[int], second: list[int], distance: float) -> None:
    assert histogram_distance(np.array(first), np.array(second)) == pytest.approx(distance, nan_ok=True)


def test_mean_of_a_histogram() -> None:
    assert mean_of_counts(np.array([1, 0, 3])) == 1.5
    assert math.isnan(mean_of_counts(np.array([], np.int64)))


# ---------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("order", "found"), [([], 0), ([0], 0), ([0, 1, 2], 0), ([1, 0, 2], 1 / 3), ([2, 0, 1], 2 / 3), ([3, 2, 1, 0], 1)]
)
def test_discordance_by_hand(order: list[int], found: float) -> None:
    assert discordance(np.array(order, np.int64)) == found


A, B = (0, 0, 0.1), (1, 0, 0.2)  # (client, round, time)


@pytest.mark.parametrize(
    ("first", "second", "counts", "distance", "differs"),
    [
        # common: a, b and c = (0, 1), in the order a b c and b a c: one of three pairs is discordant
        (
            [A, B, (2, 0, 0.3), (0, 1, 0.4)],
            [B, (0, 0, 0.25), (0, 1, 0.5), (1, 1, 0.6), (1, 2, 0.7)],
            (3, 1, 2),
            1 / 3,
            (0, 0.1),
        ),
        ([(0, 1, 0.1)], [(1, 0, 0.1)], (0, 1, 1), 0.0, (0, 0.1)),  # rounds of two clients are not mixed up
        ([A, B], [A, B], (2, 0, 0), 0.0, (None, math.nan)),
        ([A], [A, B], (1, 0, 1), 0.0, (1, 0.1)),  # where one begins the other, they differ at its end
        ([A, B], [A], (1, 1, 0), 0.0, (1, 0.2)),
        ([], [A], (0, 0, 1), 0.0, (0, math.nan)),
        ([], [], (0, 0, 0), 0.0, (None, math.nan)),
    ],
)
def test_order_of_two_sequences(
    first: Sequence[tuple[int, int, float]],
    second: Sequence[tuple[int, int, float]],
    counts: tuple[int, int, int],
    distance: float,
    differs: tuple[int | None, float],
) -> None:
    found = order_of(sequence(*first), sequence(*second))
    assert (found.common, found.only_first, found.only_second) == counts
    assert found.distance == pytest.approx(distance)
    assert (found.differs_at, found.differs_at_s) == pytest.approx(differs, nan_ok=True)


def test_places_moved_are_those_of_common_arrivals() -> None:
    c = (0, 1, 0.4)
    assert order_of(sequence(A, B, c), sequence(B, A, c)).places_moved == quantiles(np.array([1, 1, 0]))
    assert math.isnan(order_of(sequence(A), sequence(B)).places_moved.p50)


def test_only_updates_that_were_used_are_arrivals() -> None:
    events = np.zeros(3, EVENT)
    events["kind"] = [Kind.UPDATE, Kind.STEP, Kind.DISCARDED]
    events["client"] = [4, -1, 5]
    events["round"] = [7, -1, 8]
    events["time_s"] = [0.5, 0.5, 0.6]
    assert arrivals(events)[["client", "round", "time_s"]].tolist() == [(4, 7, 0.5)]


# ---------------------------------------------------------------------------------------------------- time


def test_shift_of_common_arrivals_by_hand() -> None:
    """Late by 0.5 s and 10 % of the time."""
    first = sequence((0, 0, 1.0), (1, 0, 2.0), (0, 1, 3.0), (5, 0, 3.5))
    second = sequence((1, 0, 2.7), (0, 0, 1.6), (0, 1, 3.8))
    time_s, shift_s = time_shifts(first, second)
    np.testing.assert_allclose(time_s, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(shift_s, [0.6, 0.7, 0.8])
    found = shift_of(time_s, shift_s)
    assert (found.offset_s, found.drift_percent, found.seconds.p50) == pytest.approx((0.5, 10.0, 0.7))


@pytest.mark.parametrize("times", [[], [1.0]])
def test_too_few_arrivals_have_no_line(times: list[float]) -> None:
    found = shift_of(np.array(times), np.array(times))
    assert np.isnan([found.offset_s, found.drift_percent]).all()


def test_largest_distance_is_taken_where_both_have_values() -> None:
    final = pair(1.0, 1.0)
    found = trajectory(curve([0, 1, 2, 3], [5, 4, 3, 2]), curve([0, 2], [5, 4]), final)
    assert (found.largest, found.largest_at_s, found.times) == (1.0, 2.0, 3)  # at 1 s it is 4.5 against 4
    none = trajectory(curve([0], [5]), curve([], []), final)
    assert (none.times, math.isnan(none.largest)) == (0, True)


# ---------------------------------------------------------------------------------------------------- experiments


def test_name_and_record_may_differ_and_nothing_else() -> None:
    experiment = parse_experiment(EXPERIMENT, "a test")
    other = replace(experiment, name="other", record=Record(interval_s=0.2, events=False))
    assert differing_keys(experiment, other) == []
    other = replace(other, seed=4, clients=Clients(count=4), rates=UniformRates(rate=9.0))
    assert differing_keys(experiment, other) == ["clients.count", "rates.rate", "seed"]


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., Path]:
    """Simulates the small experiment with some keys changed."""
    file = tmp_path / "pair.toml"
    file.write_text(EXPERIMENT, encoding="utf-8")

    def run(name: str, **changes: Any) -> Path:
        areabench.simulate(file, output=tmp_path / name, **changes).close()
        return tmp_path / name

    return run


def compared(*words: object, code: int = 0) -> str:
    """What `areabench compare` prints."""
    said = answer("compare", *words, code=code)
    return said.err if code == 2 else said.out


Simulated = Callable[..., Path]


def changed(path: Path, dataset: str, **factors: float) -> Path:
    """The run with columns of a dataset multiplied."""
    with edited(path) as file:
        rows = file[dataset][()]
        for name, factor in factors.items():
            rows[name] = rows[name] * factor
        file[dataset][...] = rows
    return path


def late(path: Path, seconds: float) -> Path:
    """The same run as if MPI had run it, with all events later."""
    with edited(path) as file:
        events = file["events"][()]
        events["time_s"] += seconds
        file["events"][...] = events
        file["provenance"].attrs["transport"] = "mpi"
    return path


def test_a_run_agrees_with_itself(simulated: Simulated) -> None:
    with open_run(simulated("a.h5")) as first, open_run(late(simulated("b.h5"), 0.25)) as second:
        found = compare_runs(first, second)
        updates = len(arrivals(first.events_array))
    assert found.updates == Pair(updates, updates, 0.0)
    assert found.order is not None
    assert (found.order.common, found.order.distance, found.order.differs_at) == (updates, 0.0, None)
    assert found.shift is not None
    assert (found.shift.offset_s, found.shift.seconds.p99) == pytest.approx((0.25, 0.25))
    assert found.shift.drift_percent == pytest.approx(0.0, abs=1e-9)
    assert (found.staleness_distance, found.loss.largest, found.accuracy.largest) == (0.0, 0.0, 0.0)
    assert found.loss.times == 21


def test_another_experiment_is_refused_with_the_keys(simulated: Simulated) -> None:
    first = simulated("a.h5")
    second = simulated("b.h5", rates={"name": "uniform", "rate": 9.0}, method={"name": "area", "step_size": 0.4})
    said = compared(first, second, code=2)
    assert "differ in method.step_size (0.5 and 0.4), rates.rate (10.0 and 9.0); compare two runs of one" in said
    third = simulated("c.h5", method={"name": "s-fedavg", "step_size": 0.5, "clients_per_round": 1})
    assert "method.clients_per_round (not set and 1)" in compared(first, third, code=2)


def test_a_run_that_failed_is_refused(simulated: Simulated) -> None:
    path = simulated("a.h5")
    with edited(path) as file:
        status = file["status"][()]
        status["state"] = b"failed"
        status["reason"] = b"no room"
        file["status"][...] = status
    with (
        open_run(path) as run,
        pytest.raises(UserError, match=r"is failed \(no room\); compare runs that ended"),
    ):
        compare_runs(run, run)


# ---------------------------------------------------------------------------------------------------- command


def test_text_names_both_clocks_and_the_verdict(simulated: Simulated) -> None:
    second = late(simulated("b.h5"), 0.25)
    said = compared(simulated("a.h5"), second)
    assert f"  real time  {second}\n" in said
    assert "in both runs, 0 only simulated, 0 only real time; the sequences are equal\n" in said
    assert "real time minus simulated: +250.0 ms (p50)" in said
    assert "updates within 3 %: yes (+0.00 %)\nfinal loss within 2 %: yes (+0.00 %)\n" in said


def test_exit_code_says_whether_the_tolerances_hold(simulated: Simulated) -> None:
    files = [simulated("a.h5"), changed(simulated("b.h5"), "status", updates=0.9)]
    assert "updates within 3 %: NO (-" in compared(*files, code=1)
    compared(*files, "--updates-within", 15)
    changed(files[1], "metrics", train_loss=1.1)
    compared(*files, "--updates-within", 15, code=1)
    compared(*files, "--updates-within", 15, "--loss-within", 10.1)


@pytest.mark.parametrize("option", ["--updates-within=-1", "--loss-within=nan", "--loss-within=much"])
def test_a_tolerance_is_a_number(option: str) -> None:
    assert "is not a number >= 0" in compared("a.h5", "b.h5", option, code=2)


def test_json_has_null_where_nothing_is_known(simulated: Simulated) -> None:
    first = simulated("a.h5")
    second = simulated("b.h5", record={"events": False})
    with edited(second) as file:
        file["tally/served"][1] += 9
    found = json.loads(compared(first, second, "--json"))
    assert (found["order"], found["shift"]) == (None, None)
    assert found["client"] == 1  # the one whose updates differ most
    assert found["updates"]["difference_percent"] == 0.0
    assert found["verdict"]["loss_holds"] is True
    assert found["runs"][1] == {"file": str(second), "transport": "simulator"}
    said = compared(first, second)
    assert said.count("not known: a run has no event log") == 2
    assert f"  second  {second}\n" in said


# ---------------------------------------------------------------------------------------------------- figure


def test_figure_shows_both_runs(simulated: Simulated, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from areabench.views.figures.runs import draw_comparison

    first = simulated("a.h5")
    second = late(simulated("b.h5"), 0.25)
    with open_run(first) as one, open_run(second) as other:
        figure = draw_comparison(one, other, compare_runs(one, other))
        updates = one.status.updates
    loss, accuracy, counted, shift = figure.axes
    assert [len(axes.lines) for axes in (loss, accuracy, counted)] == [2, 2, 2]
    assert np.asarray(counted.lines[1].get_ydata())[-1] == updates
    np.testing.assert_allclose(np.asarray(shift.lines[0].get_ydata()), 250.0)
    legend = counted.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["simulated", "real time"]
    json.loads(compared(first, second, "--plot", tmp_path / "both.svg", "--json"))  # nothing but JSON
    assert "<svg" in (tmp_path / "both.svg").read_text(encoding="utf-8")


def test_figure_without_accuracy_claims_none() -> None:
    pytest.importorskip("matplotlib")
    from areabench.views.figures.runs import draw_comparison

    experiment = tomllib.loads(EXPERIMENT.partition("[problem]")[0])
    with areabench.simulate(experiment, problem="quadratic") as run:
        loss, accuracy, _, _ = draw_comparison(run, run, compare_runs(run, run)).axes
    assert loss.get_title(loc="left").startswith("at the end ")
    assert accuracy.get_title(loc="left") == ""
    assert [text.get_text() for text in accuracy.texts] == ["no values"]


def test_figure_without_events_or_snapshots(simulated: Simulated, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = simulated("a.h5", record={"events": False, "snapshots": "none"})
    compared(path, path, "--plot", tmp_path / "both.png")
    compared(path, path, "--plot", tmp_path / "both.doc", code=2)


def test_bins_hold_their_quantiles() -> None:
    pytest.importorskip("matplotlib")
    from areabench.views.figures.runs import binned

    centre_s, low, middle, high = binned(np.array([0.0, 0.1, 4.0]), np.array([1.0, 3.0, 7.0]), 2)
    np.testing.assert_allclose(centre_s, [1.0, 3.0])
    np.testing.assert_allclose(middle, [2.0, 7.0])
    np.testing.assert_allclose([low[0], high[0]], [1.1, 2.9])
