"""The theorems applied to an experiment: its event probabilities, constants and step sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.methods.schedules import Theorem1Schedule, Theorem2Schedule
from areabench.problems.base import Problem
from areabench.problems.optimum import LipschitzProblem, SmoothProblem
from areabench.theory.constants import Constants, LipschitzConstants
from areabench.theory.probabilities import EventProbabilities, poisson_probabilities
from areabench.theory.theorem1 import Convention, TheoremSchedule, theorem_schedule
from areabench.theory.theorem2 import lipschitz_step_size

Rates = NDArray[np.float64]  # updates per second, shape (clients,)

# ---------------------------------------------------------------------------------------------------- events


def arrival_rates(experiment: Experiment, rates: Rates) -> Rates:
    """The rates at which clients send: those of a trace follow from its delays."""
    traces = experiment.delays.traces(len(rates))
    return np.array([len(delays) / sum(delays) for delays in traces]) if traces else rates


def server_rate(experiment: Experiment, rates: Rates) -> float:
    """Server steps per second, on average, of the aggregation criterion."""
    if experiment.method.drawn_per_round is not None:
        raise UserError(
            f'method.name: "{experiment.method.name}" steps when its round is full; the theorems are about AREA, '
            "choose a method that steps as [aggregation] says"
        )
    if experiment.method.steps_each_update:  # whatever the criterion
        return float(rates.sum())
    aggregation = experiment.aggregation
    if aggregation.delta is not None:
        return float(rates.sum()) / aggregation.delta
    assert aggregation.mean_period_s is not None
    return 1 / aggregation.mean_period_s


def event_probabilities(experiment: Experiment, rates: Rates) -> EventProbabilities:
    """p_i and p_s that follow from the rates."""
    return poisson_probabilities(rates, server_rate(experiment, rates))


def expected_iterations(experiment: Experiment, rates: Rates) -> int:
    """K: the number of iterations that ends the run, or the expected number within its horizon, at least 1."""
    stop = experiment.stop
    most = float("inf") if stop.iterations is None else stop.iterations
    if stop.horizon_s is not None:
        most = min(most, (float(rates.sum()) + server_rate(experiment, rates)) * stop.horizon_s)
    return max(1, round(most))


def convention_of(experiment: Experiment) -> Convention:
    """How the experiment's iterations begin."""
    return Convention.ALGORITHM if experiment.method.trains_first else Convention.ZERO_FIRST


# ---------------------------------------------------------------------------------------------------- step sizes


def theorem_steps(experiment: Experiment, problem: Problem, rates: Rates) -> Callable[[int], float] | None:
    """The step sizes of the theorem that the experiment's schedule names; None where it names none."""
    settings = experiment.schedule
    if isinstance(settings, Theorem1Schedule):
        return theorem1_steps(settings, experiment, problem, arrival_rates(experiment, rates)).step_size
    if isinstance(settings, Theorem2Schedule):
        step_size = theorem2_step(settings, experiment, problem, arrival_rates(experiment, rates))
        return lambda _iteration: step_size
    return None


def theorem1_steps(
    settings: Theorem1Schedule, experiment: Experiment, problem: Problem, rates: Rates
) -> TheoremSchedule:
    """Theorem 1's alpha_k, with the constants of the schedule's section, or else of the problem and the rates."""
    p_min = settings.least_probability or event_probabilities(experiment, rates).minimum
    return theorem_schedule(curvature_constants(settings, problem), experiment.clients.local_steps, p_min)


def curvature_constants(settings: Theorem1Schedule, problem: Problem) -> Constants:
    """mu and L: of the schedule's section, or else of the problem; sigma and zeta are left at 0."""
    mu = settings.strong_convexity or _known(problem, "mu", "schedule.strong_convexity")
    L = settings.smoothness or _known(problem, "L", "schedule.smoothness")
    return Constants(mu, L, sigma=0.0, zeta=0.0)


def theorem2_step(settings: Theorem2Schedule, experiment: Experiment, problem: Problem, rates: Rates) -> float:
    """Theorem 2's constant alpha for the experiment's number of iterations."""
    iterations = settings.iterations or expected_iterations(experiment, rates)
    events = event_probabilities(experiment, rates)
    return lipschitz_step_size(
        lipschitz_constants(settings, problem), events, experiment.clients.local_steps, iterations
    )


def lipschitz_constants(settings: Theorem2Schedule, problem: Problem) -> LipschitzConstants:
    """B, sigma and |x_{s,0} - x*|: of the schedule's section, or else of the problem, which may have to be solved."""
    B = settings.lipschitz or _known(problem, "B", "schedule.lipschitz")
    sigma = _known(problem, "sigma", "schedule.noise") if settings.noise is None else settings.noise
    return LipschitzConstants(B, sigma, settings.distance or start_distance(problem))


def start_distance(problem: Problem) -> float:
    """|x_{s,0} - x*|."""
    if not hasattr(type(problem), "optimum"):
        raise UserError(
            "schedule.distance: is needed, as the minimiser of this problem is not known; give |x_s0 - x*|, or an "
            "estimate from above"
        )
    minimiser = problem.optimum.minimiser  # type: ignore[attr-defined]
    return float(np.linalg.norm(problem.start().astype(np.float64) - minimiser))


def _known(problem: Problem, name: str, key: str) -> float:
    """A positive constant of the problem."""
    value: float | None = getattr(problem, name, None)
    if not value:
        raise UserError(f"{key}: is needed, as {name} of this problem is {value or 'not known'}; give a number")
    return value


# ---------------------------------------------------------------------------------------------------- problems


def is_smooth(problem: Problem) -> TypeGuard[SmoothProblem]:
    """Whether Assumptions 2 and 3 hold with known constants; without a regulariser, mu may be 0."""
    return hasattr(type(problem), "zeta") and problem.mu > 0  # type: ignore[attr-defined]


def is_lipschitz(problem: Problem) -> TypeGuard[LipschitzProblem]:
    """Whether the constant of Assumption 4 is known."""
    return hasattr(type(problem), "B")  # asks the type: computing the value may take a while


def smooth_constants(problem: SmoothProblem) -> Constants:
    """mu, L, sigma and zeta of a problem, which may have to be solved for its minimisers."""
    return Constants(problem.mu, problem.L, problem.sigma, problem.zeta)
