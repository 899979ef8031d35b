"""Where methods end up under uneven rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.points import Point, misfit
from studies.statistics import Floats

from areabench.experiment.problem_records import Quadratic
from areabench.problems.quadratic import QuadraticProblem


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
    settings = point.experiment.problem
    if not isinstance(settings, Quadratic) or settings.zeta is None:
        raise misfit(point.experiment, 'of problem.name = "quadratic" with a problem.zeta')
    distances, predicted = [], []
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
    """The minimiser of sum_i p_i f_i, to which updates that count as often as they come lead."""
    bowls = [problem.bowl(client) for client in range(problem.clients)]
    hessian = sum(share * bowl.hessian for share, bowl in zip(shares, bowls, strict=True))
    pull = sum(share * bowl.hessian @ bowl.centre for share, bowl in zip(shares, bowls, strict=True))
    return np.asarray(np.linalg.solve(np.asarray(hessian), np.asarray(pull)))
