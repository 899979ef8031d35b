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
from tests.support.texts import LOGISTIC, QUADRATIC, SWEEP

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Record, Stop
from areabench.experiment.labels import method_colour
from areabench.methods import METHODS
from areabench.methods.area import Area
from areabench.methods.criteria import EveryUpdates
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.rows import count_labels
from areabench.results.grouping import Comparison, arrange
from areabench.results.statistics import SpreadName, band, staleness_shares
from areabench.sweeps.result import Result
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import NormalRates, UniformRates

pytest.importorskip("matplotlib")

from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch

from areabench.cli.figures import read_step_sizes
from areabench.views import figures
from areabench.views.figures.labels import MOST_CLIENTS, draw_labels
from areabench.views.figures.style import line_look

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
    **changes: Any,
) -> Result:
    """A run with snapshots at 0, 1, 2, ... s."""
    state = State.DIVERGED if diverged else State.DONE
    experiment = replace(EXPERIMENT, method=METHODS[method](step_size=step_size), seed=seed, **changes)
    return made(experiment, range(len(accuracy)), accuracy, loss, state, staleness=counts(staleness))


def page_of(*results: Result) -> Comparison:
    (page,) = arrange(results)
    return page


def legend(figure: Figure, panel: int = -1) -> list[str]:
    found = figure.axes[panel].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def points(line: Any) -> tuple[list[float], list[float]]:
    """The places of a line's points."""
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def curves(*results: Result, **options: Any) -> Figure:
    return figures.quality_over_time(page_of(*results), **options)


def sensitivity(*results: Result, **options: Any) -> Figure:
    return figures.step_size_sensitivity(page_of(*results), **options)


# ---------------------------------------------------------------------------------------------------- pages

SMALL: dict[str, Any] = {"clients": Clients(count=4), "split": Iid()}
FINER = Record(interval_s=0.05)


@pytest.mark.parametrize(
    ("results", "slugs", "labels"),
    [
        ([result("s-fedavg"), result("area", 3.0), result("area", 0.1)], [""], ["AREA", "S-FedAvg"]),
        ([result(seed=1), result(seed=2), result("fedbuff", seed=1)], [""], ["AREA", "FedBuff"]),
        ([result(), result(**SMALL), result(**SMALL, delays=ExponentialDelays(per="step"))],
         ["-n128-M50-dirichlet-perround", "-n4-M1-iid-perround", "-n4-M1-iid-perstep"], ["AREA"]),
        ([result(), result(split=Dirichlet(concentration=0.5)), result(split=Iid())],
         ["-dirichlet-concentration0.1", "-dirichlet-concentration0.5", "-iid"], ["AREA"]),
        ([result(), result("fedbuff", aggregation=EveryUpdates(updates=8))], [""],
         ["AREA (Δ = 4)", "FedBuff (Δ = 8)"]),
        # What is recorded makes another page only of one run made twice.
        ([result(), result("fedbuff", record=FINER), result(seed=2, record=FINER)], [""], ["AREA", "FedBuff"]),
        ([result(), result(record=FINER)], ["-interval_s0.1", "-interval_s0.05"], ["AREA"]),
    ],
)  # fmt: skip
def test_pages_of_runs(results: list[Result], slugs: list[str], labels: list[str]) -> None:
    pages = arrange(results)
    assert [page.slug for page in pages] == slugs
    assert [entry.label for entry in pages[0].entries] == labels


def test_a_page_has_one_row_per_rates_setting_and_one_cell_per_step_size() -> None:
    trials = [result(step_size=0.1, seed=seed) for seed in (0, 1)]
    page = page_of(result(step_size=3.0), *trials, result(rates=NormalRates()))
    assert list(page.rows) == [UniformRates(), NormalRates()]
    assert [(cell.step_size, len(cell.results)) for cell in page.entries[0].cells] == [(0.1, 2), (3.0, 1)]


