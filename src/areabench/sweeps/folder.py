"""The folder of a sweep, written: its lock, its sweep.toml, its list of failures, and files that are not complete."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from areabench.errors import RunFileError, UserError
from areabench.schema import State
from areabench.sweeps.passes import Task
from areabench.sweeps.reading import FAILURE_FILE, SWEEP_FILE, Failure, Member, SweepPlan, read_stored, stored_text
from areabench.sweeps.results import ended_state


def part_of(output: Path, pid: int) -> Path:
    """Where process `pid` writes a file of the folder until it is complete."""
    return output.with_name(f"{output.name}.{pid}.part")


@dataclass(frozen=True)
class Standing:
    """Where a sweep stands: what is to be computed, what is done, what cannot be run."""

    runs: int
    pending: tuple[Task, ...]
    done: int
    diverged: int  # of those done
    invalid: tuple[Failure, ...]


def standing(plan: SweepPlan, folder: Path, *, force: bool) -> Standing:
    """Look what is done; nothing counts as done where everything is to be run again."""
    states = [None if force else _state(member, folder) for member in plan.members]
    pending = tuple(
        Task(member.experiment, folder / member.file)
        for member, state in zip(plan.members, states, strict=True)
        if member.experiment is not None and state is None
    )
    invalid = tuple(Failure(member.file, member.error) for member in plan.members if member.experiment is None)
    done = len(states) - states.count(None)
    return Standing(len(states), pending, done, states.count(State.DIVERGED), invalid)


def _state(member: Member, folder: Path) -> State | None:
    """How the member's run ended; None unless its file is there, complete and of this very experiment."""
    return ended_state(folder / member.file, member.experiment) if member.experiment is not None else None


def check_transport(folder: Path, transport: str) -> None:
    """Runs in virtual and in real time are not mixed in a folder."""
    if (folder / SWEEP_FILE).is_file() and (found := read_stored(folder).transport) != transport:
        raise UserError(
            f"{folder}: holds a sweep of the transport {found}, this one is of {transport}; choose another --output"
        )


@contextmanager
def opened(folder: Path, plan: SweepPlan, transport: str) -> Iterator[None]:
    """The folder made ready for a sweep, and locked until it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("a+", encoding="utf-8") as lock:
            _take(lock, folder)
            check_transport(folder, transport)
            _remove_leftovers(folder)
            _write(folder / SWEEP_FILE, stored_text(plan, transport))
            yield
    except FileExistsError as error:
        raise RunFileError(f"{folder}: is not a folder; choose another --output") from error
    except PermissionError as error:
        raise RunFileError(f"{folder}: cannot be written: {error.strerror}; choose another --output") from error


def write_failures(folder: Path, failures: Sequence[Failure]) -> None:
    """Replace the list of failed runs."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("file", "reason"))
    writer.writerows((failure.file, failure.reason) for failure in failures)
    _write(folder / FAILURE_FILE, text.getvalue())


def _take(lock: io.TextIOWrapper, folder: Path) -> None:
    """Lock the folder; the operating system unlocks it when the process ends, however it ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        raise UserError(
            f"{folder}: another sweep is writing into it (process {owner}); wait until it ends or choose another "
            "--output"
        ) from error
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def _write(path: Path, text: str) -> None:
    """Replace a file in one go."""
    part = part_of(path, os.getpid())
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed had begun to write; the lock says that nobody writes now."""
    for path in folder.glob("*.part"):
        if re.search(r"\.\d+\.part$", path.name):
            path.unlink(missing_ok=True)
