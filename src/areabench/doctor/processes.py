"""Starting a program that may hang, fail, or not start at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

_GRACE_S = 5.0  # for mpirun to end its ranks when told to


class End(Enum):
    """How a program ended."""

    EXITED = auto()
    NOT_STARTED = auto()
    TIME_OUT = auto()


@dataclass(frozen=True)
class Ended:
    """A program that has ended: exit code (where it has one), what it printed, what it complained about."""

    end: End
    code: int
    output: str
    errors: str

    @property
    def complaint(self) -> str:
        """The exception that ended it, or the first line with a word in it among its errors and its output."""
        lines = [line.strip() for line in (self.errors + "\n" + self.output).splitlines()]
        exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
        telling = exceptions[-1:] or [line for line in lines if re.search(r"[^\W\d_]", line)]
        return telling[0][:200] if telling else "without a word"


def run_limited(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Ended:
    """Run a command to its end, or end it with all that it has started; never raises for what the command does."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Ended(End.NOT_STARTED, 0, "", error.strerror or str(error))
        try:
            code, end = process.wait(limit_s), End.EXITED
        except subprocess.TimeoutExpired:
            code, end = 0, End.TIME_OUT
        finally:
            _end(process)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ended(end, code, *texts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it has started, if they have not ended."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
