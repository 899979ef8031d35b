"""Figures of runs, sweeps and splits: `from areabench import figures`, then `figures.timeline(run)` and the like.

Each figure is a function, which is imported at its first use: it needs matplotlib. `width` is in inches, or "column"
(3.3) or "page" (6.9); `titled=False` leaves the title to a caption. What shows a sweep also takes runs of one setting;
`step_sizes` has the step size to draw of a method, and of the others it is the best one; `spread` is the 95 % interval
of the mean, or the range over trials; `page` counts the settings of a sweep from 0. With `method_colour` and
`method_label` a figure of your own shows the methods as these do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from areabench.experiment.labels import method_colour, method_label

if TYPE_CHECKING:
    from areabench.views.figures.diagnosis import participation, verdict
    from areabench.views.figures.labels import class_shares
    from areabench.views.figures.runs import quality, two_clocks
    from areabench.views.figures.style import save
    from areabench.views.figures.sweeps import quality_over_time, staleness, step_size_sensitivity
    from areabench.views.figures.targets import performance_profile, reached_over_time, time_to_target
    from areabench.views.figures.timelines import timeline

__all__ = [
    "class_shares",
    "method_colour",
    "method_label",
    "participation",
    "performance_profile",
    "quality",
    "quality_over_time",
    "reached_over_time",
    "save",
    "staleness",
    "step_size_sensitivity",
    "time_to_target",
    "timeline",
    "two_clocks",
    "verdict",
]


def __getattr__(name: str) -> Any:
    """Import the public figures at the first use of one."""
    if name not in __all__:
        raise AttributeError(f"module 'areabench.figures' has no attribute {name!r}")
    names = ("diagnosis", "labels", "runs", "style", "sweeps", "targets", "timelines")
    modules = (import_module(f"areabench.views.figures.{each}") for each in names)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