def test_title_says_clients_steps_split_horizon_trials_and_what_else_differs() -> None:
    page = page_of(*(result(seed=seed) for seed in range(3)), result("fedbuff"))
    assert page.caption == "n = 128, M = 50, split dirichlet (0.1) of synthetic, horizon 15 s, 1 to 3 trials"
    page = page_of(result(problem=Quadratic(), data=None, split=None, stop=Stop(iterations=2000)))
    assert page.caption == "n = 128, M = 50, quadratic problem, 2,000 iterations, 1 trial"
    *_, page = arrange([result(**SMALL), result(**SMALL, delays=ExponentialDelays(per="step"))])
    assert page.caption == "n = 4, M = 1, split iid of synthetic, horizon 15 s, 1 trial, delays.per = step"


def test_looks_distinguish_methods_and_variants() -> None:
    looks = [line_look(method, variant) for method in [*METHODS][:5] for variant in range(3)]
    assert len({look["marker"] for look in looks}) == 15
    assert len({str(look["linestyle"]) for look in looks}) == 5
    assert line_look("mine:make")["linestyle"] == looks[-1]["linestyle"]


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


@pytest.mark.parametrize(
    ("wanted", "step_size"), [({}, 2.0), ({"area": 3.0}, 3.0), ({"area": 4.0}, None), ({"fedbuff": 3.0}, 2.0)]
)
def test_best_step_size_has_no_diverged_trial_and_the_highest_accuracy(
    wanted: dict[str, float], step_size: float | None
) -> None:
    results = [result(step_size=size, accuracy=(0, 0, last)) for size, last in ((1.0, 70), (2.0, 75), (3.0, 90))]
    page = page_of(*results, result(step_size=3.0, seed=1, diverged=True))
    chosen = page.entries[0].cell_to_draw(wanted)
    assert (chosen.step_size if chosen else None) == step_size


def test_best_step_size_without_accuracy_has_the_lowest_loss() -> None:
    losses = {1.0: (4.0, 3.0, 2.0), 2.0: (4.0, 3.0, 1.0), 3.0: (4.0, 3.0, 1.5)}
    page = page_of(*(result(step_size=size, accuracy=3 * (NAN,), loss=loss) for size, loss in losses.items()))
    chosen = page.entries[0].cell_to_draw({})
    assert chosen is not None
    assert chosen.step_size == 2.0
    assert page.quantities == ("train_loss",)


@pytest.mark.parametrize(
    ("trials", "shares"),
    [([(1, 1), (0, 30, 10), (0, 0)], [0.25, 0.625, 0.125]), ([(7, 0, 0)], [1.0]), ([], [])],
)
def test_shares_of_staleness_are_a_mean_over_trials(trials: list[tuple[int, ...]], shares: list[float]) -> None:
    assert staleness_shares([result(staleness=each) for each in trials]).tolist() == shares


# ---------------------------------------------------------------------------------------------------- over time


def test_curves_have_one_line_per_method_and_a_band_over_trials() -> None:
    trials = [result(accuracy=(0, 10, 60)), result(seed=1, accuracy=(0, 20, 30))]
    accuracy, loss = curves(*trials, result("fedbuff"), spread="range").axes
    assert [line.get_color() for line in accuracy.lines] == [method_colour("area"), method_colour("fedbuff"), "0.45"]
    assert points(accuracy.lines[0])[1] == [0, 15, 45]
    assert points(accuracy.lines[2])[1] == [80, 80]
    assert points(loss.lines[0])[0] == [0, 2]
    (shaded,) = [one for one in accuracy.collections if isinstance(one, PolyCollection)]  # one trial has no band
    corners = {tuple(corner) for corner in np.asarray(shaded.get_paths()[0].vertices).tolist()}
    assert corners == {(0.0, 0.0), (1.0, 10.0), (1.0, 20.0), (2.0, 30.0), (2.0, 60.0)}
    assert shaded.get_zorder() < accuracy.lines[0].get_zorder()


@pytest.mark.parametrize(("count", "marked"), [(15, (0, 1)), (16, (0, 2))])
def test_every_point_of_a_line_with_few_is_marked(count: int, marked: tuple[int, int]) -> None:
    figure = curves(result(accuracy=count * (1.0,), loss=count * (1.0,)))
    assert [panel.lines[0].get_markevery() for panel in figure.axes] == [marked, marked]


