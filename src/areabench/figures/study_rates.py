"""The figure of the theorems' rates: measured errors, slopes and bounds."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.figures.style import dress, styled
from areabench.looks import METHOD_COLOURS
from areabench.studies.rates import Curve
from areabench.studies.statistics import band


@styled
def draw_rates(rows: list[list[Curve]]) -> Figure:
    """One row of panels a theorem."""
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    panels = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    names = ("E|x_s,K - x*|²", "E[f(average) - f*]")
    for number, (curves, line) in enumerate(zip(rows, panels, strict=True)):
        for panel in line[len(curves) :]:
            panel.set_axis_off()
        for curve, panel in zip(curves, line, strict=False):
            _panel(panel, curve, 1.0 if number == 0 else 0.5)
            dress(panel, "iterations K", names[number] if curve is curves[0] else "")
        free = len(curves) < len(line)  # a panel without curve has room for the legend
        handles, labels = line[0].get_legend_handles_labels()
        line[-1 if free else 0].legend(
            handles, labels, frameon=False, fontsize=8, loc="center" if free else "lower left"
        )
        limits = np.array([panel.get_ylim() for panel in line[: len(curves)]])
        for panel in line[: len(curves)]:
            panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    return figure


def _panel(axes: Axes, curve: Curve, power: float) -> None:
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
    axes.set_title(f"{curve.title}\nslope {curve.slope.value:.3f}", fontsize=9)
