"""Which methods are exact under uneven rates: the limit of each, measured, beside the one that its rule implies.

At its limit a method has a mean step of zero. Where every update of client i counts with the weight w_i, that is the
minimiser of sum w_i f_i. The weights follow from the rates and the rule, with exponential delays and a server step for
every update: the staleness tau_i of client i is geometric, P(tau_i = k) = p_i (1 - p_i)^k with p_i = lambda_i/Lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.limits import weighted_minimiser
from studies.points import Point
from studies.statistics import Band, Floats, band

from areabench.experiment.labels import method_colour, method_labels, without_step_size
from areabench.experiment.method_records import (
    Ace,
    Aced,
    AfaCd,
    AfaCs,
    Area,
    AsFedAvg,
    AsyncCommSgd,
    AsyncSgd,
    Ca2fl,
    Dude,
    Fadas,
    Favas,
    FedAsync,
    FedBuff,
    FedBuffPublished,
    FedFix,
    FedStaleWeight,
    Ia2Sgd,
    Malenia,
    MethodSettings,
    Mifa,
    QuAfl,
    Rennala,
    Ringleader,
    Ringmaster,
    ServerAdam,
    ServerMomentum,
    SFedAvg,
)
from areabench.experiment.records import Experiment
from areabench.problems.quadratic import QuadraticProblem
from areabench.views.figures.style import label_axes, label_log_axis, styled

_EXACT = (
    Area, SFedAvg, Ca2fl, AfaCs, Ia2Sgd, Dude, Ace, Mifa, Malenia, Ringleader, FedStaleWeight, FedFix, AsyncCommSgd,
    Favas,
)  # fmt: skip
_EVERY_UPDATE = (FedBuff, AsFedAvg, ServerMomentum, ServerAdam, Fadas, AfaCd)
_MOST_STALE = 200_000  # terms of a sum over the staleness


@dataclass(frozen=True)
class Certificate:
    """One method at one ratio of the rates: |limit - x*| of each trial, and of the predicted limit, NaN if none is."""

    method: MethodSettings
    label: str
    ratio: float  # of the fastest to the slowest rate
    distances: Floats  # shape (trials,)
    predicted: float
    by_rates: float  # of the minimiser of sum lambda_i f_i, for comparison

    @property
    def band(self) -> Band:
        """Mean over the trials and its interval, shape (1,)."""
        return band(self.distances[:, None])


def certificates(points: Sequence[Point]) -> list[Certificate]:
    """One per point of the sweep; methods that occur in variants have the keys in which they differ in their label."""
    methods = list(dict.fromkeys(without_step_size(point.experiment.method) for point in points))
    labels = dict(zip(methods, method_labels(methods), strict=True))
    return [_certificate(point, labels[without_step_size(point.experiment.method)]) for point in points]


def _certificate(point: Point, label: str) -> Certificate:
    weights = implied_weights(point.experiment, point.rates)
    found = []
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        assert isinstance(problem, QuadraticProblem)
        late = trace.models[-len(trace.models) // 10 :].mean(axis=0)
        limits = [late, weighted_minimiser(problem, point.rates / point.rates.sum())]
        limits += [] if weights is None else [weighted_minimiser(problem, weights / weights.sum())]
        found.append([float(np.linalg.norm(limit - problem.minimiser)) for limit in limits])
    columns = np.array(found).T
    ratio = float(point.rates.max() / point.rates.min())
    predicted = float(columns[2].mean()) if len(columns) > 2 else np.nan
    return Certificate(point.experiment.method, label, ratio, columns[0], predicted, float(columns[1].mean()))


# ---------------------------------------------------------------------------------------------------- weights


def implied_weights(experiment: Experiment, rates: Floats) -> Floats | None:
    """How much a client's gradient counts per unit of time, up to a common factor; None where no formula is known."""
    method, clients = experiment.method, len(rates)
    match method:
        case AsyncSgd():
            return _async_sgd_weights(method, rates)
        case FedBuffPublished():
            used = rates if method.concurrency is None else idle_throughput(rates, method.concurrency)
            root = method.staleness == "inverse-root"
            return used * mean_factor(used, lambda tau: 1 / np.sqrt(1 + tau)) if root else used
        case FedAsync():
            return rates * mean_factor(rates, fedasync_factor(method))
        case Ringmaster():
            return rates if method.stops else rates * used_shares(rates, method.max_delay)
        case Rennala():
            return rennala_counts(rates, method.batch)
        case Aced():
            return None if method.max_delay < clients else fresh_shares(rates, method.max_delay)
        case QuAfl():
            return np.minimum(
                rates * method.period_s * clients / method.clients_per_round, experiment.clients.local_steps
            )
    if isinstance(method, _EXACT):
        return np.ones(clients)
    return rates if isinstance(method, _EVERY_UPDATE) else None


def _async_sgd_weights(method: AsyncSgd, rates: Floats) -> Floats:
    clients = len(rates)
    if method.assignment == "idle-uniform":
        return idle_throughput(rates, method.concurrency or clients)
    if method.assignment != "continue":
        return np.ones(clients)  # one by one, or drawn with a known chance by which steps are divided
    if method.step == "adaptive":
        return rates * mean_factor(rates, lambda tau: clients / np.maximum(clients, tau))
    if method.step == "threshold":
        bound = clients if method.threshold is None else method.threshold
        return rates * used_shares(rates, bound + 1, steps_always=True)
    return rates


