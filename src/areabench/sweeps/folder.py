"""Writing the folder of a sweep: its lock, its sweep.toml, its list of failures, and incomplete files."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from areabench.engine.events import State
from areabench.errors import RunFailure, RunFileError, UserError
from areabench.experiment.experiment import Experiment
from areabench.experiment.files import named_files
from areabench.files import replace_text
from areabench.plugins.modules import modules_of
from areabench.sweeps.passes import Task, part_of
from areabench.sweeps.plan import Share, SweepPlan
from areabench.sweeps.read import (
    FAILURE_COLUMNS,
    FAILURES,
    SWEEP_FILE,
    Failure,
    read_stored,
    stored_text,
)
from areabench.sweeps.result import content_changed, ended_state

_LOCK = ".lock"
_ALL = Share()


@dataclass
class FolderReport:
    """What there is to do of a sweep, and what has been done so far."""

    folder: Path
    runs: int
    pending: tuple[Task, ...] = ()  # at the beginning
    before: int = 0  # done by an earlier sweep
    now: int = 0
    diverged: int = 0  # of those done
    failures: list[Failure] = field(default_factory=list)
    share: Share = _ALL
    phase: str = ""  # of a tuned sweep: tuning or test

    @property
    def done(self) -> int:
        """Runs that are done."""
        return self.before + self.now


def look_into(folder: Path, plan: SweepPlan, share: Share = _ALL, *, force: bool) -> FolderReport:
    """Which runs are done, pending, and cannot be run, which is a failure; with `force` nothing counts as done."""
    report = FolderReport(folder, len(plan.members), share=share)
    pending = []
    for member in plan.members:
        if member.experiment is None:
            report.failures.append(Failure(member.file, member.error))
            continue
        state = None if force else _state(folder / member.file, member.experiment)
        if state is None:
            pending.append(Task(member.experiment, folder / member.file))
        else:
            report.before += 1
            report.diverged += state == State.DIVERGED
    report.pending = tuple(pending)
    return report


def _state(path: Path, experiment: Experiment) -> State | None:
    """How the run of exactly this experiment ended; None unless it is complete and made with what the files hold now.

    Such a file has data, or the trace of the delays, or is a module of the user's own.
    """
    if (modules_of(experiment) or named_files(experiment)) and content_changed(path, experiment):
        return None
    return ended_state(path, experiment, evaluated=True)


def check_contents(folder: Path, plan: SweepPlan, transport: str) -> None:
    """Refuse a folder with other runs, which nothing would show any more, and with runs of the other transport."""
    try:
        there = (folder / SWEEP_FILE).is_file()
    except OSError as error:
        raise _unusable(folder, error) from error
    others = sorted({path.name for path in folder.glob("*.h5")} - {member.file for member in plan.members})
    if not there:
        if others:
            raise UserError(f"{folder}: holds {_run_files(others)} that no sweep has made; choose another --output")
        return
    # A run of the same experiment has the same name under both clocks: it would be taken for done.
    found = read_stored(folder)
    if found.transport != transport:
        raise UserError(
            f"{folder}: holds a sweep of the transport {found.transport}, this one is of {transport}; "
            "choose another --output"
        )
    # Runs of the same sweep with other settings may stay: they are used again when the settings come back.
    if others and found.name != plan.name:
        raise UserError(
            f"{folder}: holds {_run_files(others)} of the sweep {found.name}, this one is {plan.name}; "
            "choose another --output"
        )


def _run_files(names: Sequence[str]) -> str:
    """How many run files there are, and the first."""
    return f"{len(names):,} run file{'s' * (len(names) > 1)} ({names[0]}{', ...' * (len(names) > 1)})"


@contextmanager
def opened(folder: Path, plan: SweepPlan, transport: str, share: Share = _ALL) -> Iterator[None]:
    """The folder, prepared for a sweep or a share of one and locked until it ends."""
    with ExitStack() as locks:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as turn:
                # Shares prepare the folder one after the other, so that none sees another between its lock and its
                # files.
                if not share.whole:
                    fcntl.flock(turn.enter_context((folder / f"{_LOCK}-turn").open("a")), fcntl.LOCK_EX)
                _lock(folder, share, locks)
                check_contents(folder, plan, transport)
                _remove_leftovers(folder, plan, share)
                _store(folder, stored_text(plan, transport, folder), share)
        except OSError as error:
            raise _unusable(folder, error) from error
        yield


def _unusable(folder: Path, error: OSError) -> RunFileError:
    """The error of a folder that cannot be used, in one line."""
    if isinstance(error, FileExistsError):
        return RunFileError(f"{folder}: is not a folder; choose another --output")
    remedy = "choose another --output"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = f"make room or {remedy}"
    return RunFileError(f"{folder}: cannot be written: {error.strerror}; {remedy}")


def write_failures(report: FolderReport) -> None:
    """Write down what has failed so far; a share has a list of its own."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FAILURE_COLUMNS)
    writer.writerows(failure.row for failure in report.failures)
    path = report.folder / f"{FAILURES}{report.share.suffix}.csv"
    try:
        replace_text(path, text.getvalue(), part_of(path, os.getpid()))
    except OSError as error:
        raise RunFailure(f"{path}: cannot be written: {error.strerror}; make room") from error


