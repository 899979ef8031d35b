"""Words on a terminal in colour: headings, methods in their colours, statuses. The words stay as they are."""

from __future__ import annotations

import re
import sys
from typing import IO

from rich.console import Console
from rich.text import Text

from areabench.looks import METHOD_COLOURS, METHOD_NAMES
from areabench.output import Colours

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
    return Console(
        file=sys.stdout, force_terminal=True, color_system=colours, legacy_windows=False, no_color=colours is None
    )


def has_blocks(stream: IO[str]) -> bool:
    """Whether bars may be drawn with the characters that are made for it."""
    return str(getattr(stream, "encoding", "")).lower().replace("-", "") == "utf8"


def write_painted(text: str, colours: Colours) -> None:
    """Print words in their colours, each line as long as it is."""
    console(colours).print(painted(text), end="", soft_wrap=True)


def painted_line(text: str) -> str:
    """A progress line with its bar in colour, for stderr."""
    terminal = Console(
        file=sys.stderr, force_terminal=True, color_system="standard", legacy_windows=False, no_color=False, width=1000
    )
    shown = Text(text)
    if found := re.search(r"\[(#*)(\.*)\]", text):
        filled, empty = ("━", "━") if has_blocks(sys.stderr) else ("#", ".")
        line = Text.assemble((filled * len(found[1]), GOOD), (empty * len(found[2]), "bright_black"))
        shown = Text.assemble(text[: found.start()], " ", line, " ", text[found.end() :])
    _paint(shown, r"(\d\S* failed)", BAD)
    with terminal.capture() as captured:
        terminal.print(shown, end="", soft_wrap=True)
    return captured.get()


def painted(text: str) -> Text:
    """Words with their looks."""
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
