"""The public figures: one function each, from an open run or sweep to a figure; `areabench.figures` has their names.

`width` is in inches, or "column" (3.3) or "page" (6.9); `titled=False` leaves the title to a caption. `step_sizes` has
the step size to draw of a method; of the others it is the best one. `spread` is the 95 % interval of the mean, or the
range over trials. `page` counts the settings of a sweep from 0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.problems.datasets import default_cache
from areabench.results.comparison import compare_runs
from areabench.results.diagnosis import diagnosis_of
from areabench.results.grouping import Comparison, arrange
from areabench.results.label_counts import recorded_labels
from areabench.results.statistics import SpreadName
from areabench.runfile.read import Run
from areabench.sweeps.read import Sweep, read_result
from areabench.views.figures import style
from areabench.views.figures.diagnosis import draw_diagnosis, draw_participation
from areabench.views.figures.labels import draw_labels
from areabench.views.figures.runs import draw_comparison, draw_runs
from areabench.views.figures.style import Width, inches
from areabench.views.figures.sweeps import draw_curves, draw_sensitivity, draw_staleness
from areabench.views.figures.targets import draw_profiles, draw_reach_curves, draw_time_to_target
from areabench.views.figures.timelines import draw_timeline

Runs = Run | Sequence[Run]
save = style.save


# ---------------------------------------------------------------------------------------------------- runs


def quality(runs: Runs, target: float = 80.0, *, width: Width = "page", titled: bool = True) -> Figure:
    """Test accuracy and training loss over time, one line per run; `target` is an accuracy in percent."""
    return _entitled(draw_runs(_several(runs), target, width_in=inches(width)), titled)


def timeline(
    run: Run, start_s: float = 0.0, end_s: float | None = None, *, width: Width = "page", titled: bool = True
) -> Figure:
    """Who worked on which version of the model and when, and when the server stepped: the paper's figure 1."""
    return _entitled(draw_timeline(run, start_s, end_s, width_in=inches(width)), titled)


def participation(run: Run, *, width: Width = "page", titled: bool = True) -> Figure:
    """Updates used of each client, beside how many its rate lets expect and how many chance allows."""
    return _entitled(draw_participation(diagnosis_of(run), run.experiment, width_in=inches(width)), titled)


def verdict(run: Run, *, width: Width = "page", titled: bool = True) -> Figure:
    """Did the run keep its delays, and what took time? Six panels, two of a simulated run."""
    return _entitled(draw_diagnosis(diagnosis_of(run), run.experiment, width_in=inches(width)), titled)


def two_clocks(first: Run, second: Run) -> Figure:
    """Two runs of one experiment, such as a simulated and a real one, in four panels, ten inches wide."""
    return draw_comparison(first, second, compare_runs(first, second))


def class_shares(run: Run, *, cache: Path | None = None, width: Width = "page", titled: bool = True) -> Figure:
    """Which client holds how many samples of which class; `cache` has the data set, as for commands."""
    experiment = run.experiment
    counts = recorded_labels(experiment, run.path, cache or default_cache(os.environ))
    return _entitled(draw_labels(counts, experiment, width_in=inches(width)), titled)


# ---------------------------------------------------------------------------------------------------- sweeps


def quality_over_time(
    sweep: Sweep | Runs,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    spread: SpreadName = "interval",
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """Accuracy and loss over time: the mean over trials as a line, its spread as a band."""
    drawn = draw_curves(_page(sweep, page), step_sizes or {}, target, spread, width_in=inches(width))
    return _entitled(drawn, titled)


def step_size_sensitivity(
    sweep: Sweep | Runs,
    *,
    spread: SpreadName = "interval",
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """Accuracy and loss at the end over the step size, with the step sizes that diverged."""
    return _entitled(draw_sensitivity(_page(sweep, page), spread, width_in=inches(width)), titled)


def staleness(
    sweep: Sweep | Runs,
    step_sizes: Mapping[str, float] | None = None,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """How many steps the server made while an update was in flight: one panel per method."""
    return _entitled(draw_staleness(_page(sweep, page), step_sizes or {}, width_in=inches(width)), titled)


def time_to_target(
    sweep: Sweep | Runs,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """When a test accuracy was reached: median and trials; those that did not reach it are drawn at the horizon."""
    drawn = draw_time_to_target(_page(sweep, page), step_sizes or {}, target, width_in=inches(width))
    return _entitled(drawn, titled)


def reached_over_time(
    sweep: Sweep | Runs,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """The share of trials that have reached a test accuracy over time, with censoring (Kaplan and Meier)."""
    drawn = draw_reach_curves(_page(sweep, page), step_sizes or {}, target, width_in=inches(width))
    return _entitled(drawn, titled)


def performance_profile(
    sweeps: Sweep | Sequence[Sweep],
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """In which share of all settings a method is within a factor of the shortest median time to a test accuracy."""
    several = [sweeps] if isinstance(sweeps, Sweep) else sweeps
    pages = [page for sweep in several for page in arrange(sweep.results, sweep.tuned_keys)]
    return _entitled(draw_profiles(pages, step_sizes or {}, target, width_in=inches(width)), titled)


# ---------------------------------------------------------------------------------------------------- shared


def _several(runs: Runs) -> Sequence[Run]:
    runs = [runs] if isinstance(runs, Run) else runs
    if not runs:
        raise UserError("there is no run to draw; open one with areabench.open_run")
    return runs


def _page(source: Sweep | Runs, number: int | None) -> Comparison:
    """What to draw of a sweep, or of some runs: the page of this number, or the only one."""
    results = source.results if isinstance(source, Sweep) else [read_result(run.path) for run in _several(source)]
    pages = arrange(results, source.tuned_keys if isinstance(source, Sweep) else ())
    if not pages:
        raise UserError("no run of this sweep is done; run it with `areabench sweep` first")
    if number is None and len(pages) > 1:
        raise UserError(f"there are {len(pages)} settings to draw; choose one with page=0 to page={len(pages) - 1}")
    number = number or 0
    if not 0 <= number < len(pages):
        raise UserError(f"page {number}: must be from 0 to {len(pages) - 1}, one per setting")
    return pages[number]


def _entitled(figure: Figure, titled: bool) -> Figure:
    if not titled:
        figure.suptitle("").set_in_layout(False)
    return figure
