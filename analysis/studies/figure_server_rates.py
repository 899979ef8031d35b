"""The figure of the best server rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.server_rates import ServerRates
from studies.statistics import Band, Floats, band

from areabench.views.figures.style import (
    common_legend,
    dress,
    entitle,
    grid,
    label_log_axis,
    look_of,
    styled,
    trials_name,
    typeset,
)


@styled
def draw_server_rates(found: Sequence[ServerRates], *, width_in: float | None = None) -> Figure:
    """Measured gap and bound over the server's rate, both relative to their value at lambda_s*."""
    if width_in is None:
        figure = Figure(figsize=(4.2 * len(found), 3.4), layout="constrained")
        panels = list(np.atleast_1d(figure.subplots(1, len(found))))
    else:
        figure, panels = grid(len(found), width_in, 3.0, 2.0)
        entitle(figure, f"How often should the server step? {trials_name(len(found[0].gaps))}")
    for panel, each in zip(panels, found, strict=True):
        middle = int(np.argmin(np.abs(np.log(each.factors))))
        shown = band(each.gaps / each.gaps.mean(axis=0)[middle])
        panel.set(xscale="log", yscale="log")
        _relative(panel, each.factors, shown)
        panel.plot(each.factors, each.bounds / each.bounds[middle], "k--", linewidth=1, label="bound of Theorem 2")
        panel.axvline(1.0, color="0.6", linewidth=0.8)
        best = each.measured_best
        panel.axvspan(best.low, best.high, color="#009E73", alpha=0.15, linewidth=0, label="measured best, 95 %")
        panel.set_title(f"{each.title}: lambda_s* = {each.best:.3g} 1/s", fontsize=10 if width_in is None else "small")
        dress(panel, "server rate / lambda_s*", "gap / gap at lambda_s*")
        label_log_axis(panel.xaxis)
        label_log_axis(panel.yaxis)
        if width_in is None:
            panel.legend(frameon=False, fontsize=8)
    if width_in is not None:
        common_legend(figure, panels[0])
        typeset(figure)
    return figure


def _relative(axes: Axes, factors: Floats, shown: Band) -> None:
    colour = look_of("area").colour
    axes.fill_between(factors, shown.low, shown.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(factors, shown.mean, color=colour, marker="o", markersize=4, label="measured, 95 % interval")
