"""Step sizes: the alpha that the server sends at iteration k; the client keeps it until the next reply."""

from __future__ import annotations

import math
from collections.abc import Callable

from areabench.experiment.records import ConstantSchedule, InverseRootSchedule, InverseSchedule, ScheduleSettings

Schedule = Callable[[int], float]


def build_schedule(settings: ScheduleSettings, step_size: float, theorem: Schedule | None = None) -> Schedule:
    """The step size as a function of the iteration k >= 0; a theorem's step sizes are multiplied by `step_size`."""
    match settings:
        case ConstantSchedule():
            return lambda _iteration: step_size
        case InverseSchedule(offset=offset):
            return lambda iteration: step_size / (1 + iteration / offset)
        case InverseRootSchedule(offset=offset):
            return lambda iteration: step_size / math.sqrt(1 + iteration / offset)
    assert theorem is not None
    return lambda iteration: step_size * theorem(iteration)
