"""How many updates of each client a run should have used, and how far chance alone takes the number from that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.timing.delays import Traces

CHANCE = 0.01  # that some client, of all of them, is outside its interval in a run that is as it should be
Floats = NDArray[np.float64]


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
    method = experiment.method
    clients = len(rates)
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
    from scipy.special import pdtr, pdtrik  # takes long to import, and no worker rank needs it

    def quantile(level: float) -> Floats:
        return _least_count(pdtrik(level, mean), lambda count: pdtr(count, mean), level)

    return quantile(chance / 2), quantile(1 - chance / 2)


def binomial_interval(trials: int, share: float, chance: float) -> tuple[float, float]:
    """Likewise of a binomial variable."""
    from scipy.special import bdtr, bdtrik

    def quantile(level: float) -> float:
        return float(_least_count(bdtrik(level, trials, share), lambda count: bdtr(count, trials, share), level))

    return quantile(chance / 2), quantile(1 - chance / 2)


def _least_count(inverse: Floats, cumulative: Callable[[Floats], Floats], level: float) -> Floats:
    """The least count with a cumulative probability above `level`, from the inverse of the continued distribution."""
    count = np.ceil(np.nan_to_num(inverse))  # NaN where level is below the probability of 0
    below = np.maximum(count - 1, 0)  # the inverse may be rounded up
    return np.where(cumulative(below) > level, below, count)