def mean_factor(rates: Floats, factor: Callable[[Floats], Floats]) -> Floats:
    """E[factor(tau_i)] of each client where tau_i is geometric with p_i = rate_i/sum of the rates."""
    shares, tau = rates / rates.sum(), np.arange(_MOST_STALE, dtype=np.float64)
    factors = factor(tau)
    return np.array([float((share * (1 - share) ** tau) @ factors) for share in shares])


def fedasync_factor(method: FedAsync) -> Callable[[Floats], Floats]:
    """The staleness function of FedAsync."""
    if method.staleness == "constant":
        return np.ones_like
    if method.staleness == "polynomial":
        return lambda tau: (1 + tau) ** -method.exponent
    late, slope = method.hinge_delay, method.hinge_slope
    return lambda tau: np.where(tau <= late, 1.0, 1 / (slope * np.maximum(tau - late, 0) + 1))


def used_shares(rates: Floats, bound: int, *, steps_always: bool = False) -> Floats:
    """P(tau_i < bound). Unless `steps_always`, an update that is not used is no step, which makes others less stale."""
    used = np.ones(len(rates))
    for _ in range(1 if steps_always else 1000):
        others = (rates * used).sum() - rates * used
        used = 1 - (others / (others + rates)) ** bound
    return used


def rennala_counts(rates: Floats, batch: int) -> Floats:
    """Gradients of each client at the current model within a step: all but the first, which began before it."""
    low, high = 0.0, 1e9

    def counts(duration_s: float) -> Floats:
        return np.asarray(rates * duration_s - 1 + np.exp(-rates * duration_s))

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if counts(middle).sum() < batch else (low, middle)
    return counts(low)


def fresh_shares(rates: Floats, bound: int) -> Floats:
    """The weight of each client's entry where those count that are at most `bound` steps old: E[fresh_i/number]."""
    generator, fresh = np.random.default_rng(0), np.zeros(len(rates))
    shares = rates / rates.sum()
    for _ in range(20_000):
        ages = generator.geometric(shares)
        here = ages <= bound + 1
        fresh += here / max(here.sum(), 1)
    return fresh


def idle_throughput(rates: Floats, concurrency: int) -> Floats:
    """Updates per second of each client where one is drawn uniformly from the idle ones whenever another has answered.

    The stationary distribution of the Markov chain of who is at work.
    """
    clients = len(rates)
    states = list(combinations(range(clients), concurrency))
    places = {state: place for place, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))
    for state, place in places.items():
        for client in state:
            others = [each for each in range(clients) if each not in state or each == client]
            for drawn in others:
                following = tuple(sorted([each for each in state if each != client] + [drawn]))
                flow[place, places[following]] += rates[client] / len(others)
                flow[place, place] -= rates[client] / len(others)
    system = np.vstack([flow.T, np.ones(len(states))])
    chances = np.linalg.lstsq(system, np.append(np.zeros(len(states)), 1.0), rcond=None)[0]
    at_work = np.array(
        [sum(chances[places[state]] for state in states if client in state) for client in range(clients)]
    )
    return np.asarray(rates * at_work)


# ---------------------------------------------------------------------------------------------------- verdict, figure


def verdict(found: Sequence[Certificate]) -> str:
    """What the measured limits of one method say; `found` has its certificates at all ratios.

    Exact: where the rates are uneven, at most a twentieth of the distance at which counting every update would end.
    """
    uneven = [each for each in found if each.ratio > 1]
    shares = {round(each.ratio): float(each.distances.mean()) / each.by_rates for each in uneven}
    exact = [ratio for ratio, share in shares.items() if share <= 0.05]
    if len(exact) == len(shares):
        return "exact"
    if exact:
        return f"exact up to a ratio of {max(exact)}, not converged beyond" if min(shares) in exact else "biased"
    return "biased"


@styled
def draw_certificates(found: Sequence[Certificate]) -> Figure:
    """Limits over the ratio of the rates, one small panel per method; dotted, what its rule implies."""
    labels = list(dict.fromkeys(each.label for each in found))
    columns = 6
    rows = -(-len(labels) // columns)
    figure = Figure(figsize=(2.5 * columns, 1.9 * rows), layout="constrained")
    panels: list[Axes] = list(np.ravel(figure.subplots(rows, columns, sharex=True, sharey=True)))
    for panel, label in zip(panels, labels, strict=False):
        _panel(panel, sorted((each for each in found if each.label == label), key=lambda each: each.ratio))
    for panel in panels[len(labels) :]:
        panel.set_visible(False)
    figure.supxlabel("fastest rate / slowest rate")
    figure.supylabel("|limit - x*|, mean and 95 %")
    return figure


def _panel(axes: Axes, own: Sequence[Certificate]) -> None:
    ratios, colour = [each.ratio for each in own], method_colour(own[0].method.name)
    shown = band(np.array([each.distances for each in own]).T)
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 10))
    axes.fill_between(ratios, shown.low, shown.high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(ratios, np.maximum(shown.mean, 1.5e-6), color=colour, marker="o", markersize=4)
    axes.plot(ratios, [each.by_rates for each in own], color="0.7", linewidth=0.8)
    if np.isfinite(own[0].predicted):
        predicted = [max(each.predicted, 1.5e-6) for each in own]
        axes.plot(ratios, predicted, color="black", linestyle=":", linewidth=1)
    axes.set_title(own[0].label, fontsize=7)
    label_axes(axes, "", "")
    label_log_axis(axes.xaxis)