def _store(folder: Path, text: str, share: Share) -> None:
    """Write sweep.toml, which all shares have in common; refused while a share of another sweep is running."""
    path = folder / SWEEP_FILE
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    for other in _busy_shares(folder, share):
        raise UserError(
            f"{folder}: share {other.text} of another sweep is writing into it; start all shares with the "
            "same file and options, or choose another --output"
        )
    # A killed sweep must leave the old file or the new one: readers trust what it says.
    replace_text(path, text, part_of(path, os.getpid()))


# ---------------------------------------------------------------------------------------------------- locks


def _lock(folder: Path, share: Share, stack: ExitStack) -> None:
    """Lock the folder until the stack is closed: a whole sweep alone, a share together with others of the same N."""
    lock = stack.enter_context((folder / _LOCK).open("a+", encoding="utf-8"))
    process = f"process {os.getpid()}"
    if share.whole:
        _take(lock, folder, fcntl.LOCK_EX, process)
        return
    # The lock that all shares have in common keeps whole sweeps away; the one of its own keeps its double away.
    _take(lock, folder, fcntl.LOCK_SH, "shares of it")
    own = stack.enter_context((folder / f"{_LOCK}{share.suffix}").open("a+", encoding="utf-8"))
    _take(own, folder, fcntl.LOCK_EX, f"share {share.text}, {process} on {os.uname().nodename}")
    for other in _busy_shares(folder, share):
        if other.of != share.of:
            raise UserError(
                f"{folder}: share {other.text} is writing into it, and {share.text} would run some of its runs too; "
                "wait until it ends or divide by the same number"
            )


def _busy_shares(folder: Path, mine: Share) -> Iterator[Share]:
    """The other shares that are running."""
    for path in folder.glob(f"{_LOCK}-*-of-*"):
        numbers = re.fullmatch(rf"{re.escape(_LOCK)}-(\d+)-of-(\d+)", path.name)
        if numbers is None or (share := Share(int(numbers[1]), int(numbers[2]))) == mine:
            continue
        with path.open("a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield share


def _take(lock: io.TextIOWrapper, folder: Path, kind: int, owner: str) -> None:
    """Take a lock; the operating system releases it when the process ends, however it ends."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        others = lock.read().strip() or "unknown"
        raise UserError(
            f"{folder}: another sweep is writing into it ({others}); wait until it ends or choose another --output"
        ) from error
    os.truncate(lock.fileno(), 0)
    os.write(lock.fileno(), f"{owner}\n".encode())  # at once: on a full disk, closing a buffer would fail again


# ---------------------------------------------------------------------------------------------------- files


def _remove_leftovers(folder: Path, plan: SweepPlan, share: Share) -> None:
    """Remove what killed processes had begun to write; the lock ensures that nobody writes it now."""
    own = {Path(member.file).stem for member in plan.members}
    for path in folder.glob("*.part"):
        begun = re.fullmatch(r"(.+)\.\w+\.\d+\.part", path.name)
        # Other shares may be writing their files at this moment.
        if re.search(r"\.\d+\.part$", path.name) and (share.whole or (begun is not None and begun[1] in own)):
            path.unlink(missing_ok=True)
    if share.whole:
        for path in (*folder.glob(f"{_LOCK}-*-of-*"), *folder.glob(f"{FAILURES}-*-of-*.csv")):
            path.unlink(missing_ok=True)
