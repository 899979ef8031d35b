"""How a command answers on stdout: JSON, plain text, or text in colours, decided from the environment.

`NO_COLOR` (no-color.org) wins over `FORCE_COLOR` (force-color.org); a variable that is empty counts as not set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from areabench.errors import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from areabench.progress import Style

Colours = Literal["standard", "256", "truecolor"]


@dataclass(frozen=True)
class Output:
    """How to answer; the command line decides. Text in colours has the same words as plain text."""

    as_json: bool = False
    colours: Colours | None = None  # how many the terminal has; None: plain text
    is_terminal: bool = False  # one on which a page can be written over

    def answer(self, text: Callable[[], str], record: Callable[[], Any]) -> None:
        """Print the record as JSON, or the text; a styled text in its colours."""
        if self.as_json:
            from areabench.views.json import to_json  # with HDF5, which a worker's rank must not load

            sys.stdout.write(to_json(record()))
        else:
            self.print(text())

    def print(self, text: str) -> None:
        """Print a text; control characters, which a file may have brought in, are written as escapes."""
        if self.colours is None:
            sys.stdout.write(harmless(text))
            return
        from rich.text import Text  # only a terminal with colours needs rich

        from areabench.views.styled import Styled

        parts = text.parts if isinstance(text, Styled) else ((text, ""),)
        shown = Text.assemble(*((harmless(part), style) for part, style in parts))
        console(self.colours).print(shown, end="", soft_wrap=True)  # soft: each line is as long as it is

    def remark(self, text: str) -> None:
        """Print a line beside the answer, such as where a figure was written; not with JSON."""
        if not self.as_json:
            print(text)


def console(colours: Colours | None) -> Console:
    """The terminal behind stdout with the colours that were decided on."""
    from rich.console import Console

    return Console(
        file=sys.stdout, force_terminal=True, color_system=colours, legacy_windows=False, no_color=colours is None
    )


def decided_colours(environment: Mapping[str, str], *, is_terminal: bool) -> Colours | None:
    """How many colours to use; None: plain text."""
    if environment.get("NO_COLOR"):
        return None
    if environment.get("FORCE_COLOR") or (is_terminal and not is_dumb(environment)):
        return _depth(environment)
    return None


def _depth(environment: Mapping[str, str]) -> Colours:
    """How many colours the terminal says it has."""
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environment.get("TERM", "") else "standard"


def decided_style(choice: str, environment: Mapping[str, str], *, is_terminal: bool) -> Style:
    """How progress is shown for a value of `--progress`; a live line needs a terminal that can write over it."""
    from areabench.progress import Style  # no answer needs it

    if choice == "auto":
        choice = "always" if is_terminal and not is_dumb(environment) else "never"
    if choice != "always":
        return Style.MARKED if choice == "marked" else Style.NONE
    return Style.COLOURED if decided_colours(environment, is_terminal=is_terminal) else Style.LIVE


def is_dumb(environment: Mapping[str, str]) -> bool:
    """Whether the terminal can only print."""
    return environment.get("TERM", "") in ("dumb", "unknown")
