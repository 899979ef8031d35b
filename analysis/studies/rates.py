"""The theorems' rates: measured errors, slopes and bounds, and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.letters import common_legend, typeset
from studies.points import Point, gaps_and_bounds, misfit, rates_in_words
from studies.statistics import Floats, Interval, band, fit_slope, spaced

from areabench.experiment.labels import method_colour
from areabench.problems.robust import Robust
from areabench.theory.applied import event_probabilities, is_smooth, smooth_constants, start_distance
from areabench.theory.theorem1 import Setting, closed_bound, recursion_bound
from areabench.views.figures.style import (
    entitle,
    grid,
    label_axes,
    label_log_axis,
    styled,
)
from areabench.views.styled import counted

_NAMES = ("E|x_s,K - x*|²", "E[f(average) - f*]")  # what the theorems bound

_POINTS = 40  # of a curve
FITTED_FROM = 3.0  # of a curve of Theorem 1 the part from K = 3d on is fitted


@dataclass(frozen=True)
class Curve:
    """A measured quantity over K with its bounds, shape (points,), and the slope that was fitted from `first` on."""

    title: str
    iterations: Floats
    offset: float  # what is added to K where slopes are fitted
    values: Floats  # shape (trials, points)
    bound: Floats
    closed: Floats | None
    first: int
    slope: Interval

    @property
    def crossings(self) -> int:
        """At how many points the measured mean lies above a bound."""
        mean = self.values.mean(axis=0)
        closed = self.bound if self.closed is None else self.closed
        return int(np.count_nonzero((mean > self.bound) | (mean > closed)))


def theorem1_curve(point: Point) -> Curve:
    """E|x_s,K - x*|² over K for one point of the sweep; snapshots are compared at equal times, at their mean K."""
    experiment = point.experiment
    problem = point.problem()
    if not is_smooth(problem):
        raise misfit(experiment, f"of smooth, strongly convex problems (quadratic), not {experiment.problem.name}")
    events = event_probabilities(experiment, point.rates)
    setting = Setting(smooth_constants(problem), events, experiment.clients.local_steps, start_distance(problem))
    shortest = min(len(trace.iterations) for trace in point.traces)
    iterations = np.mean([trace.iterations[:shortest] for trace in point.traces], axis=0)
    values = np.array([trace.squared_distance[:shortest] for trace in point.traces])
    d = setting.sent.d
    chosen = spaced(iterations[1:] + d, _POINTS) + 1
    iterations = iterations[chosen]
    values = values[:, chosen]
    counts = np.ceil(iterations).astype(int)
    first = int(np.searchsorted(iterations, FITTED_FROM * d))
    return Curve(
        title=f"M = {experiment.clients.local_steps}, {rates_in_words(point)}",
        iterations=iterations,
        offset=d,
        values=values,
        bound=recursion_bound(setting, int(counts[-1]))[counts],
        closed=np.array([closed_bound(setting, int(count)) for count in counts]),
        first=first,
        slope=fit_slope(iterations[first:] + d, values[:, first:]),
    )


def theorem2_curves(points: list[Point]) -> list[Curve]:
    """E[f(average) - f*] over K: points that differ in K only make one curve."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        problem = point.experiment.problem
        if not isinstance(problem, Robust):
            raise misfit(point.experiment, f'of problem.name = "robust", not "{problem.name}"')
        samples = problem.samples
        title = f"M = {point.experiment.clients.local_steps}, {rates_in_words(point)}, {samples} samples"
        groups.setdefault(title, []).append(point)
    return [_theorem2_curve(title, group) for title, group in groups.items()]


def _theorem2_curve(title: str, points: list[Point]) -> Curve:
    iterations = np.array([float(point.traces[0].iterations[-1]) for point in points])
    gaps = [gaps_and_bounds(point) for point in points]
    values = np.array([each.measured for each in gaps]).T
    bound = np.array([each.bounds.mean() for each in gaps])
    return Curve(title, iterations, 0.0, values, bound, None, 0, fit_slope(iterations, values))


@styled
def draw_rates(rows: list[list[Curve]]) -> Figure:
    """One row of panels per theorem."""
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    panels = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    for number, (curves, line) in enumerate(zip(rows, panels, strict=True)):
        for panel in line[len(curves) :]:
            panel.set_axis_off()
        for curve, panel in zip(curves, line, strict=False):
            _panel(panel, curve, 1.0 if number == 0 else 0.5, 9)
            label_axes(panel, "iterations K", _NAMES[number] if curve is curves[0] else "")
        free = len(curves) < len(line)  # the legend goes into a panel without a curve
        handles, labels = line[0].get_legend_handles_labels()
        line[-1 if free else 0].legend(
            handles, labels, frameon=False, fontsize=8, loc="center" if free else "lower left"
        )
        _same_limits(line[: len(curves)])
    return figure


@styled
def draw_theorem(curves: Sequence[Curve], theorem: int, *, width_in: float) -> Figure:
    """The curves of one theorem for a paper, one panel each; `theorem` is 1 or 2."""
    figure, (panels,) = grid(len(curves), width_in, 3.0, 2.0)
    least = min(len(curve.values) for curve in curves)
    entitle(figure, f"Theorem {theorem}: AREA and the bound, {counted(least, 'trial')}")
    for curve, panel in zip(curves, panels, strict=True):
        _panel(panel, curve, 1 / theorem, "small")
        label_axes(panel, "iterations K", _NAMES[theorem - 1])
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
    colour = method_colour("area")
    axes.fill_between(curve.iterations, measured.low, measured.high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(
        curve.iterations, measured.mean, color=colour, marker=marker, markersize=4, label="measured, 95 % interval"
    )
    fitted = curve.iterations[curve.first :] + curve.offset
    line = measured.mean[-1] * (fitted / fitted[-1]) ** -power
    words = "slope -1 in K + d" if power == 1 else "slope -1/2"
    axes.plot(curve.iterations[curve.first :], 1.6 * line, color="#D55E00", linewidth=1, label=words)
    axes.set_title(f"{curve.title}\nslope {curve.slope.value:.3f}", fontsize=size)
