"""What the paper's theory says about an experiment, in one screen: constants, step sizes, server rate, assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from areabench.experiment import (
    AggregationSettings,
    Area,
    ConstantSchedule,
    EveryPeriod,
    EveryUpdates,
    Experiment,
    ExponentialDelays,
    PoissonAggregation,
    Theorem1Schedule,
    Theorem2Schedule,
)
from areabench.problem_settings import Hinge, Logistic
from areabench.problems.base import Problem
from areabench.theorems import (
    expected_iterations,
    is_lipschitz,
    is_smooth,
    lipschitz_constants,
    smooth_constants,
    start_distance,
)
from areabench.theory.constants import Constants
from areabench.theory.lipschitz import lipschitz_bound, lipschitz_step_size
from areabench.theory.probabilities import EventProbabilities
from areabench.theory.recursion import recursion_bound
from areabench.theory.schedule import step_limit, theorem_schedule
from areabench.theory.server_rate import ServerRate, best_server_rate
from areabench.theory.setting import Setting
from areabench.theory.strongly_convex import closed_bound, rate_terms

_LONGEST_RECURSION = 200_000  # iterations: a few seconds


@dataclass(frozen=True)
class Subject:
    """An experiment with its problem, rates (1/s, shape (clients,)), event probabilities and where they are from."""

    experiment: Experiment
    problem: Problem
    rates: NDArray[np.float64]
    probabilities: EventProbabilities
    source: str
    solve: bool  # whether to solve problems that take long


def advise(subject: Subject) -> str:
    """The whole screen."""
    experiment = subject.experiment
    clients, method = experiment.clients, experiment.method
    what = f"{experiment.problem.name}, n = {clients.count}, M = {clients.local_steps}, {method.name}"
    rows = [("experiment", what), *_events(subject), *_theorem1(subject), *_theorem2(subject), *_server(subject)]
    rows += [("not satisfied" if not number else "", text) for number, text in enumerate(violations(subject))]
    return "".join(f"{label:<14}{text}\n" for label, text in rows)


def suggestion(subject: Subject) -> Experiment:
    """The experiment with the theorem's step sizes and the best server rate; the same where no theorem applies."""
    experiment, best = subject.experiment, best_server_rate(subject.rates)
    if is_smooth(subject.problem) and _strongly_convex(experiment):
        schedule: Theorem1Schedule | Theorem2Schedule = Theorem1Schedule()
    elif is_lipschitz(subject.problem):
        schedule = Theorem2Schedule()
    else:
        return experiment
    method = replace(experiment.method, step_size=1.0)
    return replace(experiment, schedule=schedule, method=method, aggregation=_criterion(experiment.aggregation, best))


def _criterion(settings: AggregationSettings, best: ServerRate) -> AggregationSettings:
    """The same kind of criterion at the best server rate."""
    match settings:
        case EveryUpdates():
            return EveryUpdates(updates=best.whole_updates)
        case EveryPeriod():
            return EveryPeriod(period_s=best.period_s)
        case PoissonAggregation():
            return PoissonAggregation(rate=best.rate)


# ---------------------------------------------------------------------------------------------------- rows


def _events(subject: Subject) -> Iterator[tuple[str, str]]:
    events = subject.probabilities
    slowest = int(events.clients.argmin())
    where = f"client {slowest}" if events.clients[slowest] <= events.server else "the server"
    yield (
        "events",
        f"p_min = {events.minimum:.4g} ({where}), p_s = {events.server:.4g}, q_bar = {events.mean_inverse:.4g}, "
        f"r_p = {events.server_ratio:.4g}; {subject.source}",
    )


