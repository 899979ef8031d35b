"""What the paper's theory finds about an experiment, and the experiment that it suggests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from areabench.engine.scenario import build_scenario
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.methods.criteria import EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.schedules import ConstantSchedule, ScheduleSettings, Theorem1Schedule, Theorem2Schedule
from areabench.problems.base import Problem
from areabench.runfile.read import open_run
from areabench.theory.applied import (
    Rates,
    arrival_rates,
    convention_of,
    curvature_constants,
    event_probabilities,
    expected_iterations,
    is_lipschitz,
    is_smooth,
    lipschitz_constants,
    smooth_constants,
    start_distance,
    theorem1_steps,
    theorem2_step,
)
from areabench.theory.constants import delta
from areabench.theory.probabilities import EventProbabilities, measured_probabilities
from areabench.theory.theorem1 import Setting, closed_bound, recursion_bound, step_limit, theorem_schedule
from areabench.theory.theorem2 import best_server_rate, lipschitz_bound, lipschitz_step_size

_LONGEST_RECURSION = 2e8  # iterations times clients and a constant: a few seconds
_AS_CLIENTS = 1000  # cost of an iteration without its clients, in clients


@dataclass(frozen=True)
class Subject:
    """An experiment with its problem, rates, event probabilities and where they are from."""

    experiment: Experiment
    problem: Problem
    rates: Rates
    probabilities: EventProbabilities
    source: str
    measured: bool = False  # in a run, not from the experiment
    solve: bool = False  # whether to solve problems that take long

    @property
    def theorem1(self) -> Theorem1Schedule | None:
        """Theorem 1's schedule with the constants that the experiment gives; None where mu and L are not known."""
        given = self.experiment.schedule
        settings = given if isinstance(given, Theorem1Schedule) else Theorem1Schedule()
        complete = settings.strong_convexity is not None and settings.smoothness is not None
        return settings if complete or is_smooth(self.problem) else None

    @property
    def theorem2(self) -> Theorem2Schedule | None:
        """Theorem 2's schedule likewise; None where B is not known."""
        given = self.experiment.schedule
        settings = given if isinstance(given, Theorem2Schedule) else Theorem2Schedule()
        return settings if settings.lipschitz is not None or is_lipschitz(self.problem) else None

    @property
    def solved(self) -> bool:
        """Whether minimisers are at hand, or may be solved for."""
        return self.solve or self.experiment.problem.solved_quickly

    @property
    def counted(self) -> bool:
        """Whether a number of iterations ends the run, and not its horizon."""
        return self.experiment.stop.iterations == expected_iterations(self.experiment, self.rates)


def subject_of(experiment: Experiment, measured_in: Path | None, cache: Path, *, solve: bool) -> Subject:
    """The subject, with the rates of a run where one is given."""
    scenario = build_scenario(experiment, cache, experiment.module_folders or ())
    if measured_in is None:
        rates = arrival_rates(experiment, scenario.rates)
        events = event_probabilities(experiment, rates)
        return Subject(experiment, scenario.problem, rates, events, "from the experiment's rates", solve=solve)
    with open_run(measured_in) as run:
        count = len(run.served)
        duration_s = run.status.end_s
        if count != experiment.clients.count:
            raise UserError(
                f"--from {measured_in}: has {count} clients, the experiment has {experiment.clients.count}; give a run "
                "of this experiment"
            )
        events = measured_probabilities(run.served, run.status.server_steps)
        rates = run.served.astype(np.float64) / duration_s
        source = f"measured in {measured_in} ({run.status.updates:,} updates)"
    return Subject(experiment, scenario.problem, rates, events, source, measured=True, solve=solve)


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
class ServerPace:
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
    server: ServerPace
    not_satisfied: tuple[str, ...]
    advised: tuple[str, ...]  # by the theory of the experiment's own method
    suggestion: Experiment | None
    suggested_steps: str
    keeps_criterion: bool


