"""The best server rate, measured, beside the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from studies.points import Point, gaps_and_bounds, misfit, rates_in_words
from studies.statistics import Floats, Interval, resampled_means

from areabench.experiment.records import PoissonAggregation
from areabench.theory.theorem2 import best_server_rate


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
    """The sweep over server rates, a record for each set of client rates."""
    groups: dict[tuple[float, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.rates.tolist()), []).append(point)
    return [_server_rates(np.array(rates), group) for rates, group in groups.items()]


def _server_rates(rates: Floats, points: Sequence[Point]) -> ServerRates:
    best = best_server_rate(rates).rate
    factors = np.array([_aggregation_rate(point) / best for point in points])
    gaps = [gaps_and_bounds(point) for point in points]
    measured, bounds = np.array([each.measured for each in gaps]).T, np.array([each.bounds.mean() for each in gaps])
    return ServerRates(rates_in_words(points[0]), best, factors, measured, bounds)


def _aggregation_rate(point: Point) -> float:
    if not isinstance(point.experiment.aggregation, PoissonAggregation):
        raise misfit(point.experiment, 'over aggregation.rate, with aggregation.name = "poisson"')
    return point.experiment.aggregation.rate
