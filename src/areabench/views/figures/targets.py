"""Figures of the time to a target: bars with trials, the share of trials over time, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from areabench.errors import UserError
from areabench.experiment.labels import method_colour
from areabench.results.grouping import Comparison, Entry, arrange
from areabench.results.statistics import Reach, performance_profiles, reach_curve, reach_of
from areabench.sweeps.read import Sweep
from areabench.views.figures.style import (
    LIMIT_LINE,
    Width,
    entitle,
    grid,
    inches,
    is_narrow,
    label_axes,
    legend,
    paper_style,
)
from areabench.views.figures.sweeps import Pick, Source, comparison_of, look_of, panels, picks_of
from areabench.views.styled import counted


@paper_style()
def time_to_target(
    sweep: Source,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """When a test accuracy was reached: the median as a bar, trials as dots, those that never did at the horizon."""
    comparison = comparison_of(sweep, page)
    horizon_s = comparison.experiment.stop.horizon_s
    if horizon_s is None or "test_accuracy" not in comparison.quantities:
        raise UserError("time to a target: needs runs with a horizon and an accuracy; draw their quality over time")
    figure, axes = panels(comparison, 1, width, inches(width), f"Time to {target:g} % test accuracy", titled=titled)
    count = max(len(row) for row in comparison.rows.values())
    figure.set_figheight(1.1 + (0.28 * count + 0.75) * len(comparison.rows))
    for row, (panel,) in zip(comparison.rows.values(), axes, strict=True):
        picks = picks_of(row, step_sizes)
        label_axes(panel, "time (s)", "")
        panel.grid(visible=False, axis="y")
        for place, pick in enumerate(picks):
            _draw_bar(panel, place, pick, target, horizon_s)
        panel.axvline(horizon_s, **LIMIT_LINE, zorder=1)
        panel.set_yticks(range(len(picks)), [pick.label.replace("\n", " ") for pick in picks])
        panel.set_ylim(len(picks) - 0.4, -0.6)
        panel.set_xlim(0, 1.22 * horizon_s)
        # Behind the horizon there is room for words, not for times.
        panel.set_xticks([tick for tick in panel.get_xticks() if tick <= horizon_s])
    handles = [
        Patch(color="0.65", label="median"),
        Patch(facecolor="none", edgecolor="0.65", hatch="////", label="median beyond"),
        Line2D([], [], marker="o", color="0.35", linestyle="none", markersize=2.6, label="a trial"),
        Line2D([], [], marker=">", color="0.35", markerfacecolor="white", linestyle="none", markersize=4.0,
               label="not reached"),
        Line2D([], [], **LIMIT_LINE, label="horizon"),
    ]  # fmt: skip
    legend(axes[-1 if is_narrow(figure) else 0][0], handles)
    return figure


def _draw_bar(axes: Axes, place: int, pick: Pick, target: float, horizon_s: float) -> None:
    """One method: bar, dots, and how many trials reached the target."""
    found = reach_of(pick.results, target)
    times_s = np.array(found.times_s)
    colour = method_colour(pick.entry.method.name)
    is_there = np.isfinite(times_s)
    if np.isfinite(found.median_s):
        axes.barh(place, found.median_s, height=0.6, color=colour, alpha=0.55, zorder=2)
    elif len(times_s):
        axes.barh(place, horizon_s, height=0.6, facecolor="none", edgecolor=colour, hatch="////", alpha=0.5, zorder=2)
    spread = 0.2 if len(times_s) > 1 else 0.0
    # Trials one below the other, since many reach the target at the same snapshot.
    dots = place + np.linspace(-spread, spread, len(times_s))
    axes.plot(times_s[is_there], dots[is_there], "o", color=colour, markersize=2.6, zorder=3)
    beyond = np.full(int((~is_there).sum()), horizon_s)
    axes.plot(beyond, dots[~is_there], ">", color=colour, markerfacecolor="white", markersize=4.0, zorder=3)
    axes.text(1.03 * horizon_s, place, reached_words(found), va="center", fontsize="small", color="0.25")


def reached_words(found: Reach) -> str:
    """How many trials reached the target."""
    words = f"{found.reached} of {len(found.times_s)}"
    if found.unknown:
        words += f", {found.unknown} unknown"
    return words


@paper_style()
def reached_over_time(
    sweep: Source,
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    page: int | None = None,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """The share of trials that have reached a test accuracy over time (Kaplan and Meier); ticks: a trial ended."""
    comparison = comparison_of(sweep, page)
    if "test_accuracy" not in comparison.quantities:
        raise UserError("time to a target: needs runs with an accuracy; draw their quality over time")
    heading = f"Trials that have reached {target:g} % test accuracy, and 95 % interval"
    figure, axes = panels(comparison, 1, width, inches(width), heading, titled=titled)
    for row, (panel,) in zip(comparison.rows.values(), axes, strict=True):
        handles = []
        for pick in picks_of(row, step_sizes):
            look = _stair_look(pick.entry)
            handles.append(Line2D([], [], **look, label=pick.label))
            found = reach_curve(pick.results, target)
            if found is None:
                continue
            # The last step is drawn until the end of the axis.
            time_s = np.append(found.time_s, found.end_s)
            share, low, high = (100 * np.append(values, values[-1]) for values in (found.share, found.low, found.high))
            panel.fill_between(time_s, low, high, step="post", color=look["color"], alpha=0.13, linewidth=0, zorder=2)
            panel.step(time_s, share, where="post", zorder=3, **look)
            at = share[np.searchsorted(found.time_s, found.censored_s, side="right") - 1]
            panel.plot(found.censored_s, at, "|", color=look["color"], markersize=7, zorder=4, gid="censored")
        label_axes(panel, "time (s)", "share of trials (%)")
        panel.set_ylim(-3, 103)
        panel.margins(x=0.02)
        legend(panel, handles)
    return figure


def _stair_look(entry: Entry) -> dict[str, Any]:
    """The style of a line without its markers."""
    return look_of(entry) | {"marker": None}


def settings_to_profile(comparisons: Sequence[Comparison]) -> list[Sequence[Entry]]:
    """Every setting with every rates setting, as far as the time to a target is known in it."""
    return [row for one in comparisons if "test_accuracy" in one.quantities for row in one.rows.values()]


@paper_style()
def performance_profile(
    sweeps: Sweep | Sequence[Sweep | Comparison],
    step_sizes: Mapping[str, float] | None = None,
    target: float = 80.0,
    *,
    width: Width = "page",
    titled: bool = True,
) -> Figure:
    """In which share of the settings each method is within a factor of the shortest median time to the target."""
    comparisons: list[Comparison] = []
    if isinstance(sweeps, Sweep):
        sweeps = [sweeps]
    for source in sweeps:
        if isinstance(source, Sweep):
            comparisons += arrange(source.results, source.tuned_keys)
        else:
            comparisons.append(source)
    settings = settings_to_profile(comparisons)
    if not settings:
        raise UserError("performance profiles: need runs with an accuracy; draw their quality over time")
    entries = {one.label: one for row in settings for one in row}
    labels = list(entries)
    medians_s = np.full((len(settings), len(labels)), math.nan)  # NaN where a method was not run, or not long enough
    for number, row in enumerate(settings):
        for entry in row:
            cell = entry.cell_to_draw(step_sizes or {})
            if cell is not None:
                medians_s[number, labels.index(entry.label)] = reach_of(cell.results, target).median_s
    profiles = performance_profiles(medians_s)
    figure, ((axes,),) = grid(1, inches(width), inches(width), 2.1)
    heading = f"Performance profile: median time to {target:g} % in {counted(len(settings), 'setting')}"
    entitle(figure, heading, titled=titled)
    most = 1.1 * max(2.0, *(float(one.factor[-1]) for one in profiles))
    for (label, entry), found in zip(entries.items(), profiles, strict=True):
        share = 100 * np.append(found.share, found.share[-1])
        axes.step(np.append(found.factor, most), share, where="post", **_stair_look(entry), label=label)
    label_axes(axes, "factor of the best time", "share of settings (%)")
    axes.set_xlim(1.0, most)
    axes.set_ylim(-3, 103)
    legend(axes, axes.get_legend_handles_labels()[0])
    return figure