def test_curves_have_one_row_per_rates_setting_with_its_step_sizes() -> None:
    slow = NormalRates()
    results = [
        result(step_size=1.0, accuracy=(0, 0, 50)), result(step_size=10.0, accuracy=(0, 0, 70)),
        result(step_size=1.0, accuracy=(0, 0, 50), rates=slow), result(step_size=10.0, accuracy=(0, 0, 20), rates=slow),
    ]  # fmt: skip
    figure = curves(*results, target=85.0)
    assert len(figure.axes) == 4
    assert legend(figure, 1) == ["AREA, α = 10", "target, 85 %"]
    assert legend(figure, 3) == ["AREA, α = 1", "target, 85 %"]
    assert figure.axes[2].get_title(loc="left") == "rates non-uniform (λ ~ N(10, 5))"
    figure = curves(*results[:3], step_sizes={"area": 10.0})
    assert (legend(figure, 1)[0], legend(figure, 3)[0]) == ("AREA, α = 10", "AREA: not run")


def test_diverged_trials_are_counted_and_left_out() -> None:
    wild = (1e9, 1e9, 1e9)
    figure = curves(result(), result(seed=1, diverged=True, accuracy=wild), result("fedbuff", diverged=True))
    assert legend(figure)[:2] == ["AREA, α = 1\n(1 of 2 diverged)", "FedBuff, α = 1\n(all diverged)"]
    assert [points(line)[1] for line in figure.axes[0].lines[:2]] == [[10, 50, 80], []]
    figure = curves(result(loss=(4.0, NAN, math.inf)), result(seed=1), result(seed=2, loss=(4.0, NAN, NAN)))
    assert legend(figure)[0] == "AREA, α = 1\n(2 of 3 diverged)"


def test_axes_of_the_loss() -> None:
    assert curves(result()).axes[1].get_yscale() == "log"
    assert curves(result(loss=(1.0, 0.5, 0.0))).axes[1].get_yscale() == "linear"
    # A huge loss does not flatten the others.
    limits = curves(result(), result("fedbuff", loss=(4.0, 1.0, 1e17))).axes[1].get_ylim()
    assert limits == pytest.approx((1 / 1.5, 1e4))
    (only,) = curves(result(accuracy=(NAN, NAN, NAN))).axes
    assert only.get_ylabel() == "training loss"
    trials = [result(loss=(4.0, 2.0, 1.0)), result(seed=1, loss=(4.0, 3.0, 2.0))]  # an interval from -4.85 to 7.85
    for figure in (curves(*trials), sensitivity(*trials)):
        assert figure.axes[1].get_yscale() == "log"
        assert figure.axes[1].dataLim.y0 >= 1.0
        assert figure.axes[1].dataLim.y1 <= 4.0


# ---------------------------------------------------------------------------------------------------- step sizes


def test_sensitivity_has_means_and_whiskers() -> None:
    figure = sensitivity(
        result(step_size=0.1, accuracy=(0, 0, 20)), result(step_size=0.1, seed=1, accuracy=(0, 0, 50)),
        result(step_size=10.0, accuracy=(0, 0, 90)), result("fedbuff", 1.0), spread="range",
    )  # fmt: skip
    area, fedbuff = [one for one in figure.axes[0].containers if isinstance(one, ErrorbarContainer)]
    means, _, (whiskers,) = area.lines
    across, upward = points(means)
    assert upward == [35, 90]
    assert [segment[:, 1].tolist() for segment in whiskers.get_segments()] == [[20, 50], [90, 90]]
    assert across == pytest.approx([0.1, 10], rel=0.3)
    assert across[0] < 0.1 < 1.0 < points(fedbuff.lines[0])[0][0]  # side by side
    assert figure.axes[0].get_xscale() == "log"
    assert legend(figure) == ["AREA", "FedBuff"]


