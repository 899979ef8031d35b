"""What is left when mpirun has ended: the exit code of the run, and a last word where the server could not say it."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from areabench.errors import UserError
from areabench.mpirun import Ending
from areabench.rank_commands import exit_code
from areabench.schema import State, Status

_KILLED = 128 + signal.SIGKILL


class FileBefore(NamedTuple):
    """A file as it was: which, and when it was written; to tell whether it is another by now."""

    inode: int = 0
    written_ns: int = 0


def file_before(path: Path) -> FileBefore:
    """The file at a path, if there is one."""
    with suppress(OSError):
        found = path.stat()
        return FileBefore(found.st_ino, found.st_mtime_ns)
    return FileBefore()


def settle(output: Path, before: FileBefore, ending: Ending, *, trusted: bool) -> int:
    """The exit code of a launch: the run file knows better than mpirun, which may have ended ranks that were done.

    A run that is still `running` there was ended before it could say so, and is marked as failed. Not `trusted` is an
    mpirun that returns 0 also where all its ranks were killed.
    """
    status = _read(output) if file_before(output) not in (before, FileBefore()) else None
    if status is not None and status.state == State.RUNNING:
        reason = reason_of(ending)
        _mark(output, replace(status, state=State.FAILED, reason=reason))
        print(f"areabench: {output}: failed: {reason}", file=sys.stderr)
        return ending.shell_code or 1
    if status is not None and status.state == State.STOPPED and ending.signal == signal.SIGINT:
        return 128 + signal.SIGINT
    if status is not None and status.state in (State.STOPPED, State.DIVERGED, State.FAILED):
        return exit_code(status) or ending.shell_code or 1
    if status is None and not ending.code and (ending.signal or not trusted):
        return 128 + ending.signal if ending.signal else 1
    return ending.shell_code


def reason_of(ending: Ending) -> str:
    """Why a run has failed whose server ended without a word, as far as mpirun tells."""
    if ending.signal:
        name = signal.Signals(ending.signal).name
        return f"{name} came, and the run was ended before it could stop"
    killed = " (a rank was killed)" if ending.shell_code in (_KILLED, signal.SIGKILL) else ""  # Open MPI's, MPICH's
    return f"the server ended without a word, mpirun returned {ending.shell_code}{killed}"


def _read(path: Path) -> Status | None:
    from areabench.reading import open_run

    try:
        with open_run(path) as run:
            return run.status
    except UserError as error:  # `recover` saves what can be
        print(f"areabench: {error}", file=sys.stderr)
        return None


def _mark(path: Path, status: Status) -> None:
    from areabench.status_record import mark

    try:
        mark(path, status)
    except UserError as error:
        print(f"areabench: {error}", file=sys.stderr)
