"""The errors a user can mend: one line that names the value, the limit and the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence


class UserError(Exception):
    """Bad input or a machine that lacks something; shown as one line, without traceback, exit code 2."""

    def __init__(self, message: str) -> None:
        """Line breaks and other control characters, which keys and paths may hold, are written out as escapes."""
        super().__init__("".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message))


class ConfigError(UserError):
    """An experiment that cannot be run as it is written."""


class RunFileError(UserError):
    """A run file that cannot be read, or must not be written."""


class RunFailure(Exception):
    """A run that failed; the message says everything, a traceback of the place would only hide it. Exit code 1."""


class ClientsLost(RunFailure):
    """Clients whose ranks have died where MPI cannot go on without them."""

    def __init__(self, clients: Sequence[int]) -> None:
        super().__init__(f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))} lost")


class ServerGone(RunFailure):
    """The server's rank, or the launcher, has died: a worker's rank has nothing to do any more."""


class WriteFailure(RunFailure):
    """A disc that takes no more: whatever else would be written there is likely to fail too."""


def harmless(text: str) -> str:
    """Text of a file that a stranger may have written, for a terminal: its control characters written out."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", lambda found: repr(found[0])[1:-1], text)


def one_line(error: BaseException) -> str:
    """An error in one line: its type, the first and the last line of its message, and what was noted on it."""
    lines = str(error).strip().splitlines() or [""]
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: " + " ... ".join(dict.fromkeys((lines[0], lines[-1]))) + notes
