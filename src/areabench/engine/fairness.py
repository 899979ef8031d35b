"""How many updates of each client a run should have used, and how far chance alone takes the number from that."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment

CHANCE = 0.01  # that some client, of all of them, is outside its interval in a run that is as it should be
Floats = NDArray[np.float64]
Traces = Sequence["array[float]"]


@dataclass(frozen=True, eq=False)
class Expected:
    """Updates of each client: the mean, and the interval for it; NaN where they are not known."""

    mean: Floats
    low: Floats
    high: Floats


def traces_of(experiment: Experiment, clients: int) -> Traces:
    """The delays (s) of each client from its trace; none if there is no trace, or if its file is missing."""
    try:
        return experiment.delays.traces(clients)
    except UserError:  # the run ended earlier and its trace may be missing
        return ()


def expected_updates(
    experiment: Experiment,
    rates: Floats,
    duration_s: float,
    updates: int,
    tolerance: float,
    traces: Traces | None = None,
) -> Expected:
    """What each client should have contributed in `duration_s`.

    Cycles may be longer than their delays by the share `tolerance`: the lower end of the interval allows for that.
    Of a method that calls its clients, the number of all `updates` is taken as given.
    `traces` are those of `traces_of`, so that a caller who asks repeatedly reads them once.
    """
    method, clients = experiment.method, len(rates)
    if method.drawn_per_round is not None:
        rounds = math.ceil(updates / method.drawn_per_round)
        low, high = binomial_interval(rounds, method.drawn_per_round / clients, CHANCE / clients)
        each = np.ones(clients)
        return Expected(each * updates / clients, each * low, each * high)
    if not method.client_driven or experiment.delays.per == "step":
        return _unknown(clients)
    if experiment.delays.memoryless:
        mean = rates * duration_s
        low_ends, _ = poisson_interval(mean / (1 + tolerance), CHANCE / clients)
        return Expected(mean, low_ends, poisson_interval(mean, CHANCE / clients)[1])
    known = traces_of(experiment, clients) if traces is None else traces
    mean_counts = experiment.delays.counts(rates, duration_s, known)
    least = experiment.delays.counts(rates, duration_s / (1 + tolerance), known)
    if mean_counts is None or least is None:
        return _unknown(clients)
    # one up or down for where the first and the last delay fall
    return Expected(mean_counts, np.maximum(least - 1, 0), mean_counts + 1)


def _unknown(clients: int) -> Expected:
    """For a missing trace, delays of the user's own or for each local step, or a method that chooses its clients."""
    unknown = np.full(clients, np.nan)
    return Expected(unknown, unknown, unknown)


def poisson_interval(mean: Floats, chance: float) -> tuple[Floats, Floats]:
    """Counts that a Poisson variable stays between, both included, but for `chance`; each end has half of that."""
    from scipy.special import pdtr  # takes long to import, and no worker rank needs it

    top = np.ceil(mean + 40 * np.sqrt(mean) + 100)
    return _interval(lambda count: pdtr(count, mean), top, chance)


def binomial_interval(trials: int, share: float, chance: float) -> tuple[float, float]:
    """Likewise of a binomial variable."""
    from scipy.special import bdtr

    low, high = _interval(lambda count: bdtr(count, trials, share), np.array([float(trials)]), chance)
    return float(low[0]), float(high[0])


def _interval(cumulative: Callable[[Floats], Floats], top: Floats, chance: float) -> tuple[Floats, Floats]:
    """The least counts at which the cumulative distribution exceeds half of the chance, and reaches the rest."""
    return _least(cumulative, chance / 2, top), _least(cumulative, 1 - chance / 2, top)


def _least(cumulative: Callable[[Floats], Floats], level: float, top: Floats) -> Floats:
    """The least counts, up to `top`, whose cumulative probability is above `level`; by bisection, all at once."""
    below, above = np.full(len(top), -1.0), top.copy()
    while (above - below > 1).any():
        middle = np.floor((below + above) / 2)
        enough = (cumulative(np.maximum(middle, 0)) > level) & (middle >= 0)
        above, below = np.where(enough, middle, above), np.where(enough, below, middle)
    return above
