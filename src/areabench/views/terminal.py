"""How a command answers on stdout: JSON, plain text, or text in colours, decided from the environment.

`NO_COLOR` (no-color.org) wins over `FORCE_COLOR` (force-color.org); a variable that is empty counts as not set. How
many colours there are is rich's to find out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from areabench.errors import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from areabench.progress import Style


@dataclass(frozen=True)
class Output:
    """How to answer; the command line decides. Text in colours has the same words as plain text."""

    as_json: bool = False
    in_colour: bool = False
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
        if not self.in_colour:
            sys.stdout.write(escape_controls(text))
            return
        from rich.text import Text  # it would take a quarter of the time of `show`, so only colours load it

        from areabench.views.styled import Styled

        parts = text.parts if isinstance(text, Styled) else ((text, ""),)
        shown = Text.assemble(*((escape_controls(part), style) for part, style in parts))
        stdout_console(in_colour=True).print(shown, end="", soft_wrap=True)  # soft: each line is as long as it is

    def remark(self, text: str) -> None:
        """Print a line beside the answer, such as where a figure was written; not with JSON."""
        if not self.as_json:
            print(text)


def stdout_console(*, in_colour: bool) -> Console:
    """The terminal behind stdout."""
    from rich.console import Console

    return Console(file=sys.stdout, force_terminal=True, color_system="auto" if in_colour else None)


def wants_colours(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether text gets colours."""
    if environment.get("NO_COLOR"):
        return False
    return bool(environment.get("FORCE_COLOR")) or (is_terminal and not is_dumb(environment))


def progress_style(choice: str, environment: Mapping[str, str], *, is_terminal: bool) -> Style:
    """How progress is shown for a value of `--progress`; a live bar needs a terminal that can write over it."""
    from areabench.progress import Style  # no answer needs it

    if choice == "marked":
        return Style.MARKED
    if choice == "always" or (choice == "auto" and is_terminal and not is_dumb(environment)):
        return Style.LIVE
    return Style.NONE


def is_dumb(environment: Mapping[str, str]) -> bool:
    """Whether the terminal can only print."""
    return environment.get("TERM", "") in ("dumb", "unknown")
