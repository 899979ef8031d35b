"""Step sizes: which alpha the server sends out at iteration k; the client holds it until its next reply."""

from __future__ import annotations

import math
from collections.abc import Callable

from areabench.experiment import ConstantSchedule, InverseSchedule, ScheduleSettings

Schedule = Callable[[int], float]


def build_schedule(settings: ScheduleSettings, step_size: float) -> Schedule:
    """The step size as a function of the iteration k >= 0."""
    if isinstance(settings, ConstantSchedule):
        return lambda _iteration: step_size
    offset = settings.offset
    if isinstance(settings, InverseSchedule):
        return lambda iteration: step_size / (1 + iteration / offset)
    return lambda iteration: step_size / math.sqrt(1 + iteration / offset)
