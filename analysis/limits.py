"""Where methods end up under uneven rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies import Floats, Point, band, spread

from areabench.figures.style import dress, label_log_axis, look_of, styled
from areabench.paper.page_tables import markdown_table
from areabench.problem_settings import Quadratic
from areabench.problems.quadratic import QuadraticProblem

NAMES = {"area": "AREA", "as-fedavg": "AS-FedAvg", "fedbuff": "FedBuff"}


@dataclass(frozen=True)
class Limit:
    """Where a method ended: |x - x*| of the mean model of the last tenth, a row a trial, and what is predicted."""

    method: str
    zeta: float
    ratio: float  # of the fastest to the slowest rate
    distances: Floats  # shape (trials,)
    predicted: float  # |x_p - x*| of the minimiser of sum p_i f_i, mean over trials


def limit_of(point: Point) -> Limit:
    """The limit of one point of the sweep."""
    assert isinstance(point.experiment.problem, Quadratic)
    assert point.experiment.problem.zeta is not None
    distances, predicted = [], []
    shares = point.rates / point.rates.sum()
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        assert isinstance(problem, QuadraticProblem)
        late = trace.models[-len(trace.models) // 10 :].mean(axis=0)
        distances.append(float(np.linalg.norm(late - problem.minimiser)))
        predicted.append(float(np.linalg.norm(weighted_minimiser(problem, shares) - problem.minimiser)))
    ratio = float(point.rates.max() / point.rates.min())
    method, zeta = point.experiment.method.name, point.experiment.problem.zeta
    return Limit(method, zeta, ratio, np.array(distances), float(np.mean(predicted)))


def weighted_minimiser(problem: QuadraticProblem, shares: Floats) -> Floats:
    """The minimiser of sum_i p_i f_i, to which updates that count as often as they come lead."""
    bowls = [problem.bowl(client) for client in range(problem.clients)]
    hessian = sum(share * bowl.hessian for share, bowl in zip(shares, bowls, strict=True))
    pull = sum(share * bowl.hessian @ bowl.centre for share, bowl in zip(shares, bowls, strict=True))
    return np.asarray(np.linalg.solve(np.asarray(hessian), np.asarray(pull)))


@styled
def draw_limits(limits: Sequence[Limit], courses: Sequence[Point]) -> Figure:
    """The way there at one ratio, and the limits over the ratio, a panel a zeta."""
    zetas = sorted({limit.zeta for limit in limits})
    figure = Figure(figsize=(3.4 * (len(zetas) + 1), 3.6), layout="constrained")
    first, *others = figure.subplots(1, len(zetas) + 1)
    for point in courses:
        _course(first, point)
    dress(first, "iterations K", "|x_s - x*|, median trial")
    first.set_title("ratio of rates 100, zeta = 1", fontsize=10)
    for zeta, panel in zip(zetas, others, strict=True):
        _limit_panel(panel, [limit for limit in limits if limit.zeta == zeta])
        panel.set_title(f"limits, zeta = {zeta:g}", fontsize=10)
    low = min(panel.get_ylim()[0] for panel in others)
    high = max(panel.get_ylim()[1] for panel in others)
    for panel in others:
        panel.set_ylim(low, high)
    others[0].legend(frameon=False, fontsize=8)
    return figure


def _course(axes: Axes, point: Point) -> None:
    look, traces = look_of(point.experiment.method.name), point.traces
    shortest = min(len(trace.iterations) for trace in traces)
    distance = np.median([np.sqrt(trace.squared_distance[:shortest]) for trace in traces], axis=0)
    axes.set(yscale="log")
    iterations = traces[0].iterations[:shortest]
    axes.plot(iterations, distance, color=look.colour, linestyle=look.line, label=NAMES[point.experiment.method.name])
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value / 1000:g}k")


def _limit_panel(axes: Axes, limits: Sequence[Limit]) -> None:
    axes.set(xscale="log", yscale="log")
    for method, name in NAMES.items():
        own = sorted((limit for limit in limits if limit.method == method), key=lambda limit: limit.ratio)
        look, ratios = look_of(method), [limit.ratio for limit in own]
        shown = band(np.array([limit.distances for limit in own]).T)
        axes.fill_between(ratios, shown.low, shown.high, color=look.colour, alpha=0.2, linewidth=0)
        axes.plot(
            ratios, shown.mean, color=look.colour, marker=look.marker, linestyle=look.line, markersize=4, label=name
        )
    uneven = sorted({(limit.ratio, limit.predicted) for limit in limits if limit.ratio > 1})
    axes.plot(*zip(*uneven, strict=True), color="black", linewidth=0.8, linestyle=":", label="minimiser of Σ p_i f_i")
    dress(axes, "fastest rate / slowest rate", "|limit - x*|, mean and 95 %")
    label_log_axis(axes.xaxis)


def limit_table(limits: Sequence[Limit]) -> str:
    """Distances by ratio and method, for each zeta."""
    heading = ["zeta", "ratio", *NAMES.values(), "minimiser of Σ p_i f_i"]
    rows = []
    for zeta, ratio in sorted({(limit.zeta, limit.ratio) for limit in limits}):
        here = {limit.method: limit for limit in limits if (limit.zeta, limit.ratio) == (zeta, ratio)}
        found = [spread(here[method].distances) for method in NAMES]
        rows.append([f"{zeta:g}", f"{ratio:.0f}", *found, f"{here['fedbuff'].predicted:.3g}"])
    return markdown_table(heading, rows)
