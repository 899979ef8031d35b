"""Figures: what is drawn, not how it looks. Results are made by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.results import PAPER, counts, made

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Record, Stop
from areabench.experiment.labels import method_colour
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.criteria import EveryUpdates
from areabench.methods.fedbuff import FedBuff
from areabench.methods.own import OwnMethod
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.rows import count_labels
from areabench.results.grouping import arrange
from areabench.results.statistics import SpreadName, band, staleness_shares
from areabench.sweeps.read import Result
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import NormalRates, RateSettings, UniformRates

pytest.importorskip("matplotlib")

from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch

from areabench.cli.figures import read_step_sizes
from areabench.views.figures.labels import MOST_CLIENTS, draw_labels
from areabench.views.figures.style import line_look, save
from areabench.views.figures.sweeps import quality_over_time, step_size_sensitivity
from areabench.views.figures.sweeps import staleness as draw_staleness

METHODS = {"area": Area, "fedbuff": FedBuff, "as-fedavg": AsFedAvg, "s-fedavg": SFedAvg}
EXPERIMENT = replace(
    PAPER, clients=Clients(count=128, local_steps=50), method=Area(step_size=1.0), stop=Stop(horizon_s=15.0),
    data=Synthetic(),
)  # fmt: skip
NAN = math.nan


def result(
    method: str = "area",
    step_size: float = 1.0,
    seed: int = 0,
    accuracy: Sequence[float] = (10.0, 50.0, 80.0),
    loss: Sequence[float] = (4.0, NAN, 1.0),
    *,
    diverged: bool = False,
    staleness: Sequence[int] = (2, 2),
    rates: RateSettings | None = None,
    **changes: Any,
) -> Result:
    """A run with snapshots at 0, 1, 2, ... s."""
    experiment = replace(
        EXPERIMENT,
        method=METHODS[method](step_size=step_size),
        seed=seed,
        rates=rates or UniformRates(),
        **changes,
    )
    state = State.DIVERGED if diverged else State.DONE
    return made(experiment, range(len(accuracy)), accuracy, loss, state, staleness=counts(staleness))


def texts(figure: Figure, panel: int = -1) -> list[str]:
    """What the legend of a panel says."""
    legend = figure.axes[panel].get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def curves(
    *results: Result,
    wished: dict[str, float] | None = None,
    target: float = 80.0,
    spread: SpreadName = "interval",
) -> Figure:
    (page,) = arrange(results)
    return quality_over_time(page, wished, target, spread=spread)


def sensitivity(*results: Result, spread: SpreadName = "interval") -> Figure:
    (page,) = arrange(results)
    return step_size_sensitivity(page, spread=spread)


# ---------------------------------------------------------------------------------------------------- pages


def test_one_page_with_one_row_per_rates_setting_and_methods_in_one_order() -> None:
    results = [result("s-fedavg"), result("area", rates=NormalRates()), result("area", 3.0), result("area", 0.1)]
    (page,) = arrange(results)
    assert page.slug == ""
    assert list(page.rows) == [UniformRates(), NormalRates()]
    assert [one.label for one in page.rows[UniformRates()]] == ["AREA", "S-FedAvg"]
    assert [cell.step_size for cell in page.entries[0].cells] == [0.1, 3.0]


def test_trials_are_those_that_differ_in_the_seed_only() -> None:
    (page,) = arrange([result(seed=1), result(seed=2), result("fedbuff", seed=1)])
    assert [len(one.cells[0].results) for one in page.entries] == [2, 1]


def test_a_user_method_is_on_the_page_of_the_others() -> None:
    method = OwnMethod(name="mine:make", step_size=1.0)
    own = replace(EXPERIMENT, name="own", module_folders=("/there",), method=method)
    (page,) = arrange([result("fedbuff"), replace(result(), experiment=own)])
    assert [one.label for one in page.entries] == ["FedBuff", "make"]
    assert page.slug == ""


def test_pages_that_differ_have_names_and_titles_that_differ() -> None:
    small: dict[str, Any] = {"clients": Clients(count=4), "split": Iid()}
    pages = arrange([result(), result(**small), result(**small, delays=ExponentialDelays(per="step"))])
    assert [page.slug for page in pages] == [
        "-n128-M50-dirichlet-perround",
        "-n4-M1-iid-perround",
        "-n4-M1-iid-perstep",
    ]
    assert pages[2].caption == ("n = 4, M = 1, split iid of synthetic, horizon 15 s, 1 trial, delays.per = step")


def test_methods_that_step_after_other_numbers_of_updates_share_a_page_and_say_so() -> None:
    (page,) = arrange([result(), result("fedbuff", aggregation=EveryUpdates(updates=8))])
    assert [one.label for one in page.entries] == ["AREA (Δ = 4)", "FedBuff (Δ = 8)"]
    assert page.slug == ""


def test_what_is_recorded_makes_another_page_only_of_one_run_made_twice() -> None:
    finer = Record(interval_s=0.05)
    assert len(arrange([result(), result("fedbuff", record=finer), result(seed=2, record=finer)])) == 1
    assert len(arrange([result(), result(record=finer)])) == 2


def test_two_splits_of_one_kind_have_names_that_differ() -> None:
    pages = arrange([result(), result(split=Dirichlet(concentration=0.5)), result(split=Iid())])
    assert [page.slug for page in pages] == ["-dirichlet-concentration0.1", "-dirichlet-concentration0.5", "-iid"]


def test_variants_of_a_method_are_distinguished() -> None:
    eta = result("fedbuff")
    other = replace(eta, experiment=replace(eta.experiment, method=FedBuff(step_size=1.0, server_step_size=0.5)))
    (page,) = arrange([eta, other])
    first, second = page.entries
    assert (first.label, second.label) == (
        "FedBuff (server_step_size = none)",
        "FedBuff (server_step_size = 0.5)",
    )
    assert line_look("fedbuff", first.variant)["marker"] != line_look("fedbuff", second.variant)["marker"]


def test_title_says_clients_steps_split_horizon_and_trials() -> None:
    (page,) = arrange([result(seed=seed) for seed in range(3)] + [result("fedbuff")])
    assert page.caption == "n = 128, M = 50, split dirichlet (0.1) of synthetic, horizon 15 s, 1 to 3 trials"
    (page,) = arrange([result(problem=Quadratic(), data=None, split=None, stop=Stop(iterations=2000))])
    assert page.caption == "n = 128, M = 50, quadratic problem, 2,000 iterations, 1 trial"


# ---------------------------------------------------------------------------------------------------- numbers


HALF = 4.3027 / 3**0.5  # of the interval of three trials with deviation 1, by Student's distribution


@pytest.mark.parametrize(
    ("values", "spread", "time_s", "mean", "low", "high"),
    [
        ([(4, NAN, 7), (4, NAN, 8), (4, NAN, 9)], "interval", [0, 2], [4, 8], [4, 8 - HALF], [4, 8 + HALF]),
        ([(0, 1, 99), (0, 30, 70)], "interval", [0, 1, 2], [0, 15.5, 84.5], [0, 0, 0], [0, 100, 100]),
        ([(0, 10, 60), (0, 20, 30)], "range", [0, 1, 2], [0, 15, 45], [0, 10, 30], [0, 20, 60]),
        ([(0, 30), (0, 10, 60)], "range", [0, 1], [0, 20], [0, 10], [0, 30]),  # it ends with the first trial
        ([(0, 10, 60), (0, 30)], "range", [0, 1], [0, 20], [0, 10], [0, 30]),
        ([(NAN, NAN, NAN)], "interval", [], [], [], []),
    ],
)
def test_bands(
    values: list[tuple[float, ...]], spread: SpreadName, time_s: list[float], mean: list[float], low: list[float],
    high: list[float],
) -> None:  # fmt: skip
    shown = band([result(accuracy=each, loss=each) for each in values], "test_accuracy", spread)
    assert shown.time_s.tolist() == time_s
    for found, expected in ((shown.mean, mean), (shown.low, low), (shown.high, high)):
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_loss_has_no_limits() -> None:
    shown = band([result(loss=(4.0, NAN, 99.0)), result(loss=(6.0, NAN, 1.0))], "train_loss")
    assert (shown.time_s.tolist(), shown.mean.tolist()) == ([0, 2], [5, 50])
    assert shown.low[-1] < 0


def test_band_of_trials_with_other_times_is_interpolated() -> None:
    other = replace(result(accuracy=(0, 40)), time_s=np.array([0.0, 4.0]), train_loss=np.array([1.0, 1.0]))
    shown = band([result(accuracy=(0, 20, 40)), other], "test_accuracy", "range")
    assert shown.time_s.tolist() == [0, 1, 2]
    assert shown.low.tolist() == [0, 10, 20]


def test_best_step_size_has_no_diverged_trial_and_the_highest_accuracy() -> None:
    good, better = result(step_size=1.0, accuracy=(0, 0, 70)), result(step_size=2.0, accuracy=(0, 0, 75))
    best = [result(step_size=3.0, accuracy=(0, 0, 90)), result(step_size=3.0, seed=1, diverged=True)]
    (page,) = arrange([good, better, *best])
    entry = page.entries[0]
    chosen = entry.cell_to_draw({})
    assert chosen is not None
    assert chosen.step_size == 2.0
    assert entry.cell_to_draw({"area": 3.0}) is entry.cells[2]
    assert entry.cell_to_draw({"area": 4.0}) is None
    assert entry.cell_to_draw({"fedbuff": 3.0}) is entry.cells[1]


def test_best_step_size_without_accuracy_has_the_lowest_loss() -> None:
    nothing = (NAN, NAN, NAN)
    losses = {1.0: (4.0, 3.0, 2.0), 2.0: (4.0, 3.0, 1.0), 3.0: (4.0, 3.0, 1.5)}
    (page,) = arrange([result(step_size=size, accuracy=nothing, loss=loss) for size, loss in losses.items()])
    chosen = page.entries[0].cell_to_draw({})
    assert chosen is not None
    assert chosen.step_size == 2.0
    assert page.quantities == ("train_loss",)


def test_shares_of_staleness_are_a_mean_over_trials() -> None:
    shares = staleness_shares([result(staleness=(1, 1)), result(staleness=(0, 30, 10)), result(staleness=(0, 0))])
    assert shares.tolist() == [0.25, 0.625, 0.125]
    assert staleness_shares([result(staleness=(7, 0, 0))]).tolist() == [1.0]
    assert len(staleness_shares([])) == 0


# ---------------------------------------------------------------------------------------------------- over time


def test_curves_have_one_line_per_method_and_a_band_over_trials() -> None:
    trials = [result(accuracy=(0, 10, 60)), result(seed=1, accuracy=(0, 20, 30))]
    figure = curves(*trials, result("fedbuff"), spread="range")
    accuracy, loss = figure.axes
    assert [line.get_color() for line in accuracy.lines] == [method_colour("area"), method_colour("fedbuff"), "0.45"]
    assert np.asarray(accuracy.lines[0].get_ydata()).tolist() == [0, 15, 45]
    assert np.asarray(accuracy.lines[2].get_ydata()).tolist() == [80, 80]
    assert np.asarray(loss.lines[0].get_xdata()).tolist() == [0, 2]
    (shaded,) = [one for one in accuracy.collections if isinstance(one, PolyCollection)]  # one trial has no band
    corners = {tuple(corner) for corner in np.asarray(shaded.get_paths()[0].vertices).tolist()}
    assert corners == {(0.0, 0.0), (1.0, 10.0), (1.0, 20.0), (2.0, 30.0), (2.0, 60.0)}
    assert shaded.get_zorder() < accuracy.lines[0].get_zorder()


def test_every_point_of_a_line_with_few_is_marked() -> None:
    few, many = (15 * (1.0,), 16 * (1.0,))
    for points, marked in ((few, (0, 1)), (many, (0, 2))):
        figure = curves(result(accuracy=points, loss=points))
        assert [panel.lines[0].get_markevery() for panel in figure.axes] == [marked, marked]


def test_curves_have_one_row_per_rates_setting_with_its_step_sizes() -> None:
    slow = NormalRates()
    figure = curves(
        result(step_size=1.0, accuracy=(0, 0, 50)), result(step_size=10.0, accuracy=(0, 0, 70)),
        result(step_size=1.0, accuracy=(0, 0, 50), rates=slow), result(step_size=10.0, accuracy=(0, 0, 20), rates=slow),
        target=85.0,
    )  # fmt: skip
    assert len(figure.axes) == 4
    assert texts(figure, 1) == ["AREA, α = 10", "target, 85 %"]
    assert texts(figure, 3) == ["AREA, α = 1", "target, 85 %"]
    assert figure.axes[2].get_title(loc="left") == "rates non-uniform (λ ~ N(10, 5))"


def test_diverged_trials_are_counted_and_left_out() -> None:
    wild = (1e9, 1e9, 1e9)
    figure = curves(result(), result(seed=1, diverged=True, accuracy=wild), result("fedbuff", diverged=True))
    assert texts(figure)[:2] == ["AREA, α = 1\n(1 of 2 diverged)", "FedBuff, α = 1\n(all diverged)"]
    assert np.asarray(figure.axes[0].lines[0].get_ydata()).tolist() == [10, 50, 80]
    assert len(np.asarray(figure.axes[0].lines[1].get_ydata())) == 0
    figure = curves(result(loss=(4.0, NAN, math.inf)), result(seed=1), result(seed=2, loss=(4.0, NAN, NAN)))
    assert texts(figure)[0] == "AREA, α = 1\n(2 of 3 diverged)"


def test_curves_at_a_chosen_step_size() -> None:
    figure = curves(result(step_size=1.0), result(step_size=2.0), wished={"area": 2.0})
    assert texts(figure)[0] == "AREA, α = 2"
    figure = curves(result(), result(rates=NormalRates(), step_size=2.0), wished={"area": 2.0})
    assert texts(figure, 1)[0] == "AREA: not run"


def test_a_loss_that_is_zero_has_a_linear_axis() -> None:
    assert curves(result()).axes[1].get_yscale() == "log"
    assert curves(result(loss=(1.0, 0.5, 0.0))).axes[1].get_yscale() == "linear"


def test_a_huge_loss_does_not_flatten_the_others() -> None:
    low, high = curves(result(), result("fedbuff", loss=(4.0, 1.0, 1e17))).axes[1].get_ylim()
    assert low == pytest.approx(1 / 1.5)
    assert high == 1e4


def test_without_accuracy_there_is_one_column() -> None:
    (panel,) = curves(result(accuracy=(NAN, NAN, NAN))).axes
    assert panel.get_ylabel() == "training loss"


# ---------------------------------------------------------------------------------------------------- step sizes


def test_a_wide_interval_moves_the_axes_no_further_than_the_trials_and_keeps_a_loss_logarithmic() -> None:
    trials = [result(loss=(4.0, 2.0, 1.0)), result(seed=1, loss=(4.0, 3.0, 2.0))]  # an interval from -4.85 to 7.85
    for figure in (curves(*trials), sensitivity(*trials)):
        assert figure.axes[1].get_yscale() == "log"
        assert figure.axes[1].dataLim.y0 >= 1.0
        assert figure.axes[1].dataLim.y1 <= 4.0


def test_sensitivity_has_means_and_whiskers() -> None:
    figure = sensitivity(
        result(step_size=0.1, accuracy=(0, 0, 20)), result(step_size=0.1, seed=1, accuracy=(0, 0, 50)),
        result(step_size=10.0, accuracy=(0, 0, 90)), result("fedbuff", 1.0), spread="range",
    )  # fmt: skip
    accuracy = figure.axes[0]
    area, fedbuff = [one for one in accuracy.containers if isinstance(one, ErrorbarContainer)]
    means, _, (whiskers,) = area.lines
    assert np.asarray(means.get_ydata()).tolist() == [35, 90]
    assert [segment[:, 1].tolist() for segment in whiskers.get_segments()] == [[20, 50], [90, 90]]
    assert np.asarray(means.get_xdata()) == pytest.approx([0.1, 10], rel=0.3)
    assert np.asarray(means.get_xdata())[0] < 0.1 < 1.0 < np.asarray(fedbuff.lines[0].get_xdata())[0]  # side by side
    assert accuracy.get_xscale() == "log"
    assert texts(figure) == ["AREA", "FedBuff"]


def test_sensitivity_of_one_method_is_not_moved_sideways_and_has_no_mark() -> None:
    figure = sensitivity(result(step_size=10.0))
    (bars,) = figure.axes[0].containers
    assert isinstance(bars, ErrorbarContainer)
    assert np.asarray(bars.lines[0].get_xdata()).tolist() == [10.0]
    assert not [line for line in figure.axes[0].lines if line.get_gid() == "diverged"]
    assert texts(figure) == ["AREA"]


def test_diverged_step_sizes_are_marked_at_the_top_edge() -> None:
    figure = sensitivity(
        result(accuracy=(0, 0, 20), loss=(4, 3, 3)), result(step_size=10.0),
        result(step_size=10.0, seed=1, diverged=True), result(step_size=100.0, diverged=True),
    )  # fmt: skip
    for panel in figure.axes:
        marks = [line for line in panel.lines if line.get_gid() == "diverged"]
        assert [(line.get_marker(), np.asarray(line.get_xdata()).tolist()) for line in marks] == [
            ("X", [100.0]),
            ("x", [10.0]),
        ]
        assert all(0.9 < height < 1 for line in marks for height in np.asarray(line.get_ydata()))
        highest = max(float(np.asarray(line.get_ydata()).max()) for line in panel.lines if not line.get_gid())
        assert panel.transAxes.inverted().transform(panel.transData.transform((1.0, highest)))[1] < 0.92
    assert texts(figure)[1:] == ["all trials diverged", "some trials diverged"]


def test_sensitivity_where_everything_diverged() -> None:
    figure = sensitivity(result(diverged=True))
    assert [text.get_text() for text in figure.axes[0].texts] == ["no values"]


# ---------------------------------------------------------------------------------------------------- staleness


def test_staleness_has_one_histogram_per_method() -> None:
    (page,) = arrange([result(staleness=(1, 3)), result(seed=1, staleness=(3, 1)), result("s-fedavg", staleness=(9,))])
    asynchronous, synchronous = draw_staleness(page).axes
    (steps,) = asynchronous.patches
    assert isinstance(steps, StepPatch)
    values, edges, _ = steps.get_data()
    assert (values.tolist(), edges.tolist()) == ([50, 50], [-0.5, 0.5, 1.5])
    assert "every update is fresh" in synchronous.get_title(loc="left")
    assert synchronous.get_yscale() == "linear"


def test_a_long_tail_has_a_logarithmic_axis_and_zero_stays_visible() -> None:
    (page,) = arrange([result(staleness=[1000] * 200 + [1]), result("s-fedavg", staleness=(9,))])
    asynchronous, synchronous = draw_staleness(page).axes
    assert asynchronous.get_yscale() == synchronous.get_yscale() == "log"
    assert asynchronous.get_ylim() == synchronous.get_ylim()
    assert asynchronous.get_xlim()[1] == 200.5
    assert synchronous.get_xlim()[1] == 4.5
    assert "mean 99.5, 95 % up to 190" in asynchronous.get_title(loc="left")


def test_staleness_of_diverged_and_of_idle_runs() -> None:
    (page,) = arrange([result(diverged=True), result("fedbuff", staleness=())])
    first, second = draw_staleness(page).axes
    assert first.get_title(loc="left").endswith("AREA, α = 1 (all diverged)\nno updates")
    assert not first.patches
    assert not second.patches


# ---------------------------------------------------------------------------------------------------- labels


def test_labels_are_counted() -> None:
    labels = np.array([0, 2, 2, 0, 1, 2])
    parts = [np.array([0, 1, 2]), np.array([3, 4]), np.array([5])]
    assert count_labels(labels, parts, 4).tolist() == [[1, 0, 2, 0], [1, 1, 0, 0], [0, 0, 1, 0]]


def test_dots_have_the_area_of_their_count() -> None:
    figure = draw_labels(np.array([[1, 0, 4], [0, 2, 0]]), EXPERIMENT)
    bars, dots = figure.axes
    assert [bar.get_height() for bar in bars.patches if isinstance(bar, Rectangle)] == [5, 2]
    shown = next(one for one in dots.collections if isinstance(one, PathCollection))
    assert np.asarray(shown.get_offsets()).tolist() == [[0, 0], [0, 2], [1, 1]]
    assert np.asarray(shown.get_sizes()) / shown.get_sizes()[0] == pytest.approx([1, 4, 2])


@pytest.mark.parametrize("clients", [4, 128])
def test_dots_do_not_overlap(clients: int) -> None:
    counts = np.random.default_rng(1).integers(1, 500, (clients, 10))
    figure = draw_labels(counts, EXPERIMENT)
    figure.draw_without_rendering()
    dots = figure.axes[1]
    shown = next(one for one in dots.collections if isinstance(one, PathCollection))
    diameters = np.sqrt(shown.get_sizes()).reshape(clients, 10) * figure.dpi / 72  # pixels
    (left, bottom), (right, top) = dots.transData.transform([(0, 0), (1, 1)])
    assert ((diameters[1:] + diameters[:-1]) / 2).max() <= 1.02 * (right - left)
    assert diameters.max() <= 1.02 * (top - bottom)
    assert diameters.max() > 0.4 * min(right - left, top - bottom)


def test_of_many_clients_the_first_are_drawn() -> None:
    figure = draw_labels(np.ones((MOST_CLIENTS + 1, 2), dtype=np.int64), EXPERIMENT)
    assert len(figure.axes[0].patches) == MOST_CLIENTS
    assert f"n = {MOST_CLIENTS + 1} (the first {MOST_CLIENTS} shown)" in figure.get_suptitle()


# ---------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_files_come_out_the_same(suffix: str, tmp_path: Path) -> None:
    results = [result(), result(seed=1, accuracy=(9, 40, 70)), result("fedbuff", 10.0, diverged=True)]
    for name in ("first", "second"):
        save(sensitivity(*results), tmp_path / name / f"figure.{suffix}")
    first = (tmp_path / "first" / f"figure.{suffix}").read_bytes()
    assert first == (tmp_path / "second" / f"figure.{suffix}").read_bytes()
    assert b"atplotlib v" not in first  # the version of the library, which would change the file
    if suffix == "svg":
        assert b"<text" in first
        assert "step size α" in first.decode()
        assert b"<dc:date>" not in first


# ---------------------------------------------------------------------------------------------------- the command

SPLIT = """
[clients]
count = 3
[method]
name = "area"
step_size = 1.0
[stop]
horizon_s = 1.0
[problem]
name = "logistic"
[data]
name = "synthetic"
train_samples = 60
test_samples = 10
[split]
name = "iid"
"""
QUADRATIC_SWEEP = """
[clients]
count = 2
[stop]
iterations = 20
[problem]
name = "quadratic"
dimension = 2
[method]
name = "area"
step_size = 0.1
[sweep]
trials = 2
[[sweep.grid]]
method.step_size = [0.05, 0.1]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "split.toml").write_text(SPLIT, encoding="utf-8")
    return tmp_path


