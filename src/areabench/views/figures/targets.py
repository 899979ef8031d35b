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
from areabench.results.grouping import Comparison, Entry
from areabench.results.statistics import Floats, Reach, ReachCurve, performance_profiles, reach_curve, reach_of
from areabench.views.figures.style import (
    LIMIT_LINE,
    entitle,
    is_narrow,
    label_axes,
    legend,
    method_style,
    styled,
)
from areabench.views.figures.sweeps import Pick, line_style, panels, picks_of
from areabench.views.styled import counted

_BARE = ("marker", "markersize")  # of a line's style: a stair has no markers

# ---------------------------------------------------------------------------------------------------- bars


@styled
def draw_time_to_target(
    comparison: Comparison, wished: Mapping[str, float], target: float, *, width_in: float
) -> Figure:
    """One row of bars per rates setting: the median as a bar, trials as dots, those beyond the horizon at its line."""
    horizon_s = comparison.experiment.stop.horizon_s
    if horizon_s is None or "test_accuracy" not in comparison.quantities:
        raise UserError("time to a target: needs runs with a horizon and an accuracy; draw their quality over time")
    figure, axes = panels(comparison, 1, width_in, f"Time to {target:g} % test accuracy", (width_in, width_in))
    count = max(len(row) for row in comparison.rows.values())
    figure.set_figheight(1.1 + (0.28 * count + 0.75) * len(comparison.rows))
    for row, (panel,) in zip(comparison.rows.values(), axes, strict=True):
        _draw_row(panel, row, wished, target, horizon_s)
    legend(axes[-1 if is_narrow(figure) else 0][0], _handles())
    return figure


def _draw_row(axes: Axes, row: Sequence[Entry], wished: Mapping[str, float], target: float, horizon_s: float) -> None:
    picks = picks_of(row, wished)
    label_axes(axes, "time (s)", "")
    axes.grid(visible=False, axis="y")
    for place, pick in enumerate(picks):
        _draw_bar(axes, place, pick, target, horizon_s)
    axes.axvline(horizon_s, **LIMIT_LINE, zorder=1)
    axes.set_yticks(range(len(picks)), [pick.label.replace("\n", " ") for pick in picks])
    axes.set_ylim(len(picks) - 0.4, -0.6)
    axes.set_xlim(0, 1.22 * horizon_s)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= horizon_s])


def _draw_bar(axes: Axes, place: int, pick: Pick, target: float, horizon_s: float) -> None:
    """One method: bar, dots, and how many trials reached the target."""
    found = reach_of(pick.cell.results if pick.cell else (), target)
    times_s = np.array(found.times_s)
    colour, is_there = method_style(pick.entry.method.name).colour, np.isfinite(times_s)
    if np.isfinite(found.median_s):
        axes.barh(place, found.median_s, height=0.6, color=colour, alpha=0.55, zorder=2)
    elif len(times_s):
        axes.barh(place, horizon_s, height=0.6, facecolor="none", edgecolor=colour, hatch="////", alpha=0.5, zorder=2)
    spread = place + np.linspace(-0.2, 0.2, len(times_s)) if len(times_s) > 1 else np.array([float(place)])
    dots = spread[: len(times_s)]
    axes.plot(times_s[is_there], dots[is_there], "o", color=colour, markersize=2.6, zorder=3)
    beyond = np.full(int((~is_there).sum()), horizon_s)
    axes.plot(beyond, dots[~is_there], ">", color=colour, markerfacecolor="white", markersize=4.0, zorder=3)
    axes.text(1.03 * horizon_s, place, reached_words(found), va="center", fontsize="small", color="0.25")


def reached_words(found: Reach) -> str:
    """How many trials reached the target."""
    unknown = f", {found.unknown} unknown" if found.unknown else ""
    return f"{found.reached} of {len(found.times_s)}{unknown}"


