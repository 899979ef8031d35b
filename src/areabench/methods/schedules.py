"""Step sizes: the alpha that the server sends at iteration k and time t; the client keeps it until the next order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from areabench.settings.keys import key

Schedule = Callable[[int, float], float]  # of the iteration k >= 0 and the time (s)
Theorem = Callable[[int], float]  # the step sizes that a theorem gives


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """The section [schedule]."""

    constant: ClassVar[bool] = False
    of_theorem: ClassVar[bool] = False  # whether a theorem gives the step sizes, which alpha multiplies

    name: str = ""

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """The step size as a function of iteration and time."""
        assert theorem is not None
        return lambda iteration, _time_s: step_size * theorem(iteration)


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule(ScheduleSettings):
    """alpha_k = alpha."""

    constant: ClassVar[bool] = True

    name: str = "constant"

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """As the class says."""
        return lambda _iteration, _time_s: step_size


@dataclass(frozen=True, kw_only=True)
class InverseSchedule(ScheduleSettings):
    """alpha_k = alpha / (1 + k/offset)."""

    name: str = "1/k"
    offset: float = key("iterations until the step size has halved", 1.0, unit="iterations", above=0)

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """As the class says."""
        return lambda iteration, _time_s: step_size / (1 + iteration / self.offset)


@dataclass(frozen=True, kw_only=True)
class InverseRootSchedule(ScheduleSettings):
    """alpha_k = alpha / sqrt(1 + k/offset)."""

    name: str = "1/sqrt(k)"
    offset: float = key("iterations until the squared step size has halved", 1.0, unit="iterations", above=0)

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """As the class says."""
        return lambda iteration, _time_s: step_size / math.sqrt(1 + iteration / self.offset)


@dataclass(frozen=True, kw_only=True)
class InverseTimeSchedule(ScheduleSettings):
    """alpha(t) = alpha / (1 + t/offset_s), t the time at which the order goes out."""

    name: str = "1/t"
    offset_s: float = key("time until the step size has halved", 1.0, unit="s", above=0)

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """As the class says."""
        return lambda _iteration, time_s: step_size / (1 + time_s / self.offset_s)


@dataclass(frozen=True, kw_only=True)
class InverseRootTimeSchedule(ScheduleSettings):
    """alpha(t) = alpha / sqrt(1 + t/offset_s), t the time at which the order goes out."""

    name: str = "1/sqrt(t)"
    offset_s: float = key("time until the squared step size has halved", 1.0, unit="s", above=0)

    def steps(self, step_size: float, theorem: Theorem | None) -> Schedule:
        """As the class says."""
        return lambda _iteration, time_s: step_size / math.sqrt(1 + time_s / self.offset_s)


@dataclass(frozen=True, kw_only=True)
class Theorem1Schedule(ScheduleSettings):
    """Theorem 1's alpha_k = 1/(p_min·M·gamma·k/48 + 1/D), times `method.step_size`: 1 for the theorem's own."""

    of_theorem: ClassVar[bool] = True

    name: str = "theorem1"
    strong_convexity: float | None = key("mu of every f_i; left out: the problem's", None, above=0)
    smoothness: float | None = key("L of every f_i; left out: the problem's", None, above=0)
    least_probability: float | None = key(
        "p_min of all events; left out: from the rates and the criterion",
        None,
        above=0,
        maximum=1,
    )


@dataclass(frozen=True, kw_only=True)
class Theorem2Schedule(ScheduleSettings):
    """Theorem 2's constant alpha for K iterations, times `method.step_size`: 1 for the theorem's own."""

    of_theorem: ClassVar[bool] = True

    name: str = "theorem2"
    lipschitz: float | None = key("Lipschitz constant B of every f_i; left out: the problem's", None, above=0)
    noise: float | None = key("subgradient noise sigma; left out: the problem's", None, minimum=0)
    distance: float | None = key(
        "distance |x_s0 - x*| from a minimiser at the start; left out: the problem is solved", None, above=0
    )
    iterations: int | None = key(
        "iterations K; left out: `stop.iterations`, or those expected within `stop.horizon_s`", None, minimum=1
    )


def build_schedule(settings: ScheduleSettings, step_size: float, theorem: Theorem | None = None) -> Schedule:
    """The step size as a function of the iteration k >= 0 and the time (s)."""
    return settings.steps(step_size, theorem)
