"""What the paper's theory says about an experiment, in one screen: constants, step sizes, server rate, assumptions."""

from __future__ import annotations

from collections.abc import Iterator

from areabench.experiment import Theorem1Schedule, Theorem2Schedule
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
from areabench.theory.constants import Constants, delta
from areabench.theory.lipschitz import lipschitz_bound, lipschitz_step_size
from areabench.theory.recursion import recursion_bound
from areabench.theory.schedule import step_limit, theorem_schedule
from areabench.theory.server_rate import best_server_rate
from areabench.theory.setting import Setting
from areabench.theory.strongly_convex import closed_bound

_LONGEST_RECURSION = 2e8  # iterations times clients and a constant: a few seconds
_AS_CLIENTS = 1000  # what an iteration takes besides its clients, in clients

Row = tuple[str, str]  # label and text


def advise(subject: Subject) -> str:
    """The whole screen."""
    experiment = subject.experiment
    clients, method = experiment.clients, experiment.method
    what = f"{experiment.problem.name}, n = {clients.count}, M = {clients.local_steps}, {method.name}"
    rows = [("experiment", what), *_events(subject), *_theorem1(subject), *_theorem2(subject), *_server(subject)]
    rows += [("not satisfied" if not number else "", text) for number, text in enumerate(violations(subject))]
    rows += _suggestion(subject)
    return "".join(f"{label:<14}{text}\n" for label, text in rows)


def _events(subject: Subject) -> Iterator[Row]:
    events = subject.probabilities
    slowest = int(events.clients.argmin())
    where = f"client {slowest}" if events.clients[slowest] <= events.server else "the server"
    yield (
        "events",
        f"p_min = {events.minimum:.4g} ({where}), p_s = {events.server:.4g}, q_bar = {events.mean_inverse:.4g}, "
        f"r_p = {events.server_ratio:.4g}; {subject.source}",
    )


# ---------------------------------------------------------------------------------------------------- theorem 1


def _theorem1(subject: Subject) -> Iterator[Row]:
    settings, M = subject.theorem1, subject.experiment.clients.local_steps
    if settings is None:
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
        return
    known = curvature_constants(settings, subject.problem)
    words = f"mu = {known.mu:.4g}, L = {known.L:.4g}, kappa = {known.kappa:.4g}, gamma = {known.gamma:.4g}"
    yield "theorem 1", f"{words}, delta = {delta(M):.4g}{_noise(subject)}"
    yield "", _steps(settings, known, subject)
    if is_smooth(subject.problem) and subject.solved:
        yield "", _bound1(subject, smooth_constants(subject.problem))


def _noise(subject: Subject) -> str:
    if not is_smooth(subject.problem):
        return ""
    if not subject.solved:
        return "; --solve adds sigma, zeta and the bound"
    return f", sigma = {subject.problem.sigma:.4g}, zeta = {subject.problem.zeta:.4g}"


def _steps(settings: Theorem1Schedule, known: Constants, subject: Subject) -> str:
    limit = step_limit(known, subject.experiment.clients.local_steps)
    p_min = settings.least_probability or subject.probabilities.minimum
    steps = theorem_schedule(known, subject.experiment.clients.local_steps, p_min)
    return f"alpha_k = {steps.c:.6g}/(k + {steps.d:.6g}), from D = {limit.value:.4g} ({limit.active.replace('_', ' ')})"


def _bound1(subject: Subject, known: Constants) -> str:
    clients, iterations = subject.experiment.clients, expected_iterations(subject.experiment, subject.rates)
    setting = Setting(known, subject.probabilities, clients.local_steps, start_distance(subject.problem))
    bounds = f"{closed_bound(setting, iterations):.4g} (closed form)"
    if iterations * (clients.count + _AS_CLIENTS) <= _LONGEST_RECURSION:
        bounds += f", {recursion_bound(setting, iterations)[-1]:.4g} (recursion of the proof)"
    return f"E|x_s,K - x*|² <= {bounds} at K = {iterations:,}"


# ---------------------------------------------------------------------------------------------------- the others


def _theorem2(subject: Subject) -> Iterator[Row]:
    settings, problem = subject.theorem2, subject.problem
    if settings is None:
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
        return
    if settings.distance is None and not subject.solved:
        yield "theorem 2", "--solve adds its constants, step size and bound, which need |x_s,0 - x*|"
        return
    known = lipschitz_constants(settings, problem)
    estimated = is_lipschitz(problem) and settings.distance is None and not problem.optimum.exact
    distance = f"|x_s,0 - x*| = {known.start_distance:.4g}{' (estimated)' * estimated}"
    yield "theorem 2", f"B = {known.B:.4g}, sigma = {known.sigma:.4g}, {distance}"
    M, iterations = subject.experiment.clients.local_steps, _iterations(settings, subject)
    alpha = lipschitz_step_size(known, subject.probabilities, M, iterations)
    bound = lipschitz_bound(known, subject.probabilities, M, iterations)
    yield "", f"alpha = {alpha:.4g} for K = {iterations:,}; E[f(average) - f*] <= {bound:.4g}"


def _iterations(settings: Theorem2Schedule, subject: Subject) -> int:
    return settings.iterations or expected_iterations(subject.experiment, subject.rates)


def _server(subject: Subject) -> Iterator[Row]:
    best = best_server_rate(subject.rates)
    now = subject.probabilities.server / subject.probabilities.clients.sum() * float(subject.rates.sum())
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {now:.4g} 1/s",
    )
    yield "", "(the least bound of Theorem 2 for a number of iterations; within a horizon a faster server is no worse)"


def _suggestion(subject: Subject) -> Iterator[Row]:
    suggested = suggestion(subject)
    if suggested is None:
        return
    steps = step_sizes_in_words(suggested.schedule, suggested, subject)
    same = suggested.aggregation == subject.experiment.aggregation
    criterion = (
        "the server's criterion as it is" if same else f"the server at {best_server_rate(subject.rates).rate:.4g} 1/s"
    )
    yield "suggestion", f'schedule "{suggested.schedule.name}", {steps}; {criterion}; --write FILE.toml writes it'