def test_chosen_step_sizes() -> None:
    results = [result(step_size=0.5), result("fedbuff", 10.0)]
    assert read_step_sizes(("area=0.5", "fedbuff=1e1"), results) == {"area": 0.5, "fedbuff": 10.0}


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("sgd=1", "'sgd' is not a method; write METHOD=ALPHA with METHOD one of area, fedbuff"),
        ("area=2", "'2' is not a step size that was run; those of area: 0.5, 3"),
        ("area", "'' is not a step size that was run"),
        ("fedbuff=1", "those of fedbuff: none"),
    ],
)
def test_chosen_step_sizes_that_were_not_run(wish: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_step_sizes((wish,), [result(step_size=3.0), result(step_size=0.5)])


def test_figure_of_a_split(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Mnist, "prepare", lambda settings, cache: None)
    assert main(["figures", "--split", "split.toml", "-o", "labels.svg", "--set", "clients.count=5"]) == 0
    assert capsys.readouterr().out == "figure: labels.svg\n"
    assert "n = 5, split iid of synthetic, seed 0" in (here / "labels.svg").read_text(encoding="utf-8")
    assert main(["figures", "--split", "split.toml", "--format", "png"]) == 0
    assert (here / "runs" / "split-labels.png").read_bytes().startswith(b"\x89PNG")


def test_a_problem_without_labels_has_no_split(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "split.toml").write_text(QUADRATIC_SWEEP.partition("[sweep]")[0], encoding="utf-8")
    assert main(["figures", "--split", "split.toml"]) == 2
    assert "problem `quadratic` has no labels to split" in capsys.readouterr().err


def test_figures_of_a_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tiny.toml").write_text(QUADRATIC_SWEEP, encoding="utf-8")
    assert main(["sweep", "tiny.toml", "--jobs", "1", "-o", "tiny"]) == 0
    folder = here / "tiny" / "figures"
    for suffix in ("svg", "pdf"):
        assert main(["figures", "tiny", "--format", suffix, "--step-size", "area=0.05"]) == 0
        drawn = sorted(path.stem for path in folder.glob(f"*.{suffix}"))
        assert drawn == ["curves", "sensitivity", "staleness"]
    assert "AREA, α = 0.05" in (folder / "curves.svg").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["figures", "tiny", "-o", "out.pdf"]) == 0
    assert capsys.readouterr().out == "figure: out.pdf\n"
    content = (here / "out.pdf").read_bytes()
    assert (content[:5], content.count(b"/Type /Page ")) == (b"%PDF-", 3)
    for options, words in (
        (["--set", "seed=1"], "--set goes with --split only"),
        (["-o", "out.png"], "--output out.png: a sweep has several figures; name a folder, or a file"),
    ):
        assert main(["figures", "tiny", *options]) == 2
        assert words in capsys.readouterr().err
    for run in (here / "tiny").glob("*.h5"):
        run.unlink()
    assert main(["figures", "tiny"]) == 2
    assert "planned runs done; run `areabench sweep` first" in capsys.readouterr().err


def test_figures_without_matplotlib(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["figures", "--split", "split.toml"]) == 2
    shown = capsys.readouterr().err
    assert "needs matplotlib" in shown
    assert shown.count("\n") == 1
