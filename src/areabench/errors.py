"""Errors. A UserError is for the user to correct: one line that names the value, the limit and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


class UserError(Exception):
    """Bad input or a machine that lacks something; shown as one line, without traceback, exit code 2."""

    def __init__(self, message: str) -> None:
        """Line breaks and other control characters, which keys and paths may contain, are written as escapes."""
        super().__init__("".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message))


class ConfigError(UserError):
    """An experiment that cannot be run as it is written."""


class RunFileError(UserError):
    """A run file that cannot be read, or must not be written."""


class OutputFailure(UserError):
    """Stdout or stderr, by name, that cannot be written."""

    def __init__(self, stream: str, trouble: str) -> None:
        super().__init__(f"{stream} {trouble}")
        self.stream = stream


class RunFailure(Exception):
    """A run that failed; shown as its message, without traceback, exit code 1."""


class OtherKernels(Exception):
    """The command needs a process with other kernels: it is to start again, in its own place, with these variables."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__(variables)
        self.variables = variables


class SilentExit(SystemExit):
    """An end of this process that needs no words: a signal came, or another rank has said why."""


class ClientsLost(RunFailure):
    """Clients whose ranks have died where MPI cannot continue without them."""

    def __init__(self, clients: Sequence[int]) -> None:
        super().__init__(f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))} lost")


class ServerGone(RunFailure):
    """The server's rank or the launcher has died, so a worker's rank must end."""


class WriteFailure(RunFailure):
    """A write that failed, as on a full disc: further writes there are likely to fail too."""


def escape_controls(text: str) -> str:
    """Text from a file of unknown origin, for a terminal: control characters are written as escapes.

    Those that reverse the order of what follows (U+202A to U+202E, U+2066 to U+2069) too.
    """
    controls = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(controls, lambda found: repr(found[0])[1:-1], text)


def one_line(error: BaseException) -> str:
    """An error in one line: its type, the first and the last line of its message, and its notes."""
    lines = str(error).strip().splitlines() or [""]
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: " + " ... ".join(dict.fromkeys((lines[0], lines[-1]))) + notes
