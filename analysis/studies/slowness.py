"""What slows AREA down, its slowest client or the clients' mean waiting time, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.points import Point, misfit
from studies.statistics import Floats, band

from areabench.theory.applied import event_probabilities, is_smooth, smooth_constants, start_distance
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.theorem1 import Setting, recursion_bound
from areabench.views.figures.style import label_axes, label_log_axis, styled


@dataclass(frozen=True)
class Slowness:
    """The final error of AREA where some clients are slow."""

    slow: int  # clients
    events: EventProbabilities
    errors: Floats  # shape (trials,)


def slowness_of(point: Point, errors: Floats) -> Slowness:
    """One point of the sweeps over probabilities."""
    rates = point.rates
    slow = int(np.count_nonzero(rates == rates.min()))
    return Slowness(slow, event_probabilities(point.experiment, rates), errors)


def final_distances(point: Point) -> Floats:
    """|x_s,K - x*|² at the end of each trial."""
    return np.array([trace.squared_distance[-1] for trace in point.traces])


def theorem1_bound(point: Point) -> float:
    """Theorem 1's bound at the end, by the proof's recursion."""
    problem = point.problem()
    events = event_probabilities(point.experiment, point.rates)
    if not is_smooth(problem):
        raise misfit(point.experiment, f"of smooth, strongly convex problems, not {point.experiment.problem.name}")
    setting = Setting(smooth_constants(problem), events, point.experiment.clients.local_steps, start_distance(problem))
    return float(recursion_bound(setting, int(point.traces[0].iterations[-1]))[-1])


@styled
def draw_slowness(smooth: Sequence[Slowness], lipschitz: Sequence[Slowness]) -> Figure:
    """Errors over p_min and over q_bar: the one over which one and four slow clients lie on one line decides."""
    figure = Figure(figsize=(12.5, 3.4), layout="constrained")
    panels = figure.subplots(1, 4)
    cases = (("Theorem 1's steps: E|x_s,K - x*|²", smooth), ("Theorem 2's step: E[f(average) - f*]", lipschitz))
    for number, (title, found) in enumerate(cases):
        for panel, key, name in zip(
            panels[2 * number :], ("minimum", "mean_inverse"), ("p_min", "q_bar"), strict=False
        ):
            _slowness_panel(panel, found, key)
            label_axes(panel, name, title if key == "minimum" else "")
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
