"""Where methods end under uneven rates: the limits, and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.letters import common_legend, typeset
from studies.points import Point, misfit
from studies.statistics import Floats, band

from areabench.experiment.labels import method_label
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.views.figures.style import (
    entitle,
    grid,
    label_axes,
    label_log_axis,
    line_look,
    styled,
)
from areabench.views.styled import counted

NAMES = {"area": "AREA", "as-fedavg": "AS-FedAvg", "fedbuff": "FedBuff"}


@dataclass(frozen=True)
class Limit:
    """Where a method ended: |x - x*| of the mean model of the last tenth, one row per trial, and the prediction."""

    method: str
    zeta: float
    ratio: float  # of the fastest to the slowest rate
    distances: Floats  # shape (trials,)
    predicted: float  # |x_p - x*| of the minimiser of sum p_i f_i, mean over trials


def limit_of(point: Point) -> Limit:
    """The limit of one point of the sweep."""
    settings = point.experiment.problem
    if not isinstance(settings, Quadratic) or settings.zeta is None:
        raise misfit(point.experiment, 'of problem.name = "quadratic" with a problem.zeta')
    distances = []
    predicted = []
    shares = point.rates / point.rates.sum()
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        assert isinstance(problem, QuadraticProblem)
        late = trace.models[-len(trace.models) // 10 :].mean(axis=0)
        distances.append(float(np.linalg.norm(late - problem.minimiser)))
        predicted.append(float(np.linalg.norm(weighted_minimiser(problem, shares) - problem.minimiser)))
    ratio = float(point.rates.max() / point.rates.min())
    return Limit(point.experiment.method.name, settings.zeta, ratio, np.array(distances), float(np.mean(predicted)))


def weighted_minimiser(problem: QuadraticProblem, shares: Floats) -> Floats:
    """The minimiser of sum_i p_i f_i, the limit of methods in which every update counts."""
    bowls = [problem.function(client) for client in range(problem.clients)]
    hessian = sum(share * bowl.hessian for share, bowl in zip(shares, bowls, strict=True))
    pull = sum(share * bowl.hessian @ bowl.centre for share, bowl in zip(shares, bowls, strict=True))
    return np.asarray(np.linalg.solve(np.asarray(hessian), np.asarray(pull)))


@styled
def draw_limits(limits: Sequence[Limit], points: Sequence[Point], *, width_in: float | None = None) -> Figure:
    """The way to the limit at one ratio, and the limits over the ratio, one panel per zeta; `points` are theirs."""
    zetas = sorted({limit.zeta for limit in limits})
    size = 10 if width_in is None else "small"
    figure, (first, *others) = _panels(len(zetas) + 1, width_in, len(points[0].traces))
    shown = _nearest(limits, zeta=1.0, ratio=100.0)
    for limit, point in zip(limits, points, strict=True):
        if (limit.zeta, limit.ratio) == (shown.zeta, shown.ratio):
            _course(first, point)
    label_axes(first, "iterations K", "|x_s - x*|, median trial")
    first.set_title(f"ratio of rates {shown.ratio:.0f}, zeta = {shown.zeta:g}", fontsize=size)
    for zeta, panel in zip(zetas, others, strict=True):
        _limit_panel(panel, [limit for limit in limits if limit.zeta == zeta])
        panel.set_title(f"limits, zeta = {zeta:g}", fontsize=size)
    low = min(panel.get_ylim()[0] for panel in others)
    high = max(panel.get_ylim()[1] for panel in others)
    for panel in others:
        panel.set_ylim(low, high)
    if width_in is None:
        others[0].legend(frameon=False, fontsize=8)
    else:
        for panel in others:
            panel.set_ylabel("|limit - x*|")
        common_legend(figure, others[0])
        typeset(figure)
    return figure


def _panels(count: int, width_in: float | None, trials: int) -> tuple[Figure, list[Axes]]:
    if width_in is None:
        figure = Figure(figsize=(3.4 * count, 3.6), layout="constrained")
        return figure, list(figure.subplots(1, count))
    figure, (panels,) = grid(count, width_in, 3.0, 2.0)
    entitle(figure, f"Where methods end under uneven rates, mean and 95 % of {counted(trials, 'trial')}")
    return figure, list(panels)


def _nearest(limits: Sequence[Limit], zeta: float, ratio: float) -> Limit:
    """The limit whose setting is nearest to this one."""
    return min(limits, key=lambda limit: (abs(np.log(limit.zeta / zeta)), abs(np.log(limit.ratio / ratio))))


def _course(axes: Axes, point: Point) -> None:
    look = line_look(point.experiment.method.name)
    traces = point.traces
    shortest = min(len(trace.iterations) for trace in traces)
    distance = np.median([np.sqrt(trace.squared_distance[:shortest]) for trace in traces], axis=0)
    axes.set(yscale="log")
    iterations = traces[0].iterations[:shortest]
    axes.plot(
        iterations,
        distance,
        color=look["color"],
        linestyle=look["linestyle"],
        label=method_label(point.experiment.method.name),
    )
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value / 1000:g}k")


def _place(method: str) -> tuple[int, str]:
    """The position of a method in the legend: those of the study first."""
    return [*NAMES, method].index(method), method


def _limit_panel(axes: Axes, limits: Sequence[Limit]) -> None:
    axes.set(xscale="log", yscale="log")
    for method in sorted({limit.method for limit in limits}, key=_place):
        own = sorted((limit for limit in limits if limit.method == method), key=lambda limit: limit.ratio)
        look = line_look(method)
        ratios = [limit.ratio for limit in own]
        shown = band(np.array([limit.distances for limit in own]).T)
        axes.fill_between(ratios, shown.low, shown.high, color=look["color"], alpha=0.2, linewidth=0)
        axes.plot(
            ratios,
            shown.mean,
            color=look["color"],
            marker=look["marker"],
            linestyle=look["linestyle"],
            markersize=4,
            label=method_label(method),
        )
    uneven = sorted({(limit.ratio, limit.predicted) for limit in limits if limit.ratio > 1})
    axes.plot(*zip(*uneven, strict=True), color="black", linewidth=0.8, linestyle=":", label="minimiser of Σ p_i f_i")
    label_axes(axes, "fastest rate / slowest rate", "|limit - x*|, mean and 95 %")
    label_log_axis(axes.xaxis)