def find(subject: Subject) -> Findings:
    """Work everything out; what takes long only where the subject was asked to be solved."""
    experiment = subject.experiment
    suggested = suggestion(subject)
    events = subject.probabilities
    slowest = int(events.clients.argmin())
    best = best_server_rate(subject.rates)
    return Findings(
        problem=experiment.problem.name,
        clients=experiment.clients.count,
        local_steps=experiment.clients.local_steps,
        method=experiment.method.name,
        events=Events(
            p_min=events.minimum,
            slowest=slowest if events.clients[slowest] <= events.server else -1,
            p_s=events.server,
            q_bar=events.mean_inverse,
            r_p=events.server_ratio,
            source=subject.source,
        ),
        theorem1=None if subject.theorem1 is None else _findings1(subject, subject.theorem1),
        theorem2=None if subject.theorem2 is None else _findings2(subject, subject.theorem2),
        server=ServerPace(
            rate=best.rate,
            updates=best.updates,
            whole_updates=best.whole_updates,
            period_s=best.period_s,
            now=float(events.server / events.clients.sum() * float(subject.rates.sum())),
        ),
        not_satisfied=tuple(violations(subject)),
        advised=tuple(advised_steps(subject)),
        suggestion=suggested,
        suggested_steps="" if suggested is None else step_sizes_in_words(suggested.schedule, suggested, subject),
        keeps_criterion=suggested is not None and suggested.aggregation == experiment.aggregation,
    )


def _findings1(subject: Subject, settings: Theorem1Schedule) -> Theorem1:
    clients = subject.experiment.clients
    problem = subject.problem
    known = curvature_constants(settings, problem)
    limit = step_limit(known, clients.local_steps)
    p_min = settings.least_probability or subject.probabilities.minimum
    steps = theorem_schedule(known, clients.local_steps, p_min)
    iterations = expected_iterations(subject.experiment, subject.rates)
    sigma = zeta = closed = recursive = math.nan
    if is_smooth(problem) and subject.solved:
        smooth = smooth_constants(problem)
        sigma = smooth.sigma
        zeta = smooth.zeta
        setting = Setting(
            smooth,
            subject.probabilities,
            clients.local_steps,
            start_distance(problem),
            convention_of(subject.experiment),
        )
        closed = closed_bound(setting, iterations)
        # The recursion goes through all iterations, which would take minutes for long runs.
        if iterations * (clients.count + _AS_CLIENTS) <= _LONGEST_RECURSION:
            recursive = float(recursion_bound(setting, iterations)[-1])
    return Theorem1(
        mu=known.mu,
        L=known.L,
        kappa=known.kappa,
        gamma=known.gamma,
        delta=delta(clients.local_steps),
        sigma=sigma,
        zeta=zeta,
        awaits_solution=is_smooth(problem) and not subject.solved,
        c=steps.c,
        d=steps.d,
        D=limit.value,
        limited_by=limit.active.replace("_", " "),
        iterations=iterations,
        closed_bound=closed,
        recursion_bound=recursive,
    )


def _findings2(subject: Subject, settings: Theorem2Schedule) -> Theorem2:
    problem = subject.problem
    events = subject.probabilities
    if settings.distance is None and not subject.solved:
        return Theorem2()
    known = lipschitz_constants(settings, problem)
    M = subject.experiment.clients.local_steps
    iterations = settings.iterations or expected_iterations(subject.experiment, subject.rates)
    return Theorem2(
        awaits_solution=False,
        B=known.B,
        sigma=known.sigma,
        start_distance=known.start_distance,
        estimated=is_lipschitz(problem) and settings.distance is None and not problem.optimum.exact,
        alpha=lipschitz_step_size(known, events, M, iterations),
        iterations=iterations,
        bound=lipschitz_bound(known, events, M, iterations, convention_of(subject.experiment)),
    )


# ---------------------------------------------------------------------------------------------------- suggestion


def awaits_solution(subject: Subject) -> bool:
    """Whether the suggestion needs a minimiser that takes long and was not asked for: Theorem 2 at measured rates."""
    if subject.theorem1 or subject.theorem2 is None:
        return False
    return subject.measured and subject.theorem2.distance is None and not subject.solved


