"""The rates of the two theorems: errors of AREA over iterations, their slopes, and the bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.points import Point, gaps_and_bounds, misfit, rates_in_words
from studies.statistics import Floats, Interval, fit_slope, spaced

from areabench.experiment.problem_records import Robust
from areabench.theory.applied import event_probabilities, is_smooth, smooth_constants, start_distance
from areabench.theory.theorem1 import Setting, closed_bound, recursion_bound

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
    experiment, problem = point.experiment, point.problem()
    if not is_smooth(problem):
        raise misfit(experiment, f"of smooth, strongly convex problems (quadratic), not {experiment.problem.name}")
    events = event_probabilities(experiment, point.rates)
    setting = Setting(smooth_constants(problem), events, experiment.clients.local_steps, start_distance(problem))
    shortest = min(len(trace.iterations) for trace in point.traces)
    iterations = np.mean([trace.iterations[:shortest] for trace in point.traces], axis=0)
    values = np.array([trace.squared_distance[:shortest] for trace in point.traces])
    d = setting.sent.d
    chosen = spaced(iterations[1:] + d, _POINTS) + 1
    iterations, values = iterations[chosen], values[:, chosen]
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
    values, bound = np.array([each.measured for each in gaps]).T, np.array([each.bounds.mean() for each in gaps])
    return Curve(title, iterations, 0.0, values, bound, None, 0, fit_slope(iterations, values))