def _theorem1(subject: Subject) -> Iterator[tuple[str, str]]:
    experiment, problem = subject.experiment, subject.problem
    if not is_smooth(problem) or not _strongly_convex(experiment):
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
        return
    known: Constants = smooth_constants(problem) if _solved(subject) else Constants(problem.mu, problem.L, 0.0, 0.0)
    limit = step_limit(known, experiment.clients.local_steps)
    steps = theorem_schedule(known, experiment.clients.local_steps, subject.probabilities.minimum)
    noise = (
        f", sigma = {known.sigma:.4g}, zeta = {known.zeta:.4g}" if _solved(subject) else "; --solve adds sigma, zeta"
    )
    yield (
        "theorem 1",
        f"mu = {known.mu:.4g}, L = {known.L:.4g}, kappa = {known.kappa:.4g}, gamma = {known.gamma:.4g}{noise}",
    )
    yield (
        "",
        f"alpha_k = {steps.c:.6g}/(k + {steps.d:.6g}), from D = {limit.value:.4g} ({limit.active.replace('_', ' ')})",
    )
    if _solved(subject):
        yield from _bound1(subject, known)


def _bound1(subject: Subject, known: Constants) -> Iterator[tuple[str, str]]:
    iterations, M = expected_iterations(subject.experiment, subject.rates), subject.experiment.clients.local_steps
    setting = Setting(known, subject.probabilities, M, start_distance(subject.problem))
    bounds = f"{closed_bound(setting, iterations):.4g} (closed form)"
    if iterations <= _LONGEST_RECURSION:
        bounds += f", {recursion_bound(setting, iterations)[-1]:.4g} (recursion of the proof)"
    largest = rate_terms(setting, iterations).dominating.replace("_", " ")
    yield "", f"E|x_s,K - x*|² <= {bounds} at K = {iterations:,}; its largest term: {largest}"


def _theorem2(subject: Subject) -> Iterator[tuple[str, str]]:
    experiment, problem, events = subject.experiment, subject.problem, subject.probabilities
    if not is_lipschitz(problem):
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
        return
    if not _solved(subject):
        yield "theorem 2", f"B = {problem.B:.4g}; --solve adds the step size, which needs |x_s,0 - x*|"
        return
    known, M = lipschitz_constants(Theorem2Schedule(), problem), experiment.clients.local_steps
    iterations = expected_iterations(experiment, subject.rates)
    alpha = lipschitz_step_size(known, events, M, iterations)
    exact = "" if problem.optimum.exact else " (estimated)"
    yield "theorem 2", f"B = {known.B:.4g}, sigma = {known.sigma:.4g}, |x_s,0 - x*| = {known.start_distance:.4g}{exact}"
    bound = lipschitz_bound(known, events, M, iterations)
    yield "", f"alpha = {alpha:.4g} for K = {iterations:,}; E[f(average) - f*] <= {bound:.4g}"


def _server(subject: Subject) -> Iterator[tuple[str, str]]:
    best = best_server_rate(subject.rates)
    now = subject.probabilities.server / subject.probabilities.clients.sum() * float(subject.rates.sum())
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {now:.4g} 1/s (least bound of Theorem 2 for a number of iterations)",
    )


def _solved(subject: Subject) -> bool:
    """Whether minimisers are at hand, or may be solved for."""
    return subject.solve or not isinstance(subject.experiment.problem, Logistic | Hinge)


def _strongly_convex(experiment: Experiment) -> bool:
    return not isinstance(experiment.problem, Logistic) or experiment.problem.regularisation > 0


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
    if not is_smooth(subject.problem) and not is_lipschitz(subject.problem):
        yield f'problem "{experiment.problem.name}": nothing is known of its constants (Assumptions 2 to 4)'
    yield from _step_violations(subject)


def _step_violations(subject: Subject) -> Iterator[str]:
    experiment, problem = subject.experiment, subject.problem
    if isinstance(experiment.schedule, Theorem1Schedule | Theorem2Schedule):
        if experiment.method.step_size != 1:
            yield f"method.step_size = {experiment.method.step_size:g}: the theorem's own step sizes have the factor 1"
        return
    if not is_smooth(problem) or not _strongly_convex(experiment):
        return
    limit = step_limit(Constants(problem.mu, problem.L, 0.0, 0.0), experiment.clients.local_steps).value
    if experiment.method.step_size > limit:
        yield f"method.step_size = {experiment.method.step_size:g}: above D = {limit:.4g}, the largest of Theorem 1"
    if isinstance(experiment.schedule, ConstantSchedule):
        yield 'schedule "constant": Theorem 1 lets the step sizes fall as 1/k'