def test_sensitivity_of_one_method_is_not_moved_sideways_and_has_no_mark() -> None:
    figure = sensitivity(result(step_size=10.0))
    (bars,) = figure.axes[0].containers
    assert isinstance(bars, ErrorbarContainer)
    assert points(bars.lines[0])[0] == [10.0]
    assert not [line for line in figure.axes[0].lines if line.get_gid() == "diverged"]


def test_diverged_step_sizes_are_marked_at_the_top_edge() -> None:
    figure = sensitivity(
        result(accuracy=(0, 0, 20), loss=(4, 3, 3)), result(step_size=10.0),
        result(step_size=10.0, seed=1, diverged=True), result(step_size=100.0, diverged=True),
    )  # fmt: skip
    for panel in figure.axes:
        marks = [line for line in panel.lines if line.get_gid() == "diverged"]
        assert [(line.get_marker(), points(line)[0]) for line in marks] == [("X", [100.0]), ("x", [10.0])]
        assert all(0.9 < height < 1 for line in marks for height in points(line)[1])
        highest = max(max(points(line)[1]) for line in panel.lines if not line.get_gid())
        assert panel.transAxes.inverted().transform(panel.transData.transform((1.0, highest)))[1] < 0.92
    assert legend(figure)[1:] == ["all trials diverged", "some trials diverged"]
    figure = sensitivity(result(diverged=True))
    assert [text.get_text() for text in figure.axes[0].texts] == ["no values"]


# ---------------------------------------------------------------------------------------------------- staleness


def test_staleness_has_one_histogram_per_method() -> None:
    page = page_of(result(staleness=(1, 3)), result(seed=1, staleness=(3, 1)), result("s-fedavg", staleness=(9,)))
    asynchronous, synchronous = figures.staleness(page).axes
    (steps,) = asynchronous.patches
    assert isinstance(steps, StepPatch)
    values, edges, _ = steps.get_data()
    assert (values.tolist(), edges.tolist()) == ([50, 50], [-0.5, 0.5, 1.5])
    assert "every update is fresh" in synchronous.get_title(loc="left")
    assert synchronous.get_yscale() == "linear"


def test_a_long_tail_has_a_logarithmic_axis_and_zero_stays_visible() -> None:
    page = page_of(result(staleness=[1000] * 200 + [1]), result("s-fedavg", staleness=(9,)))
    asynchronous, synchronous = figures.staleness(page).axes
    assert asynchronous.get_yscale() == synchronous.get_yscale() == "log"
    assert asynchronous.get_ylim() == synchronous.get_ylim()
    assert (asynchronous.get_xlim()[1], synchronous.get_xlim()[1]) == (200.5, 4.5)
    assert "mean 99.5, 95 % up to 190" in asynchronous.get_title(loc="left")


def test_staleness_of_diverged_and_of_idle_runs() -> None:
    first, second = figures.staleness(page_of(result(diverged=True), result("fedbuff", staleness=()))).axes
    assert first.get_title(loc="left").endswith("AREA, α = 1 (all diverged)\nno updates")
    assert not [*first.patches, *second.patches]


# ---------------------------------------------------------------------------------------------------- labels


def test_labels_are_counted() -> None:
    labels = np.array([0, 2, 2, 0, 1, 2])
    parts = [np.array([0, 1, 2]), np.array([3, 4]), np.array([5])]
    assert count_labels(labels, parts, 4).tolist() == [[1, 0, 2, 0], [1, 1, 0, 0], [0, 0, 1, 0]]


def dots_of(figure: Figure) -> PathCollection:
    return next(one for one in figure.axes[1].collections if isinstance(one, PathCollection))


def test_dots_have_the_area_of_their_count() -> None:
    figure = draw_labels(np.array([[1, 0, 4], [0, 2, 0]]), EXPERIMENT)
    assert [bar.get_height() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)] == [5, 2]
    dots = dots_of(figure)
    assert np.asarray(dots.get_offsets()).tolist() == [[0, 0], [0, 2], [1, 1]]
    assert np.asarray(dots.get_sizes()) / dots.get_sizes()[0] == pytest.approx([1, 4, 2])