def _handles() -> list[Line2D | Patch]:
    return [
        Patch(color="0.65", label="median"),
        Patch(facecolor="none", edgecolor="0.65", hatch="////", label="median beyond"),
        Line2D([], [], marker="o", color="0.35", linestyle="none", markersize=2.6, label="a trial"),
        Line2D([], [], marker=">", color="0.35", markerfacecolor="white", linestyle="none", markersize=4.0,
               label="not reached"),
        Line2D([], [], **LIMIT_LINE, label="horizon"),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- share of trials


@styled
def draw_reach_curves(
    comparison: Comparison, wished: Mapping[str, float], target: float, *, width_in: float | None = None
) -> Figure:
    """The share of trials that have reached the target over time, with its 95 % interval; ticks: a trial ended."""
    if "test_accuracy" not in comparison.quantities:
        raise UserError("time to a target: needs runs with an accuracy; draw their quality over time")
    heading = f"Trials that have reached {target:g} % test accuracy, and 95 % interval"
    figure, axes = panels(comparison, 1, 7.0, heading, None if width_in is None else (width_in, width_in))
    for row, (panel,) in zip(comparison.rows.values(), axes, strict=True):
        picks = picks_of(row, wished)
        for pick in picks:
            found = reach_curve(pick.cell.results, target) if pick.cell else None
            if found is not None:
                _draw_stair(panel, pick, found)
        label_axes(panel, "time (s)", "share of trials (%)")
        panel.set_ylim(-3, 103)
        panel.margins(x=0.02)
        legend(panel, [Line2D([], [], **_stair_style(pick.entry), label=pick.label) for pick in picks])
    return figure


def _stair_style(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in line_style(entry).items() if name not in _BARE}


def _draw_stair(axes: Axes, pick: Pick, found: ReachCurve) -> None:
    style = _stair_style(pick.entry)
    time_s = np.append(found.time_s, found.end_s)
    share, low, high = (100 * np.append(values, values[-1]) for values in (found.share, found.low, found.high))
    look = {"color": style["color"], "alpha": 0.13, "linewidth": 0, "zorder": 2}
    axes.fill_between(time_s, low, high, step="post", **look)
    axes.step(time_s, share, where="post", zorder=3, **style)
    at = 100 * found.share[np.searchsorted(found.time_s, found.censored_s, side="right") - 1]
    axes.plot(found.censored_s, at, "|", color=str(style["color"]), markersize=7, zorder=4, gid="censored")


# ---------------------------------------------------------------------------------------------------- profiles


def settings_to_profile(comparisons: Sequence[Comparison]) -> list[Sequence[Entry]]:
    """Every setting with every rates setting, as far as the time to a target is known in it."""
    return [row for one in comparisons if "test_accuracy" in one.quantities for row in one.rows.values()]


@styled
def draw_profiles(
    comparisons: Sequence[Comparison], wished: Mapping[str, float], target: float, *, width_in: float | None = None
) -> Figure:
    """In which share of the settings each method is within a factor of the shortest median time to the target."""
    settings = settings_to_profile(comparisons)
    if not settings:
        raise UserError("performance profiles: need runs with an accuracy; draw their quality over time")
    entries = {one.label: one for row in settings for one in row}
    profiles = performance_profiles(_medians_s(settings, list(entries), wished, target))
    figure = Figure(
        figsize=(7.0 if width_in is None else width_in, 3.7 if width_in is None else 2.6), layout="constrained"
    )
    entitle(figure, f"Performance profile: median time to {target:g} % in {counted(len(settings), 'setting')}")
    axes = figure.subplots()
    most = 1.1 * max(2.0, *(float(one.factor[-1]) for one in profiles))
    for entry, found in zip(entries.values(), profiles, strict=True):
        factor, share = np.append(found.factor, most), 100 * np.append(found.share, found.share[-1])
        axes.step(factor, share, where="post", **_stair_style(entry))
    label_axes(axes, "factor of the best time", "share of settings (%)")
    axes.set_xlim(1.0, most)
    axes.set_ylim(-3, 103)
    handles = [Line2D([], [], **_stair_style(one), label=label) for label, one in entries.items()]
    legend(axes, handles)
    return figure


def _medians_s(
    rows: Sequence[Sequence[Entry]], labels: Sequence[str], wished: Mapping[str, float], target: float
) -> Floats:
    """Median times of shape (settings, methods); NaN where a method was not run or its time is not known."""
    table = np.full((len(rows), len(labels)), math.nan)
    for number, row in enumerate(rows):
        for entry in row:
            cell = entry.cell_to_draw(wished)
            if cell is not None:
                table[number, labels.index(entry.label)] = reach_of(cell.results, target).median_s
    return table
