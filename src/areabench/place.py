"""Where a value stands in an experiment file, and how an error shows it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from areabench.errors import ConfigError

_LONGEST_SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True)
class Place:
    """Where a value stands: the file, the keys that `--set` overrides in it, and the dotted key."""

    source: str
    overridden: tuple[str, ...] = ()
    key: str = ""

    def inner(self, name: str) -> Place:
        """The place of a key below this one."""
        return Place(self.source, self.overridden, f"{self.key}.{name}" if self.key else name)

    def error(self, problem: str) -> ConfigError:
        """An error at this place."""
        by_hand = any(f"{self.key}.".startswith(f"{key}.") for key in self.overridden)
        where = f"{self.source}: {self.key}: " if self.key else f"{self.source}: "
        return ConfigError(where + problem + (" (given by --set)" if by_hand else ""))


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest that does."""
    names = sorted(known)
    near = difflib.get_close_matches(shown(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {what} {shown(name)}; {hint}allowed: {', '.join(names)}"


def shown(value: object) -> str:
    """A value as an error shows it: on one line, and not for ever."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
