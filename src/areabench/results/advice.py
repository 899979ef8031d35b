"""What the paper's theory finds about an experiment: numbers that `advice` puts into words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from areabench.experiment import Experiment, Theorem1Schedule, Theorem2Schedule
from areabench.suggestion import Subject, step_sizes_in_words, suggestion, violations
from areabench.theorems import (
    curvature_constants,
    expected_iterations,
    is_lipschitz,
    is_smooth,
    lipschitz_constants,
    smooth_constants,
    start_distance,
)
from areabench.theory.constants import delta
from areabench.theory.lipschitz import lipschitz_bound, lipschitz_step_size
from areabench.theory.recursion import recursion_bound
from areabench.theory.schedule import step_limit, theorem_schedule
from areabench.theory.server_rate import best_server_rate
from areabench.theory.setting import Setting
from areabench.theory.strongly_convex import closed_bound

_LONGEST_RECURSION = 2e8  # iterations times clients and a constant: a few seconds
_AS_CLIENTS = 1000  # what an iteration takes besides its clients, in clients


@dataclass(frozen=True)
class Events:
    """Probabilities of events; `slowest` is the client of the least one, -1 where that is the server's."""

    p_min: float
    slowest: int
    p_s: float
    q_bar: float
    r_p: float
    source: str


@dataclass(frozen=True)
class Theorem1:
    """Constants, step sizes alpha_k = c/(k + d) and bounds at K iterations; NaN where they await a solution."""

    mu: float
    L: float
    kappa: float
    gamma: float
    delta: float
    sigma: float
    zeta: float
    awaits_solution: bool
    c: float
    d: float
    D: float
    limited_by: str
    iterations: int
    closed_bound: float
    recursion_bound: float


@dataclass(frozen=True)
class Theorem2:
    """Constants, step size and bound at K iterations; all NaN where they await a solution."""

    awaits_solution: bool = True
    B: float = math.nan
    sigma: float = math.nan
    start_distance: float = math.nan
    estimated: bool = False
    alpha: float = math.nan
    iterations: int = 0
    bound: float = math.nan


@dataclass(frozen=True)
class ServerStep:
    """The best server rate in 1/s, as a number of updates or a period, and the one that the experiment has."""

    rate: float
    updates: float
    whole_updates: int
    period_s: float
    now: float


@dataclass(frozen=True)
class Findings:
    """All of it; a theorem that does not apply is None."""

    problem: str
    clients: int
    local_steps: int
    method: str
    events: Events
    theorem1: Theorem1 | None
    theorem2: Theorem2 | None
    server: ServerStep
    not_satisfied: tuple[str, ...]
    suggestion: Experiment | None
    suggested_steps: str
    keeps_criterion: bool


def find(subject: Subject) -> Findings:
    """Work everything out; what takes long only where the subject was asked to be solved."""
    experiment, suggested = subject.experiment, suggestion(subject)
    return Findings(
        problem=experiment.problem.name,
        clients=experiment.clients.count,
        local_steps=experiment.clients.local_steps,
        method=experiment.method.name,
        events=_events(subject),
        theorem1=None if subject.theorem1 is None else _theorem1(subject, subject.theorem1),
        theorem2=None if subject.theorem2 is None else _theorem2(subject, subject.theorem2),
        server=_server(subject),
        not_satisfied=tuple(violations(subject)),
        suggestion=suggested,
        suggested_steps="" if suggested is None else step_sizes_in_words(suggested.schedule, suggested, subject),
        keeps_criterion=suggested is not None and suggested.aggregation == experiment.aggregation,
    )


def _events(subject: Subject) -> Events:
    events = subject.probabilities
    slowest = int(events.clients.argmin())
    return Events(
        p_min=events.minimum,
        slowest=slowest if events.clients[slowest] <= events.server else -1,
        p_s=events.server,
        q_bar=events.mean_inverse,
        r_p=events.server_ratio,
        source=subject.source,
    )


def _theorem1(subject: Subject, settings: Theorem1Schedule) -> Theorem1:
    known, M = curvature_constants(settings, subject.problem), subject.experiment.clients.local_steps
    limit, p_min = step_limit(known, M), settings.least_probability or subject.probabilities.minimum
    steps, iterations = theorem_schedule(known, M, p_min), expected_iterations(subject.experiment, subject.rates)
    smooth = subject.problem if is_smooth(subject.problem) else None
    solved = smooth is not None and subject.solved
    closed, recursive = _bounds(subject, iterations) if solved else (math.nan, math.nan)
    return Theorem1(
        mu=known.mu,
        L=known.L,
        kappa=known.kappa,
        gamma=known.gamma,
        delta=delta(M),
        sigma=smooth.sigma if smooth is not None and solved else math.nan,
        zeta=smooth.zeta if smooth is not None and solved else math.nan,
        awaits_solution=smooth is not None and not solved,
        c=steps.c,
        d=steps.d,
        D=limit.value,
        limited_by=limit.active.replace("_", " "),
        iterations=iterations,
        closed_bound=closed,
        recursion_bound=recursive,
    )


def _bounds(subject: Subject, iterations: int) -> tuple[float, float]:
    """The closed form, and the proof's recursion unless it takes long."""
    clients = subject.experiment.clients
    assert is_smooth(subject.problem)
    known, distance = smooth_constants(subject.problem), start_distance(subject.problem)
    setting = Setting(known, subject.probabilities, clients.local_steps, distance)
    short = iterations * (clients.count + _AS_CLIENTS) <= _LONGEST_RECURSION
    recursive = float(recursion_bound(setting, iterations)[-1]) if short else math.nan
    return closed_bound(setting, iterations), recursive


def _theorem2(subject: Subject, settings: Theorem2Schedule) -> Theorem2:
    problem = subject.problem
    if settings.distance is None and not subject.solved:
        return Theorem2()
    known, M = lipschitz_constants(settings, problem), subject.experiment.clients.local_steps
    iterations = settings.iterations or expected_iterations(subject.experiment, subject.rates)
    return Theorem2(
        awaits_solution=False,
        B=known.B,
        sigma=known.sigma,
        start_distance=known.start_distance,
        estimated=is_lipschitz(problem) and settings.distance is None and not problem.optimum.exact,
        alpha=lipschitz_step_size(known, subject.probabilities, M, iterations),
        iterations=iterations,
        bound=lipschitz_bound(known, subject.probabilities, M, iterations),
    )


def _server(subject: Subject) -> ServerStep:
    best = best_server_rate(subject.rates)
    now = subject.probabilities.server / subject.probabilities.clients.sum() * float(subject.rates.sum())
    return ServerStep(best.rate, best.updates, best.whole_updates, best.period_s, float(now))
