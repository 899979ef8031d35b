"""What slows AREA down: its slowest client, or the clients' mean waiting time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.points import Point, misfit
from studies.statistics import Floats

from areabench.theory.applied import event_probabilities, is_smooth, smooth_constants, start_distance
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.theorem1 import Setting, recursion_bound


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
    problem, events = point.problem(), event_probabilities(point.experiment, point.rates)
    if not is_smooth(problem):
        raise misfit(point.experiment, f"of smooth, strongly convex problems, not {point.experiment.problem.name}")
    setting = Setting(smooth_constants(problem), events, point.experiment.clients.local_steps, start_distance(problem))
    return float(recursion_bound(setting, int(point.traces[0].iterations[-1]))[-1])
