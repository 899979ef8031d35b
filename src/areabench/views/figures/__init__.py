"""Figures of runs, sweeps and splits: `from areabench import figures`, then `figures.timeline(run)` and the like.

Each figure is a function of `gallery`, which is imported at the first use: it needs matplotlib. With `method_colour`
and `method_label` a figure of your own shows the methods as these do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from areabench.experiment.labels import method_colour, method_label

if TYPE_CHECKING:
    from areabench.views.figures.gallery import (
        class_shares,
        participation,
        performance_profile,
        quality,
        quality_over_time,
        reached_over_time,
        save,
        staleness,
        step_size_sensitivity,
        time_to_target,
        timeline,
        two_clocks,
        verdict,
    )


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
    from areabench.views.figures import gallery

    return getattr(gallery, name)


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
