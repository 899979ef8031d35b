"""What the theorems suggest for an experiment, and which of their assumptions it does not satisfy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from areabench.experiment import (
    AggregationSettings,
    Area,
    ConstantSchedule,
    EveryPeriod,
    EveryUpdates,
    Experiment,
    ExponentialDelays,
    PoissonAggregation,
    ScheduleSettings,
    Theorem1Schedule,
    Theorem2Schedule,
)
from areabench.problem_settings import Hinge, Logistic
from areabench.problems.base import Problem
from areabench.theorems import (
    Rates,
    curvature_constants,
    event_probabilities,
    expected_iterations,
    is_lipschitz,
    is_smooth,
    theorem1_steps,
    theorem2_step,
)
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.schedule import step_limit
from areabench.theory.server_rate import ServerRate, best_server_rate


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
        return self.solve or not isinstance(self.experiment.problem, Logistic | Hinge)

    @property
    def counted(self) -> bool:
        """Whether a number of iterations ends the run, and not its horizon."""
        return self.experiment.stop.iterations == expected_iterations(self.experiment, self.rates)


# ---------------------------------------------------------------------------------------------------- suggestion


def awaits_solution(subject: Subject) -> bool:
    """Whether the suggestion needs a minimiser that takes long and was not asked for: Theorem 2 at measured rates."""
    settings = None if subject.theorem1 else subject.theorem2
    return subject.measured and settings is not None and settings.distance is None and not subject.solved


def suggestion(subject: Subject) -> Experiment | None:
    """The experiment with a theorem's steps, and where iterations end it the best server rate; None if none applies."""
    experiment = subject.experiment
    applies = isinstance(experiment.method, Area) and (subject.theorem1 or subject.theorem2)
    if not applies or awaits_solution(subject):
        return None
    best = best_server_rate(subject.rates)
    criterion = _criterion(experiment.aggregation, best) if subject.counted else experiment.aggregation
    changed = replace(experiment, aggregation=criterion, method=replace(experiment.method, step_size=1.0))
    if subject.theorem1:
        return replace(changed, schedule=_theorem1(subject.theorem1, subject, changed))
    assert subject.theorem2 is not None
    averaged = replace(changed, record=replace(changed.record, average=True))
    if not subject.measured:
        return replace(averaged, schedule=subject.theorem2)
    alpha = theorem2_step(subject.theorem2, changed, subject.problem, subject.rates)
    return replace(averaged, schedule=ConstantSchedule(), method=replace(changed.method, step_size=alpha))


def _theorem1(settings: Theorem1Schedule, subject: Subject, changed: Experiment) -> Theorem1Schedule:
    """With the least probability written down where it was measured: the experiment's rates would give another one."""
    if not subject.measured or settings.least_probability is not None:
        return settings
    return replace(settings, least_probability=event_probabilities(changed, subject.rates).minimum)


def _criterion(settings: AggregationSettings, best: ServerRate) -> AggregationSettings:
    """The same kind of criterion at the best server rate."""
    match settings:
        case EveryUpdates():
            return EveryUpdates(updates=best.whole_updates)
        case EveryPeriod():
            return EveryPeriod(period_s=best.period_s)
        case PoissonAggregation():
            return PoissonAggregation(rate=best.rate)


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


# ---------------------------------------------------------------------------------------------------- assumptions


def violations(subject: Subject) -> Iterator[str]:
    """What the theorems assume and the experiment does not give, a line each."""
    experiment = subject.experiment
    if not isinstance(experiment.method, Area):
        yield f'method "{experiment.method.name}": the theorems are about AREA'
    if not isinstance(experiment.delays, ExponentialDelays):
        yield f'delays "{experiment.delays.name}": who sends next depends on the past; section 4 takes it as drawn anew'
    if isinstance(experiment.aggregation, EveryUpdates):
        yield "the server steps after a number of updates: not independent of the clients (section 4, footnote)"
    if isinstance(experiment.aggregation, EveryPeriod):
        yield "the server steps at fixed times: not drawn anew at each event, as section 4 takes it"
    if isinstance(experiment.problem, Logistic) and experiment.problem.regularisation == 0:
        yield "problem.regularisation = 0: not strongly convex (Assumption 3)"
    elif not subject.theorem1 and not subject.theorem2:
        yield f'problem "{experiment.problem.name}": nothing is known of its constants (Assumptions 2 to 4)'
    yield from _step_violations(subject)


def _step_violations(subject: Subject) -> Iterator[str]:
    experiment, alpha = subject.experiment, subject.experiment.method.step_size
    if isinstance(experiment.schedule, Theorem1Schedule | Theorem2Schedule):
        if alpha != 1:
            yield f"method.step_size = {alpha:g}: the theorem's own step sizes have the factor 1"
    elif subject.theorem1:
        known = curvature_constants(subject.theorem1, subject.problem)
        limit = step_limit(known, experiment.clients.local_steps).value
        if alpha > limit:
            yield f"method.step_size = {alpha:g}: above D = {limit:.4g}, the largest of Theorem 1"
        if isinstance(experiment.schedule, ConstantSchedule):
            yield 'schedule "constant": Theorem 1 lets the step sizes fall as 1/k'
    elif subject.theorem2 and not isinstance(experiment.schedule, ConstantSchedule):
        yield f'schedule "{experiment.schedule.name}": Theorem 2 has one step size for all iterations'
    if subject.theorem2 and not subject.theorem1 and not experiment.record.average:
        yield "record.average = false: Theorem 2 is about the average of the server's models"
