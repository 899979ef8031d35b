"""The public figures, of runs and sweeps whose every number is known: two clients with fixed delays of 0.5 and 1.25 s.

The server steps after two updates and answers before it steps. Updates come at 0.5, 1 (step to 1), 1.25 from the slow
client, 1.5 (step to 2) and 2 s.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.texts import logistic, quadratic

from areabench.cli.main import main
from areabench.engine.events import EVENT, Kind
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.results.diagnosis import diagnosis_of
from areabench.results.table import sweep_table
from areabench.runfile.read import Run, open_run
from areabench.sweeps.read import Sweep, open_sweep

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from areabench.results.rounds import Round, ServerStep, lanes_of, rounds_between, steps_between
from areabench.views import figures
from areabench.views.figures.diagnosis import draw_participation
from areabench.views.figures.style import entitle

TWO = (
    quadratic("horizon_s = 2.2", dimension=2)
    + """
[rates]
name = "list"
values = [2.0, 0.8]
[delays]
name = "fixed"
[aggregation]
name = "updates"
updates = 2
"""
)
SWEPT = (
    logistic("horizon_s = 2.0", clients=3)
    + """
[record]
interval_s = 0.5
[sweep]
trials = 2
[[sweep.grid]]
method.name = ["area", "fedbuff"]
method.step_size = [0.1, 1.0]
"""
)


@pytest.fixture
def two(record: Callable[[Experiment], Run]) -> Run:
    return record(parse_experiment(TWO))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "a.toml").write_text(SWEPT)
    assert main(["sweep", str(folder / "a.toml"), "--output", str(folder / "runs"), "--jobs", "1"]) == 0
    return open_sweep(folder / "runs")


def overhanging(figure: Figure) -> list[str]:
    """Texts that are not wholly inside the figure once it is laid out; numbers at an axis may be cut by its ends."""
    figure.draw_without_rendering()
    sides = [side for axes in figure.axes for side in (axes.xaxis, axes.yaxis)]
    ticks: list[Any] = [tick for side in sides for tick in (*side.majorTicks, *side.minorTicks)]
    numbers = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
    found: list[Any] = figure.findobj(Text)
    texts = [text for text in found if id(text) not in numbers and text.get_visible() and text.get_text().strip()]
    whole = figure.bbox.padded(1)
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [words for words, box in boxes if not (whole.contains(*box.p0) and whole.contains(*box.p1))]


# ---------------------------------------------------------------------------------------------------- timeline


def test_rounds_of_a_run_by_hand(two: Run) -> None:
    assert rounds_between(two.events_array, 0.0, 2.2) == [
        Round(client=0, begin_s=0.0, end_s=0.5, base_version=0, staleness=0, used=True),
        Round(client=0, begin_s=0.5, end_s=1.0, base_version=0, staleness=0, used=True),
        Round(client=1, begin_s=0.0, end_s=1.25, base_version=0, staleness=1, used=True),
        Round(client=0, begin_s=1.0, end_s=1.5, base_version=0, staleness=1, used=True),
        Round(client=0, begin_s=1.5, end_s=2.0, base_version=1, staleness=1, used=True),
    ]
    assert steps_between(two.events_array, 0.0, 2.2) == [ServerStep(1.0, 1), ServerStep(1.5, 2)]
    # A window has the rounds that overlap it.
    shown = rounds_between(two.events_array, 0.6, 1.4)
    assert [(one.client, one.end_s) for one in shown] == [(0, 1.0), (1, 1.25), (0, 1.5)]
    assert steps_between(two.events_array, 0.6, 1.4) == [ServerStep(1.0, 1)]


@pytest.mark.parametrize("kinds", [(Kind.REFUSED, Kind.LOST), (Kind.CANCELLED, Kind.NO_STEP)])
def test_a_round_whose_update_was_refused_or_order_cancelled_is_not_used(kinds: tuple[Kind, Kind]) -> None:
    events = np.zeros(2, EVENT)
    events["kind"] = kinds
    events["time_s"] = 1.0
    events["realised_delay_s"] = [0.25, 0.0]
    assert rounds_between(events, 0.0, 3.0) == [Round(0, 0.75, 1.0, 0, 0, used=False)]
    assert steps_between(events, 0.0, 3.0) == []


def test_a_round_begins_before_its_delay_and_its_wait_in_the_queue() -> None:
    events = np.zeros(2, EVENT)
    events["time_s"] = [1.0, 2.0]
    events["realised_delay_s"] = [0.25, 1.5]
    events["queue_s"] = [0.5, 0.75]
    assert [one.begin_s for one in rounds_between(events, 0.0, 3.0)] == [0.25, 0.0]  # nothing begins before the run


def test_timeline_draws_one_bar_per_round_with_its_version(two: Run) -> None:
    axes = figures.timeline(two, 0.0, 2.2).axes[0]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    ends_s = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert ends_s == [(0.0, 0.5), (0.5, 1.0), (0.0, 1.25), (1.0, 1.5), (1.5, 2.0)]
    assert [round(bar.get_y() + bar.get_height() / 2) for bar in bars] == [1, 1, 2, 1, 1]  # the faster one on top
    assert [text.get_text() for text in axes.texts] == ["0", "0", "0", "0", "1", "1", "2"]  # bases, then steps
    assert [label.get_text() for label in axes.get_yticklabels()] == ["server", "client 0 (2/s)", "client 1 (0.8/s)"]


def test_of_many_clients_the_fastest_the_slowest_and_some_between_are_shown() -> None:
    assert lanes_of(np.array([1.0, 5.0, 3.0]), 12) == [1, 2, 0]
    assert lanes_of(np.arange(100.0), 4) == [99, 66, 33, 0]


# ---------------------------------------------------------------------------------------------------- participation


def test_expected_and_served_of_fixed_delays(two: Run) -> None:
    found = diagnosis_of(two)
    assert found.clients["served"].tolist() == [4, 1]
    assert found.clients["expected"].tolist() == [4, 1]  # floor of 2·2.2 and of 0.8·2.2
    axes = figures.participation(two).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "0"]  # the one that sends least first
    expected, inside = axes.lines[:2]
    assert np.asarray(expected.get_ydata()).tolist() == np.asarray(inside.get_ydata()).tolist() == [1, 4]
    # A client outside its interval is crossed.
    found.clients["served"] = [9, 1]
    figure = draw_participation(found, two.experiment, 3.3)
    assert np.asarray(figure.axes[0].lines[2].get_ydata()).tolist() == [9]
    assert figure.get_suptitle().startswith("Participation: 1 of 2 clients outside the interval")


# ---------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize(("width", "wide"), [("column", 3.3), ("page", 6.9)])
def test_every_figure_fits_its_width(width: str, wide: float, two: Run, swept: Sweep, tmp_path: Path) -> None:
    of_runs: list[Callable[..., Figure]] = [figures.timeline, figures.participation, figures.quality, figures.staleness]
    of_sweeps: list[Callable[..., Figure]] = [figures.quality_over_time, figures.step_size_sensitivity]
    of_sweeps += [figures.staleness, figures.time_to_target, figures.reached_over_time, figures.performance_profile]
    drawn = [draw(two, width=width) for draw in of_runs] + [draw(swept, width=width) for draw in of_sweeps]
    with open_run(swept.results[0].path) as run:
        drawn.append(figures.class_shares(run, cache=tmp_path, width=wide))
    for figure in drawn:
        assert figure.get_figwidth() == wide
        assert overhanging(figure) == []


def test_table_has_the_means_of_the_frame(swept: Sweep) -> None:
    table = sweep_table(swept, "all")
    assert table[["method", "step_size"]].to_numpy().tolist() == [
        ["AREA", 0.1], ["AREA", 1.0], ["FedBuff", 0.1], ["FedBuff", 1.0]
    ]  # fmt: skip
    means = swept.frame.groupby(["method", "step_size"]).final_loss.mean()
    assert table.loss_mean.tolist() == pytest.approx(means.tolist())


def test_title_and_suffix(two: Run, tmp_path: Path) -> None:
    figure = figures.timeline(two, titled=False)
    assert figure.get_suptitle() == ""
    figures.save(figure, tmp_path / "a.pdf")
    assert b"/FontFile2" in (tmp_path / "a.pdf").read_bytes()  # an outline of the font is inside


def test_verdict_and_two_clocks(two: Run, record: Callable[[Experiment], Run]) -> None:
    assert len(figures.verdict(two).axes) == 2
    assert len(figures.two_clocks(two, record(two.experiment)).axes) == 4


# ---------------------------------------------------------------------------------------------------- wrong use


def test_errors_say_what_to_give(two: Run, swept: Sweep, record: Callable[[Experiment], Run]) -> None:
    longer = record(parse_experiment(TWO, overrides=("stop.horizon_s=3.0",)))
    silent = record(parse_experiment(TWO, overrides=("record.events=false",)))
    wide: Any = "wide"
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: figures.quality(two, width=wide), "width 'wide': must be from 2.5 to 20 inches; give a number, or"),
        (lambda: figures.quality(two, width=50), "width 50: must be"),
        (lambda: figures.quality([]), "there is no run to draw"),
        (lambda: figures.staleness(swept, page=3), "page 3: must be from 0 to 0"),
        (lambda: figures.staleness([two, longer]), "there are 2 settings to draw; choose one with page=0 to page=1"),
        (lambda: figures.class_shares(two), "has no labels to split"),
        (lambda: figures.time_to_target(two), "time to a target: needs runs with a horizon and an accuracy"),
        (lambda: figures.timeline(two, 5.0, 6.0), "no round from 5 to 6 s; the run lasts 2.2 s"),
        (lambda: figures.timeline(silent), "no event log to draw; run it with record.events=true"),
    ]
    for draw, words in wrong:
        with pytest.raises(UserError, match=words):
            draw()
    assert figures.staleness([two, longer], page=1).axes
    with pytest.raises(AttributeError, match=r"no attribute 'histogram'"):
        _ = figures.histogram


def test_names_are_there_without_matplotlib_until_one_is_used() -> None:
    code = "import sys; from areabench import figures; assert 'timeline' in dir(figures); "
    code += "sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_titles_are_broken() -> None:
    figure = Figure(figsize=(2.5, 2.0))
    entitle(figure, "a title that is longer than the figure is wide\nsecond")
    lines = figure.get_suptitle().split("\n")
    assert lines[-1] == "second"
    assert max(map(len, lines)) <= 38 < len(" ".join(lines[:-1]))