@pytest.mark.parametrize("clients", [4, 128])
def test_dots_do_not_overlap(clients: int) -> None:
    figure = draw_labels(np.random.default_rng(1).integers(1, 500, (clients, 10)), EXPERIMENT)
    figure.draw_without_rendering()
    diameters = np.sqrt(dots_of(figure).get_sizes()).reshape(clients, 10) * figure.dpi / 72  # pixels
    (left, bottom), (right, top) = figure.axes[1].transData.transform([(0, 0), (1, 1)])
    assert ((diameters[1:] + diameters[:-1]) / 2).max() <= 1.02 * (right - left)
    assert 0.4 * min(right - left, top - bottom) < diameters.max() <= 1.02 * (top - bottom)


def test_of_many_clients_the_first_are_drawn() -> None:
    figure = draw_labels(np.ones((MOST_CLIENTS + 1, 2), dtype=np.int64), EXPERIMENT)
    assert len(figure.axes[0].patches) == MOST_CLIENTS
    assert f"n = {MOST_CLIENTS + 1} (the first {MOST_CLIENTS} shown)" in figure.get_suptitle().replace("\n", " ")


# ---------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_files_come_out_the_same(suffix: str, tmp_path: Path) -> None:
    results = [result(), result(seed=1, accuracy=(9, 40, 70)), result("fedbuff", 10.0, diverged=True)]
    paths = [tmp_path / name / f"figure.{suffix}" for name in ("first", "second")]
    for path in paths:
        figures.save(sensitivity(*results), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert b"atplotlib v" not in first  # the version of the library, which would change the file
    if suffix == "svg":
        assert b"<text" in first
        assert "step size α" in first.decode()
        assert b"<dc:date>" not in first


# ---------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "split.toml").write_text(LOGISTIC, encoding="utf-8")
    return tmp_path


def test_chosen_step_sizes() -> None:
    results = [result(step_size=0.5), result("fedbuff", 10.0)]
    assert read_step_sizes(("area=0.5", "fedbuff=1e1"), results) == {"area": 0.5, "fedbuff": 10.0}
    for wish, words in (
        ("sgd=1", "'sgd' is not a method; write METHOD=ALPHA with METHOD one of area, fedbuff"),
        ("area=2", "'2' is not a step size that was run; those of area: 0.5"),
        ("area", "'' is not a step size that was run"),
        ("s-fedavg=1", "those of s-fedavg: none"),
    ):
        with pytest.raises(UserError, match=words):
            read_step_sizes((wish,), results)


def test_figure_of_a_split(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Mnist, "prepare", lambda settings, cache: None)
    assert main(["figures", "--split", "split.toml", "-o", "labels.svg", "--set", "clients.count=5"]) == 0
    assert capsys.readouterr().out == "figure: labels.svg\n"
    assert "n = 5, split" in (here / "labels.svg").read_text(encoding="utf-8")
    assert main(["figures", "--split", "split.toml", "--format", "png"]) == 0
    assert (here / "runs" / "split-labels.png").read_bytes().startswith(b"\x89PNG")
    (here / "split.toml").write_text(QUADRATIC, encoding="utf-8")
    assert main(["figures", "--split", "split.toml"]) == 2
    assert "problem `quadratic` has no labels to split" in capsys.readouterr().err


def test_figures_of_a_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tiny.toml").write_text(SWEEP, encoding="utf-8")
    assert main(["sweep", "tiny.toml", "--jobs", "1", "-o", "tiny"]) == 0
    folder = here / "tiny" / "figures"
    for suffix in ("svg", "pdf"):
        assert main(["figures", "tiny", "--format", suffix, "--step-size", "area=0.1"]) == 0
        drawn = sorted(path.stem for path in folder.glob(f"*.{suffix}"))
        assert drawn == ["curves", "sensitivity", "staleness"]
    assert "AREA, α = 0.1" in (folder / "curves.svg").read_text(encoding="utf-8")
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
