"""Which methods are exact under uneven rates: the limit of each, measured, beside the one that its rule implies.

At its limit a method has a mean step of zero. Where every update of client i counts with the weight w_i, that is the
minimiser of sum w_i f_i. The weights follow from the rates and the rule, with exponential delays and a server step for
every update: the staleness tau_i of client i is geometric, P(tau_i = k) = p_i (1 - p_i)^k with p_i = lambda_i/Lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies.limits import weighted_minimiser
from studies.points import Point
from studies.statistics import Band, Floats, Interval, band

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import method_colour, method_label
from areabench.methods.aced import Aced
from areabench.methods.afa_cd import AfaCd
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.asynccomm_sgd import AsyncCommSgd
from areabench.methods.base import MethodSettings
from areabench.methods.ca2fl import Ca2fl
from areabench.methods.favas import Favas
from areabench.methods.fedasync import FedAsync
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fedbuff_published import FedBuffPublished
from areabench.methods.fedfix import FedFix
from areabench.methods.fedstaleweight import FedStaleWeight
from areabench.methods.gradient_tables import Ace, AfaCs, Dude, Ia2Sgd
from areabench.methods.malenia import Malenia
from areabench.methods.mifa import Mifa
from areabench.methods.quafl import QuAfl
from areabench.methods.rennala import Rennala
from areabench.methods.ringleader import Ringleader
from areabench.methods.ringmaster import Ringmaster
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.server_optimisers import Fadas, ServerAdam, ServerMomentum
from areabench.problems.quadratic import QuadraticProblem
from areabench.views.figures.style import label_axes, label_log_axis, styled

_EXACT = (
    Area, SFedAvg, Ca2fl, AfaCs, Ia2Sgd, Dude, Ace, Mifa, Malenia, Ringleader, FedStaleWeight, FedFix, AsyncCommSgd,
    Favas,
)  # fmt: skip
_EVERY_UPDATE = (FedBuff, AsFedAvg, ServerMomentum, ServerAdam, Fadas, AfaCd)
_MOST_STALE = 200_000  # terms of a sum over the staleness
_STRETCHES = 10  # of the second half of a run
_VARIANT_KEYS = ("step", "assignment", "concurrency", "staleness", "stops")
_NEGLIGIBLE = 0.05  # a share of the rates' bias


@dataclass(frozen=True)
class Certificate:
    """One method at one ratio of the rates: |limit - x*| of each trial, and of the predicted limit, NaN if none is.

    `shares` tell bias from fluctuation: <x - x*, x_r - x*>/|x_r - x*|² of mean models of stretches of the second half
    of all trials, x_r the minimiser of sum lambda_i f_i. Their mean is 0 for an exact method, and 1 for one in which
    every update counts once.
    """

    method: MethodSettings
    label: str
    ratio: float  # of the fastest to the slowest rate
    distances: Floats  # shape (trials,)
    predicted: float
    by_rates: float  # of the minimiser of sum lambda_i f_i, for comparison
    shares: Floats  # shape (trials · stretches,)

    @property
    def band(self) -> Band:
        """Mean distance over the trials and its interval, shape (1,)."""
        return band(self.distances[:, None])

    @property
    def share(self) -> Interval:
        """The mean share and its interval."""
        found = band(self.shares[:, None])
        return Interval(float(found.mean[0]), float(found.low[0]), float(found.high[0]))


def certificates(points: Sequence[Point]) -> list[Certificate]:
    """One per point of the sweep."""
    return [_certificate(point) for point in points]


def label_of(method: MethodSettings) -> str:
    """The name of a method, with the keys that choose a variant where they have no default."""
    defaults = {item.name: item.default for item in fields(method)}
    words = [
        f"{key} = {shown:g}" if isinstance(shown, float) else f"{key} = {shown}"
        for key, shown in ((key, getattr(method, key, None)) for key in _VARIANT_KEYS)
        if shown is not None and shown != defaults.get(key)
    ]
    return method_label(method.name) + (f" ({', '.join(words)})" if words else "")


def _certificate(point: Point) -> Certificate:
    weights = implied_weights(point.experiment, point.rates)
    method = point.experiment.method
    found = []
    shares = []
    for trial, trace in enumerate(point.traces):
        problem = point.problem(trial)
        assert isinstance(problem, QuadraticProblem)
        late = trace.models[-len(trace.models) // 10 :].mean(axis=0)
        by_rates = weighted_minimiser(problem, point.rates / point.rates.sum())
        limits = [late, by_rates]
        limits += [] if weights is None else [weighted_minimiser(problem, weights / weights.sum())]
        found.append([float(np.linalg.norm(limit - problem.minimiser)) for limit in limits])
        shares += _shares(trace.models, problem.minimiser, by_rates)
    columns = np.array(found).T
    ratio = float(point.rates.max() / point.rates.min())
    predicted = float(columns[2].mean()) if len(columns) > 2 else np.nan
    by_rates_distance = float(columns[1].mean())
    return Certificate(method, label_of(method), ratio, columns[0], predicted, by_rates_distance, np.array(shares))


def _shares(models: Floats, minimiser: Floats, by_rates: Floats) -> list[float]:
    """The share of the rates' bias in each stretch of the second half of a run; NaN at equal rates."""
    direction = by_rates - minimiser
    squared = float(direction @ direction)
    stretches = np.array_split(models[len(models) // 2 :], _STRETCHES)
    return [
        float((each.mean(axis=0) - minimiser) @ direction) / squared if squared > 1e-12 else np.nan
        for each in stretches
    ]


# ---------------------------------------------------------------------------------------------------- weights


def implied_weights(experiment: Experiment, rates: Floats) -> Floats | None:
    """How much a client's gradient counts per unit of time, up to a common factor; None where no formula is known."""
    method = experiment.method
    clients = len(rates)
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
    shares = rates / rates.sum()
    tau = np.arange(_MOST_STALE, dtype=np.float64)
    factors = factor(tau)
    return np.array([float((share * (1 - share) ** tau) @ factors) for share in shares])


def fedasync_factor(method: FedAsync) -> Callable[[Floats], Floats]:
    """The staleness function of FedAsync."""
    if method.staleness == "constant":
        return np.ones_like
    if method.staleness == "polynomial":
        return lambda tau: (1 + tau) ** -method.exponent
    late = method.hinge_delay
    slope = method.hinge_slope
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
    low = 0.0
    high = 1e9

    def counts(duration_s: float) -> Floats:
        return np.asarray(rates * duration_s - 1 + np.exp(-rates * duration_s))

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if counts(middle).sum() < batch else (low, middle)
    return counts(low)


def fresh_shares(rates: Floats, bound: int) -> Floats:
    """The weight of each client's entry where those count that are at most `bound` steps old: E[fresh_i/number]."""
    generator = np.random.default_rng(0)
    fresh = np.zeros(len(rates))
    shares = rates / rates.sum()
    for _ in range(20_000):
        ages = generator.geometric(shares)
        here = ages <= bound + 1
        fresh += here / max(here.sum(), 1)
    return fresh


def steps_between(per_period: float, chance: float, most: int) -> float:
    """Mean number of local steps, at most `most`, between two contacts: a geometric number of periods."""
    total = 0.0
    left = 1.0
    for periods in range(1, 400):
        mean = per_period * periods
        terms = np.cumprod([np.exp(-mean), *(mean / np.arange(1, most))])  # P(N = 0), P(N = 1), ... of Poisson
        total += left * chance * float((1 - np.cumsum(terms)).sum())  # E[min(N, most)] = sum of P(N > k)
        left *= 1 - chance
    return total


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

    Exact at a ratio: the share of the rates' bias is at most a twentieth, or its interval has 0. Nearly: a tenth.
    """
    uneven = sorted((each for each in found if each.ratio > 1), key=lambda each: each.ratio)
    exact = [abs(each.share.value) <= _NEGLIGIBLE or each.share.low <= 0 <= each.share.high for each in uneven]
    if all(exact):
        return "exact"
    if all(abs(each.share.value) <= 2 * _NEGLIGIBLE for each in uneven):
        return "nearly exact"
    if exact[0]:
        last = uneven[exact.index(False) - 1].ratio
        return f"exact up to ratio {last:.0f}"
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
    ratios = [each.ratio for each in own]
    colour = method_colour(own[0].method.name)
    shown = band(np.array([each.distances for each in own]).T)
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 10))
    axes.fill_between(ratios, shown.low, shown.high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(ratios, np.maximum(shown.mean, 1.5e-6), color=colour, marker="o", markersize=4)
    uneven = [each for each in own if each.ratio > 1]
    axes.plot([each.ratio for each in uneven], [each.by_rates for each in uneven], color="0.7", linewidth=0.8)
    if np.isfinite(own[0].predicted):
        predicted = [max(each.predicted, 1.5e-6) for each in own]
        axes.plot(ratios, predicted, color="black", linestyle=":", linewidth=1)
    axes.set_title(own[0].label.replace(" (", "\n("), fontsize=7)
    label_axes(axes, "", "")
    label_log_axis(axes.xaxis)
