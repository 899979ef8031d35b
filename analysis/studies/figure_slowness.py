"""The figure of what slows AREA down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.slowness import Slowness
from studies.statistics import band

from areabench.views.figures.style import dress, label_log_axis, styled


@styled
def draw_slowness(smooth: Sequence[Slowness], lipschitz: Sequence[Slowness]) -> Figure:
    """Errors over p_min and over q_bar: where one and four slow clients lie on one line, that is what counts."""
    figure = Figure(figsize=(12.5, 3.4), layout="constrained")
    panels = figure.subplots(1, 4)
    cases = (("Theorem 1's steps: E|x_s,K - x*|²", smooth), ("Theorem 2's step: E[f(average) - f*]", lipschitz))
    for number, (title, found) in enumerate(cases):
        for panel, key, name in zip(
            panels[2 * number :], ("minimum", "mean_inverse"), ("p_min", "q_bar"), strict=False
        ):
            _slowness_panel(panel, found, key)
            dress(panel, name, title if key == "minimum" else "")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _slowness_panel(axes: Axes, found: Sequence[Slowness], key: str) -> None:
    axes.set(xscale="log", yscale="log")
    for slow, colour, marker in ((1, "#0072B2", "o"), (4, "#D55E00", "s")):
        own = [each for each in found if each.slow == slow]
        across = [getattr(each.events, key) for each in own]
        shown = band(np.array([each.errors for each in own]).T)
        axes.fill_between(across, shown.low, shown.high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(across, shown.mean, color=colour, marker=marker, markersize=4, label=f"{slow} of 8 clients slow")
    label_log_axis(axes.xaxis)
    label_log_axis(axes.yaxis)