def suggestion(subject: Subject) -> Experiment | None:
    """The experiment with a theorem's steps, and where iterations end it the best server rate; None if none applies."""
    experiment = subject.experiment
    applies = experiment.method.has_theorems and (subject.theorem1 or subject.theorem2)
    if not applies or awaits_solution(subject):
        return None
    criterion = experiment.aggregation
    if subject.counted:
        best = best_server_rate(subject.rates)
        if criterion.delta is not None:
            criterion = EveryUpdates(updates=best.whole_updates)
        elif criterion.random_times:
            criterion = PoissonAggregation(rate=best.rate)
        else:
            criterion = EveryPeriod(period_s=best.period_s)
    changed = replace(experiment, aggregation=criterion, method=replace(experiment.method, step_size=1.0))
    if settings := subject.theorem1:
        if subject.measured and settings.least_probability is None:  # the experiment's rates would give another one
            settings = replace(settings, least_probability=event_probabilities(changed, subject.rates).minimum)
        return replace(changed, schedule=settings)
    assert subject.theorem2 is not None
    averaged = replace(changed, record=replace(changed.record, average=True))
    if not subject.measured:
        return replace(averaged, schedule=subject.theorem2)
    alpha = theorem2_step(subject.theorem2, changed, subject.problem, subject.rates)
    return replace(averaged, schedule=ConstantSchedule(), method=replace(changed.method, step_size=alpha))


def step_sizes_in_words(schedule: ScheduleSettings, experiment: Experiment, subject: Subject) -> str:
    """The step sizes of a suggested experiment."""
    if isinstance(schedule, Theorem1Schedule):
        steps = theorem1_steps(schedule, experiment, subject.problem, subject.rates)
        return f"alpha_k = {steps.c:.6g}/(k + {steps.d:.6g})"
    if isinstance(schedule, Theorem2Schedule):
        if schedule.distance is None and not subject.solved:
            return "alpha is computed at the start of the run"
        return f"alpha = {theorem2_step(schedule, experiment, subject.problem, subject.rates):.4g}"
    return f"alpha = {experiment.method.step_size:.4g}"


# ---------------------------------------------------------------------------------------------------- other methods


def advised_steps(subject: Subject) -> Iterator[str]:
    """The step sizes that a method's own theory advises, with their formulas; none where L is not known."""
    method = subject.experiment.method
    M = subject.experiment.clients.local_steps
    if subject.theorem1 is None or method.advice_from == "nothing":
        return
    L = curvature_constants(subject.theorem1, subject.problem).L
    sigma = 0.0
    if method.advice_from == "noise":
        if not is_smooth(subject.problem) or not subject.solved:
            remedy = "--solve adds it" if is_smooth(subject.problem) else "this problem does not know it"
            yield f"the step size of {method.name} needs sigma; {remedy}"
            return
        sigma = subject.problem.sigma
    yield from method.advised_steps(L, sigma, subject.rates)
    if M > 1:
        yield f"all of this is for M = 1; the M = {M} local steps of a round add up, so divide gamma by {M}"


# ---------------------------------------------------------------------------------------------------- assumptions


def violations(subject: Subject) -> Iterator[str]:
    """What the theorems assume and the experiment does not give, one line each."""
    experiment = subject.experiment
    if not experiment.method.has_theorems:
        yield f'method "{experiment.method.name}": the theorems are about AREA'
    if not experiment.delays.memoryless:
        yield f'delays "{experiment.delays.name}": arrivals depend on the past; section 4 assumes independent draws'
    if experiment.aggregation.delta is not None:
        yield "the server steps after a number of updates: not independent of the clients (section 4, footnote)"
    elif not experiment.aggregation.random_times:
        yield "the server steps at fixed times: section 4 assumes an independent draw at each event"
    if experiment.problem.not_convex_enough:
        yield experiment.problem.not_convex_enough
    elif not subject.theorem1 and not subject.theorem2:
        yield f'problem "{experiment.problem.name}": nothing is known of its constants (Assumptions 2 to 4)'

    alpha = experiment.method.step_size
    if experiment.schedule.of_theorem:
        if alpha != 1:
            yield f"method.step_size = {alpha:g}: the theorem's own step sizes have the factor 1"
    elif subject.theorem1:
        known = curvature_constants(subject.theorem1, subject.problem)
        limit = step_limit(known, experiment.clients.local_steps).value
        if alpha > limit:
            yield f"method.step_size = {alpha:g}: above D = {limit:.4g}, the largest of Theorem 1"
        if experiment.schedule.constant:
            yield 'schedule "constant": Theorem 1 lets the step sizes fall as 1/k'
    elif subject.theorem2 and not experiment.schedule.constant:
        yield f'schedule "{experiment.schedule.name}": Theorem 2 has one step size for all iterations'
    if subject.theorem2 and not subject.theorem1 and not experiment.record.average:
        yield "record.average = false: Theorem 2 is about the average of the server's models"
