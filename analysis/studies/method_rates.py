"""The rates of the paper's tables 1 and 2: measured errors over K, slopes, and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.points import Point
from studies.statistics import Floats, Interval, band, fit_slope, spaced

from areabench.experiment.labels import method_colour, method_label
from areabench.methods.async_sgd import AsyncSgd
from areabench.problems.quadratic import QuadraticProblem
from areabench.views.figures.style import label_axes, label_log_axis, styled

_POINTS, _FITTED_FROM = 30, 0.03  # of a curve; the share of K from which the slope is fitted


@dataclass(frozen=True)
class RateRow:
    """One row of a table: its conditions, the errors over K, shape (trials, points), and their slope."""

    method: str
    name: str
    data: str
    conditions: str
    iterate: str
    claimed: str
    iterations: Floats
    errors: Floats
    slope: Interval
    remark: str = ""


def smooth_rows(points: Sequence[Point]) -> list[RateRow]:
    """The rows of table 1; points of one method that differ in step size only make one row."""
    groups: dict[object, list[Point]] = {}
    for point in points:
        key = replace(point.experiment, method=replace(point.experiment.method, step_size=1.0), seed=0)
        groups.setdefault(key, []).append(point)
    return [_smooth_row(group) for group in groups.values()]


def _smooth_row(group: Sequence[Point]) -> RateRow:
    experiment = group[0].experiment
    last = experiment.method.name == "area"  # the table's only row about the last iterate
    iterations, errors, ends = _least_errors(group, last=last)
    first = int(np.searchsorted(iterations, _FITTED_FROM * iterations[-1]))
    method = experiment.method
    adaptive = False
    if isinstance(method, AsyncSgd):
        adaptive = method.step == "adaptive"
    steps = {"asynccomm-sgd": "1/t, common clock", "area": "Theorem 1's, 1/k"}.get(
        method.name, "delay-adaptive" if adaptive else "constant, delay-dependent"
    )
    delays = "bounded" if experiment.delays.name == "fixed" else "unbounded"
    remark = ""
    if len(group) > 1:
        sizes = [point.experiment.method.step_size for point in group]
        extremes = (int(np.argmin(sizes)), int(np.argmax(sizes)))
        remark = ", ".join(f"γ = {sizes[place]:g}: {ends[place]:.2g}" for place in extremes)
    return RateRow(
        method_label(method.name),
        method.name,
        "IID" if getattr(experiment.problem, "zeta", None) == 0 else "non-IID",
        f"{delays}, {steps}",
        "last" if last else "averaged",
        "σ²/K" if method.name in ("area", "asynccomm-sgd") else "e^(-cK) + σ²/K",
        iterations,
        errors,
        fit_slope(iterations[first:], errors[:, first:]),
        remark,
    )


def _least_errors(group: Sequence[Point], *, last: bool) -> tuple[Floats, Floats, list[float]]:
    """K, the errors of all trials with the best step size at each K, and the last iterate's error of each step size."""
    shortest = min(len(trace.iterations) for point in group for trace in point.traces)
    iterations = np.mean([trace.iterations[:shortest] for point in group for trace in point.traces], axis=0)
    errors = np.array(
        [[_error(point, trial, last=last)[:shortest] for trial in range(len(point.traces))] for point in group]
    )  # (step sizes, trials, snapshots)
    best = errors.mean(axis=1).argmin(axis=0)
    chosen = spaced(iterations[1:], _POINTS) + 1
    least = np.array([errors[best[place], :, place] for place in chosen]).T
    ends = [float(np.mean([trace.squared_distance[-1] for trace in point.traces])) for point in group]
    return iterations[chosen], least, ends


def _error(point: Point, trial: int, *, last: bool) -> Floats:
    """|x - x*|² of the last iterates, or f(average) - f* of the averages, over the snapshots of a trial."""
    trace = point.traces[trial]
    problem = point.problem(trial)
    assert isinstance(problem, QuadraticProblem)
    return trace.squared_distance if last else trace.average_loss - problem.minimum


def lipschitz_rows(points: Sequence[Point]) -> list[RateRow]:
    """The rows of table 2; points that differ in K and step size make one row."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        method = point.experiment.method
        sampling = method.assignment if isinstance(method, AsyncSgd) else ""
        groups.setdefault((method.name, sampling), []).append(point)
    return [_lipschitz_row(name, sampling, group) for (name, sampling), group in groups.items()]


def _lipschitz_row(name: str, sampling: str, group: Sequence[Point]) -> RateRow:
    iterations = np.array([float(np.mean([trace.iterations[-1] for trace in point.traces])) for point in group])
    errors = np.array(
        [
            [
                trace.average_loss[-1] - point.problem(trial).optimum.minimum  # type: ignore[attr-defined]
                for trial, trace in enumerate(point.traces)
            ]
            for point in group
        ]
    ).T
    equal = group[0].rates.max() == group[0].rates.min()
    return RateRow(
        method_label(name),
        name,
        "equal rates" if equal else "non-IID, uneven rates",
        "unbiased sampling" if sampling == "uniform" else "no sampling",
        "averaged",
        "1/sqrt(K)",
        iterations,
        errors,
        fit_slope(iterations, errors),
    )


@styled
def draw_method_rates(smooth: Sequence[RateRow], lipschitz: Sequence[RateRow]) -> Figure:
    """Mean errors with their intervals over K, one panel per table."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    first, second = figure.subplots(1, 2)
    _panel(first, smooth, -1.0)
    first.set_title("Table 1: strongly convex, smooth", fontsize=10)
    _panel(second, lipschitz, -0.5)
    second.set_title("Table 2: convex, Lipschitz", fontsize=10)
    return figure


def _panel(axes: Axes, rows: Sequence[RateRow], power: float) -> None:
    axes.set(xscale="log", yscale="log")
    for row, line in zip(rows, ("-", "--", "-.", ":"), strict=False):
        shown = band(row.errors)
        colour = method_colour(row.name)
        axes.fill_between(row.iterations, shown.low, shown.high, color=colour, alpha=0.2, linewidth=0)
        label = f"{row.method}, {row.conditions}"
        axes.plot(row.iterations, shown.mean, color=colour, linestyle=line, label=label)
    ends = max(rows, key=lambda row: row.errors[:, -1].mean())
    reference = 2 * ends.errors[:, -1].mean() * (ends.iterations / ends.iterations[-1]) ** power
    axes.plot(ends.iterations, reference, color="0.6", linewidth=0.8, label=f"slope {power:g}")
    label_axes(axes, "iterations K", "error, mean and 95 %")
    label_log_axis(axes.xaxis)
    axes.legend(frameon=False, fontsize=7)
