"""Aggregation criteria: the server steps after a number of updates, at fixed times, or at random times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from areabench.experiment.records import EveryPeriod, EveryUpdates, Experiment
from areabench.methods.base import Method
from areabench.streams import Purpose, stream


@dataclass
class Criterion:
    """The aggregation criterion: a number of updates, or a sequence of times; the other one is never met."""

    updates: int | None
    times_s: Iterator[float]
    next_s: float = math.inf
    passed: int = -1  # number of times that are over

    def __post_init__(self) -> None:
        """Look up the first time."""
        self.advance()

    def counted(self, updates_since_step: int) -> bool:
        """Whether enough updates have arrived."""
        return self.updates is not None and updates_since_step >= self.updates

    def advance(self) -> None:
        """Continue to the next time."""
        self.next_s = next(self.times_s, math.inf)
        self.passed += 1


def build_criterion(experiment: Experiment, method: Method) -> Criterion:
    """The experiment's criterion; never met where the method itself decides."""
    settings = experiment.aggregation
    if method.decides:
        return Criterion(None, iter(()))
    if isinstance(settings, EveryUpdates):
        return Criterion(settings.updates, iter(()))
    if isinstance(settings, EveryPeriod):
        return Criterion(None, _periodic(settings.period_s))
    return Criterion(None, _poisson(settings.rate, experiment.seed))


def _periodic(period_s: float) -> Iterator[float]:
    number = 0
    while True:
        number += 1
        yield number * period_s


def _poisson(rate: float, seed: int) -> Iterator[float]:
    generator, time_s = stream(seed, Purpose.AGGREGATION), 0.0
    while True:
        time_s += float(generator.standard_exponential()) / rate
        yield time_s
