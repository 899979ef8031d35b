"""Aggregation criteria: the server steps after a number of updates, at fixed times, or at random times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from areabench.methods.base import Method
from areabench.settings.keys import key
from areabench.streams import Purpose, stream


@dataclass(frozen=True, kw_only=True)
class AggregationSettings:
    """The section [aggregation]."""

    random_times: ClassVar[bool] = False  # whether the server steps at random times

    name: str = ""

    @property
    def delta(self) -> int | None:
        """Updates between two server steps; None where the server steps by the clock."""
        return None

    @property
    def mean_period_s(self) -> float | None:
        """Mean time between two server steps; None where updates decide."""
        return None

    @property
    def pace(self) -> str:
        """How often the server steps by the clock, for an error."""
        return ""

    def describe(self) -> str:
        """When the server steps, in short."""
        raise NotImplementedError

    def times_s(self, seed: int) -> Iterator[float]:
        """When the server steps by the clock."""
        return iter(())


@dataclass(frozen=True, kw_only=True)
class EveryUpdates(AggregationSettings):
    """The server steps after each `updates` client updates."""

    name: str = "updates"
    updates: int = key("client updates between two server steps (Delta)", 4, minimum=1)

    @property
    def delta(self) -> int | None:
        """Delta."""
        return self.updates

    def describe(self) -> str:
        """In short."""
        return f"Δ = {self.updates}"


@dataclass(frozen=True, kw_only=True)
class EveryPeriod(AggregationSettings):
    """The server steps at fixed times."""

    name: str = "period"
    period_s: float = key("time between two server steps", unit="s", above=0)

    @property
    def mean_period_s(self) -> float | None:
        """The period."""
        return self.period_s

    @property
    def pace(self) -> str:
        """In words."""
        return f"aggregation.period_s: a server step every {self.period_s:.3g} s"

    def describe(self) -> str:
        """In short."""
        return f"a step every {self.period_s:g} s"

    def times_s(self, seed: int) -> Iterator[float]:
        """Multiples of the period."""
        number = 0
        while True:
            number += 1
            yield number * self.period_s


@dataclass(frozen=True, kw_only=True)
class PoissonAggregation(AggregationSettings):
    """The server steps at the arrivals of a Poisson process (the paper's Example 1)."""

    random_times: ClassVar[bool] = True

    name: str = "poisson"
    rate: float = key("server steps per second (lambda_s)", unit="1/s", above=0)

    @property
    def mean_period_s(self) -> float | None:
        """1/rate."""
        return 1 / self.rate

    @property
    def pace(self) -> str:
        """In words."""
        return f"aggregation.rate: {self.rate:.3g} server steps per second"

    def describe(self) -> str:
        """In short."""
        return f"λ_s = {self.rate:g}"

    def times_s(self, seed: int) -> Iterator[float]:
        """Drawn one after the other."""
        generator = stream(seed, Purpose.AGGREGATION)
        time_s = 0.0
        while True:
            time_s += float(generator.standard_exponential()) / self.rate
            yield time_s


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


def build_criterion(settings: AggregationSettings, method: Method, seed: int) -> Criterion:
    """The experiment's criterion; never met where the method itself decides."""
    if method.decides:
        return Criterion(None, iter(()))
    return Criterion(settings.delta, settings.times_s(seed))
