"""The best server rate, measured and by the closed form, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.letters import common_legend, typeset
from studies.points import Point, gaps_and_bounds, misfit, rates_in_words
from studies.statistics import Band, Floats, Interval, band, resampled_means

from areabench.experiment.labels import method_colour
from areabench.methods.criteria import PoissonAggregation
from areabench.theory.theorem2 import best_server_rate
from areabench.views.figures.style import (
    entitle,
    grid,
    label_axes,
    label_log_axis,
    styled,
)
from areabench.views.styled import counted


@dataclass(frozen=True)
class ServerRates:
    """Measured gaps over the server's rate, in units of lambda_s*, shape (rates,)."""

    title: str
    best: float  # lambda_s*, 1/s
    factors: Floats
    gaps: Floats  # shape (trials, rates)
    bounds: Floats

    @property
    def measured_best(self) -> Interval:
        """The factor of lambda_s* with the least mean gap: vertex of a parabola through it and its neighbours."""
        means = resampled_means(self.gaps)
        found = np.array([self._vertex(row) for row in means])
        low, high = np.percentile(found, (2.5, 97.5))
        return Interval(self._vertex(self.gaps.mean(axis=0)), float(low), float(high))

    def _vertex(self, means: Floats) -> float:
        place = int(np.clip(means.argmin(), 1, len(means) - 2))
        around = slice(place - 1, place + 2)
        curvature, slope, _ = np.polyfit(np.log(self.factors[around]), np.log(means[around]), 2)
        top = np.log(self.factors[around])
        return (
            float(np.exp(np.clip(-slope / (2 * curvature), top[0], top[-1])))
            if curvature > 0
            else float(self.factors[means.argmin()])
        )


def server_rates(points: Sequence[Point]) -> list[ServerRates]:
    """The sweep over server rates, one record for each set of client rates."""
    groups: dict[tuple[float, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.rates.tolist()), []).append(point)
    return [_server_rates(np.array(rates), group) for rates, group in groups.items()]


def _server_rates(rates: Floats, points: Sequence[Point]) -> ServerRates:
    best = best_server_rate(rates).rate
    factors = np.array([_aggregation_rate(point) / best for point in points])
    gaps = [gaps_and_bounds(point) for point in points]
    measured = np.array([each.measured for each in gaps]).T
    bounds = np.array([each.bounds.mean() for each in gaps])
    return ServerRates(rates_in_words(points[0]), best, factors, measured, bounds)


def _aggregation_rate(point: Point) -> float:
    if not isinstance(point.experiment.aggregation, PoissonAggregation):
        raise misfit(point.experiment, 'over aggregation.rate, with aggregation.name = "poisson"')
    return point.experiment.aggregation.rate


@styled
def draw_server_rates(found: Sequence[ServerRates], *, width_in: float | None = None) -> Figure:
    """Measured gap and bound over the server's rate, both relative to their value at lambda_s*."""
    if width_in is None:
        figure = Figure(figsize=(4.2 * len(found), 3.4), layout="constrained")
        panels = list(np.atleast_1d(figure.subplots(1, len(found))))
    else:
        figure, (panels,) = grid(len(found), width_in, 3.0, 2.0)
        entitle(figure, f"How often should the server step? {counted(len(found[0].gaps), 'trial')}")
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
        label_axes(panel, "server rate / lambda_s*", "gap / gap at lambda_s*")
        label_log_axis(panel.xaxis)
        label_log_axis(panel.yaxis)
        if width_in is None:
            panel.legend(frameon=False, fontsize=8)
    if width_in is not None:
        common_legend(figure, panels[0])
        typeset(figure)
    return figure


def _relative(axes: Axes, factors: Floats, shown: Band) -> None:
    colour = method_colour("area")
    axes.fill_between(factors, shown.low, shown.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(factors, shown.mean, color=colour, marker="o", markersize=4, label="measured, 95 % interval")
