"""Step sizes: the alpha that the server sends at iteration k and time t; the client keeps it until the next order."""

from __future__ import annotations

import math
from collections.abc import Callable

from areabench.experiment.records import (
    ConstantSchedule,
    InverseRootSchedule,
    InverseRootTimeSchedule,
    InverseSchedule,
    InverseTimeSchedule,
    ScheduleSettings,
)

Schedule = Callable[[int, float], float]


def build_schedule(
    settings: ScheduleSettings, step_size: float, theorem: Callable[[int], float] | None = None
) -> Schedule:
    """The step size as a function of the iteration k >= 0 and the time (s).

    A theorem's step sizes are multiplied by `step_size`.
    """
    match settings:
        case ConstantSchedule():
            return lambda _iteration, _time_s: step_size
        case InverseSchedule(offset=offset):
            return lambda iteration, _time_s: step_size / (1 + iteration / offset)
        case InverseRootSchedule(offset=offset):
            return lambda iteration, _time_s: step_size / math.sqrt(1 + iteration / offset)
        case InverseTimeSchedule(offset_s=offset_s):
            return lambda _iteration, time_s: step_size / (1 + time_s / offset_s)
        case InverseRootTimeSchedule(offset_s=offset_s):
            return lambda _iteration, time_s: step_size / math.sqrt(1 + time_s / offset_s)
    assert theorem is not None
    return lambda iteration, _time_s: step_size * theorem(iteration)
