"""What a terminal is shown, decided from the environment and from what stands behind stdout and stderr.

`NO_COLOR` (no-color.org) wins over `FORCE_COLOR` (force-color.org); a variable that is empty counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from areabench.progress import Style

if TYPE_CHECKING:
    from areabench.output import Colours


def decided_colours(environment: Mapping[str, str], *, is_terminal: bool) -> Colours | None:
    """How many colours to use; None: words go out as they are."""
    if environment.get("NO_COLOR"):
        return None
    if environment.get("FORCE_COLOR"):
        return _depth(environment)
    return _depth(environment) if is_terminal and not is_dumb(environment) else None


def decided_style(choice: str, environment: Mapping[str, str], *, is_terminal: bool) -> Style:
    """How progress is shown, after `--progress`: a line that is written over itself needs a terminal that can do it."""
    if choice == "auto":
        choice = "always" if is_terminal and not is_dumb(environment) else "never"
    if choice != "always":
        return Style.MARKED if choice == "marked" else Style.NONE
    return Style.COLOURED if decided_colours(environment, is_terminal=is_terminal) else Style.LIVE


def is_dumb(environment: Mapping[str, str]) -> bool:
    """Whether a terminal says that it can only print."""
    return environment.get("TERM", "") in ("dumb", "unknown")


def _depth(environment: Mapping[str, str]) -> Colours:
    """How many colours the terminal says it has."""
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environment.get("TERM", "") else "standard"
