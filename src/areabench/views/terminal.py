"""What a terminal is shown, decided from the environment and from what stands behind stdout and stderr.

`NO_COLOR` (no-color.org) wins over `FORCE_COLOR` (force-color.org); a variable that is empty counts as not set.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from areabench.errors import harmless
from areabench.views.json import to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
from collections.abc import Mapping

from areabench.experiment.labels import METHOD_COLOURS, METHOD_NAMES
from areabench.progress import Style

Colours = Literal["standard", "256", "truecolor"]


@dataclass(frozen=True)
class Output:
    """How to answer; the command line decides. Piped words are the same as on a terminal, without colours."""

    as_json: bool = False
    colours: Colours | None = None  # how many a terminal has; None: words go out as they are
    is_terminal: bool = False  # one that a page can be written over on

    def answer(self, words: Callable[[], str], record: Callable[[], Any]) -> None:
        """Print one of both."""
        if self.as_json:
            sys.stdout.write(to_json(record()))
        else:
            self.words(words())

    def words(self, text: str) -> None:
        """Print a text that a stranger's file may have part in."""
        shown = harmless(text)
        if self.colours is None:
            sys.stdout.write(shown)
            return

        write_painted(shown, self.colours)

    def remark(self, text: str) -> None:
        """Print a line beside the answer, such as where a figure went; JSON stands alone."""
        if not self.as_json:
            print(text)


GOOD, DOUBTFUL, BAD, UNDER_WAY = "green", "yellow", "bold red", "cyan"
STATE_LOOKS = {
    "done": GOOD, "target reached": GOOD, "running": UNDER_WAY, "waiting": UNDER_WAY, "diverged": DOUBTFUL,
    "stopped": DOUBTFUL, "failed": BAD, "killed": BAD,
}  # fmt: skip
_METHODS = {name: METHOD_COLOURS[key] for key, label in METHOD_NAMES.items() for name in (key, label)}
_LOOKS: tuple[tuple[str, str], ...] = (  # where a group is found, and its look
    (r"^ {0,2}([a-z][a-z0-9 ()]*?) {2,}(?=\S)", "cyan"),  # what a line is about; later looks win
    (r"^(.*\S)\n *-{3,}$", "bold cyan"),  # the heading of a table
    (r"^ *(-{3,})$", "dim"),
    (r"^([^\s-](?:(?! {2})[^:\n])*)\n(?= {2,}\S)", "bold"),  # of a section
    (r"^ *(\[[a-z]+\])$", "bold"),  # of a section of an experiment
    (r"^ {0,2}([a-z_0-9]+) = ", "dim"),  # keys of an experiment
    (r"(\d[\d.,]*\*)", "bold"),  # the best of a table
    (r"^(ok) ", GOOD),
    (r"^(warn) ", DOUBTFUL),
    (r"^(FAIL) ", BAD),
    (r": (yes) \(", GOOD),
    (r": (NO) \(", BAD),
    (r"^ *(verdict) ", "bold"),
    (r" (delay-bound)\b", GOOD),
    (r" ((?:server|compute)-bound|late wake-ups)\b", DOUBTFUL),
)


def console(colours: Colours | None) -> Console:
    """The terminal behind stdout; what it can do was decided on the command line."""
    from rich.console import Console  # only a terminal needs rich

    return Console(
        file=sys.stdout, force_terminal=True, color_system=colours, legacy_windows=False, no_color=colours is None
    )


def write_painted(text: str, colours: Colours) -> None:
    """Print words in their colours, each line as long as it is."""
    console(colours).print(painted(text), end="", soft_wrap=True)


def painted(text: str) -> Text:
    """Words with their looks."""
    from rich.text import Text

    shown = Text(text)
    for pattern, look in _LOOKS:
        _paint(shown, pattern, look)
    for name, colour in _METHODS.items():
        _paint(shown, rf"^ *({re.escape(name)})(?=[ ,]|$)", colour)
        _paint(shown, rf'^ *name = ("{re.escape(name)}")$', colour)
    for state, look in STATE_LOOKS.items():
        _paint(shown, rf"  ({state})$", look)
        _paint(shown, rf"^  ({state}):", look)
    return shown


def _paint(shown: Text, pattern: str, look: str) -> None:
    for found in re.finditer(pattern, shown.plain, re.MULTILINE):
        shown.stylize(look, *found.span(1))


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
