"""The rates of the two theorems, measured: make study-rates, or python analysis/study_rates.py RUNS PAGE."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies import (
    Floats,
    Interval,
    Point,
    band,
    fit_slope,
    gaps_and_bounds,
    rates_in_words,
    read_points,
    spaced,
)

from areabench.figures.style import dress, save, styled
from areabench.looks import METHOD_COLOURS
from areabench.paper.page_tables import markdown_table
from areabench.problem_settings import Robust
from areabench.theorems import event_probabilities, is_smooth, smooth_constants, start_distance
from areabench.theory.recursion import recursion_bound
from areabench.theory.setting import Setting
from areabench.theory.strongly_convex import closed_bound

_POINTS = 40  # of a curve
_FITTED_FROM = 3.0  # of a curve of Theorem 1 the part from K = 3d on is fitted


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
    experiment, problem = point.experiment, point.problem()
    assert is_smooth(problem)
    events = event_probabilities(experiment, point.rates)
    setting = Setting(smooth_constants(problem), events, experiment.clients.local_steps, start_distance(problem))
    shortest = min(len(trace.iterations) for trace in point.traces)
    iterations = np.mean([trace.iterations[:shortest] for trace in point.traces], axis=0)
    values = np.array([trace.squared_distance[:shortest] for trace in point.traces])
    d = setting.sent.d
    chosen = spaced(iterations[1:] + d, _POINTS) + 1
    iterations, values = iterations[chosen], values[:, chosen]
    counts = np.ceil(iterations).astype(int)
    first = int(np.searchsorted(iterations, _FITTED_FROM * d))
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
        assert isinstance(point.experiment.problem, Robust)
        samples = point.experiment.problem.samples
        title = f"M = {point.experiment.clients.local_steps}, {rates_in_words(point)}, {samples} samples"
        groups.setdefault(title, []).append(point)
    return [_theorem2_curve(title, group) for title, group in groups.items()]


def _theorem2_curve(title: str, points: list[Point]) -> Curve:
    iterations = np.array([float(point.traces[0].iterations[-1]) for point in points])
    gaps = [gaps_and_bounds(point) for point in points]
    values, bound = np.array([each.measured for each in gaps]).T, np.array([each.bounds.mean() for each in gaps])
    return Curve(title, iterations, 0.0, values, bound, None, 0, fit_slope(iterations, values))


# ---------------------------------------------------------------------------------------------------- figure


@styled
def draw(rows: list[list[Curve]]) -> Figure:
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


# ---------------------------------------------------------------------------------------------------- page


def table(curves: list[Curve], power: str) -> str:
    """Slopes and how far the bounds are."""
    heading = ["setting", "trials", "d", "K", f"slope ({power})", "bound / measured at the end", "points above a bound"]
    rows = []
    for curve in curves:
        mean = curve.values.mean(axis=0)[-1]
        loose = f"{curve.bound[-1] / mean:,.3g}"
        if curve.closed is not None:
            loose += f" (closed form {curve.closed[-1] / mean:,.3g})"
        offset = f"{curve.offset:,.0f}" if curve.offset else ""
        crossed = f"{curve.crossings} of {len(curve.iterations)}"
        trials, last = str(len(curve.values)), f"{curve.iterations[-1]:,.0f}"
        rows.append([curve.title, trials, offset, last, str(curve.slope), loose, crossed])
    return markdown_table(heading, rows)


PAGE = """\
# The rates of the two theorems, measured

`make study-rates` runs [rates_smooth.toml](rates_smooth.toml) and [rates_lipschitz.toml](rates_lipschitz.toml) in the
simulator and writes this page. AREA has the theorems' own step sizes, the server steps at the arrivals of a Poisson
process with the rate lambda_s* of each setting. Intervals are 95 %, by resampling the trials.

![Measured errors of AREA over iterations, with the bounds of both theorems above them](rates.svg)

## Theorem 1: E|x_s,K - x*|² falls as 1/K

Strongly convex quadratics (mu = 1, L = 2, zeta = 1, sigma = 1). The step sizes are c/(k + d), so the slope is fitted
over K + d, from K = {from_:g} d on; for large K the two are the same. The bounds are those of `areabench.theory`, whose
constants differ from print in places ([corrections](../../docs/theory-corrections.md)): the recursion iterates the
lemmas' own inequalities, the closed form sums them up.

{first}
## Theorem 2: E[f(average) - f*] falls as 1/sqrt(K)

l1 regression with mini-batches; the minimum comes from a linear program. Each K has runs of its own, as the step size
depends on it. With few samples f is piecewise linear with a sharp minimum, the case that the theorem's rate is made
for; with many samples f is nearly smooth.

{second}"""


def main(runs: Path, page: Path) -> None:
    """Read the sweeps, draw, write the page."""
    first = [theorem1_curve(point) for point in read_points(runs / "rates_smooth")]
    second = theorem2_curves(read_points(runs / "rates_lipschitz"))
    figure = draw([first, second])
    for suffix in ("png", "svg"):
        save(figure, page.parent / f"rates.{suffix}")
    text = PAGE.format(from_=_FITTED_FROM, first=table(first, "-1"), second=table(second, "-1/2"))
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
