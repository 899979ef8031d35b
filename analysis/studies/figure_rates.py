"""The figure of the theorems' rates: measured errors, slopes and bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.rates import Curve
from studies.statistics import band

from areabench.experiment.labels import METHOD_COLOURS
from areabench.views.figures.style import (
    common_legend,
    dress,
    entitle,
    grid,
    label_log_axis,
    styled,
    trials_name,
    typeset,
)

_NAMES = ("E|x_s,K - x*|²", "E[f(average) - f*]")  # what the theorems bound


@styled
def draw_rates(rows: list[list[Curve]]) -> Figure:
    """One row of panels a theorem."""
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    panels = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    for number, (curves, line) in enumerate(zip(rows, panels, strict=True)):
        for panel in line[len(curves) :]:
            panel.set_axis_off()
        for curve, panel in zip(curves, line, strict=False):
            _panel(panel, curve, 1.0 if number == 0 else 0.5, 9)
            dress(panel, "iterations K", _NAMES[number] if curve is curves[0] else "")
        free = len(curves) < len(line)  # a panel without curve has room for the legend
        handles, labels = line[0].get_legend_handles_labels()
        line[-1 if free else 0].legend(
            handles, labels, frameon=False, fontsize=8, loc="center" if free else "lower left"
        )
        _same_limits(line[: len(curves)])
    return figure


@styled
def draw_theorem(curves: Sequence[Curve], theorem: int, *, width_in: float) -> Figure:
    """The curves of one theorem for a paper, a panel each; `theorem` is 1 or 2."""
    figure, panels = grid(len(curves), width_in, 3.0, 2.0)
    least = min(len(curve.values) for curve in curves)
    entitle(figure, f"Theorem {theorem}: AREA and the bound, {trials_name(least)}")
    for curve, panel in zip(curves, panels, strict=True):
        _panel(panel, curve, 1 / theorem, "small")
        dress(panel, "iterations K", _NAMES[theorem - 1])
    _same_limits(panels)
    for panel in panels:
        label_log_axis(panel.xaxis, 5)
        panel.xaxis.set_major_formatter(lambda value, _place: f"{value:g}" if value < 1000 else f"{value / 1000:g}k")
        label_log_axis(panel.yaxis, 6)
    common_legend(figure, panels[0])
    typeset(figure)
    return figure


def _same_limits(panels: Sequence[Axes]) -> None:
    limits = np.array([panel.get_ylim() for panel in panels])
    for panel in panels:
        panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def _panel(axes: Axes, curve: Curve, power: float, size: float | str) -> None:
    axes.set(xscale="log", yscale="log")
    measured = band(curve.values)
    marker = "o" if len(curve.iterations) < 10 else ""
    if curve.closed is not None:
        axes.plot(curve.iterations, curve.closed, color="0.6", linestyle=":", label="bound, closed form")
    name = "bound, the proof's recursion" if curve.closed is not None else "bound"
    axes.plot(curve.iterations, curve.bound, color="black", linestyle="--", label=name)
    colour = METHOD_COLOURS["area"]
    axes.fill_between(curve.iterations, measured.low, measured.high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(
        curve.iterations, measured.mean, color=colour, marker=marker, markersize=4, label="measured, 95 % interval"
    )
    fitted = curve.iterations[curve.first :] + curve.offset
    line = measured.mean[-1] * (fitted / fitted[-1]) ** -power
    words = "slope -1 in K + d" if power == 1 else "slope -1/2"
    axes.plot(curve.iterations[curve.first :], 1.6 * line, color="#D55E00", linewidth=1, label=words)
    axes.set_title(f"{curve.title}\nslope {curve.slope.value:.3f}", fontsize=size)
