"""Sweeps in real time: all runs one after the other inside one mpirun; another is started where a rank died.

A batch goes to rank 0 of the launch as a file, and rank 0 prints one line for each run as it ends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from areabench.engine.client import most_ranks
from areabench.engine.events import State, Status
from areabench.errors import one_line
from areabench.experiment.files import base_folder, stored_experiment, written_text
from areabench.launching.mpirun import mpirun_command
from areabench.launching.watch import PATIENCE_S, end_with_parent, private_tmpdir
from areabench.progress import SweepProgress
from areabench.sweeps.passes import Pass, PassOutcome, Task, part_of
from areabench.transports.signals import Interrupts

READY = "ready"  # what rank 0 prints before its first run
_REFRESH_S = 0.2  # how often progress is shown


@dataclass(frozen=True)
class Batch:
    """Runs to make, and for whom: the command that asked for them, and the process that takes the files over."""

    tasks: tuple[Task, ...]
    command: str
    pid: int

    def write(self, path: Path) -> None:
        """Write the file."""
        tasks = [
            {
                "experiment": written_text(task.experiment),
                "folder": base_folder(task.experiment),
                "output": str(task.output),
            }
            for task in self.tasks
        ]
        path.write_text(json.dumps({"command": self.command, "pid": self.pid, "tasks": tasks}), encoding="utf-8")


def read_batch(path: Path) -> Batch:
    """Read what `write` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tasks = tuple(
        Task(stored_experiment(task["experiment"], "batch", task["folder"]), Path(task["output"]))
        for task in content["tasks"]
    )
    return Batch(tasks, content["command"], content["pid"])


def outcome_line(number: int, outcome: PassOutcome) -> str:
    """The outcome of a batch's task in one line."""
    statuses = [{**asdict(status), "state": int(status.state)} for status in outcome.statuses]
    return json.dumps([number, statuses, outcome.error, outcome.is_fatal])


def read_outcome(line: str, tasks: Sequence[Task]) -> PassOutcome | None:
    """The outcome that `outcome_line` wrote; None for any other line, such as a warning of the MPI library."""
    try:
        number, statuses, error, is_fatal = json.loads(line)
        ended = tuple(Status(**{**status, "state": State(status["state"])}) for status in statuses)
        return PassOutcome(Pass((tasks[number],)), ended, error, is_fatal)
    except (ValueError, TypeError, IndexError):
        return None


# ---------------------------------------------------------------------------------------------------- launches


def run_in_launches(
    passes: Sequence[Pass], ranks: int | None, command: str, interrupts: Interrupts, progress: SweepProgress
) -> Generator[PassOutcome]:
    """Run all passes in their order, until there is an interrupt; a launch that breaks down fails the current run."""
    pending = deque(task for each in passes for task in each.tasks)
    while pending and not interrupts.number:
        # What has no outcome when a launch ends is tried in the next one, but for the run that broke it down.
        batch = Batch(tuple(pending), command, os.getpid())
        for outcome in _launch(batch, ranks, interrupts, progress):
            pending.popleft()
            yield outcome


def _launch(batch: Batch, ranks: int | None, interrupts: Interrupts, progress: SweepProgress) -> Iterator[PassOutcome]:
    """How the tasks of a batch end in one mpirun, in their order; the first without an outcome when it ends failed."""
    tasks = batch.tasks
    ended = 0
    ready = False
    file = part_of(tasks[0].output.parent / "batch.json", os.getpid())
    needed = max(most_ranks(task.experiment) for task in tasks)
    command = mpirun_command(min(ranks or needed, needed), ["batch", str(file)])
    try:
        batch.write(file)
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            for line in _lines(command, errors, interrupts, progress):
                # MPI libraries print warnings of their own to stdout, so lines that are no outcome are passed over.
                ready = ready or line == READY
                if outcome := read_outcome(line, tasks):
                    ended += 1
                    yield outcome
            if ended < len(tasks) and not interrupts.number:
                reason = f"the launch broke down: {_reason(errors)}"
                # where no run began, another launch would fail in the same way
                yield PassOutcome(Pass((tasks[ended],)), (), reason, is_fatal=not ready)
    except OSError as error:
        if ended < len(tasks):
            yield PassOutcome(Pass((tasks[ended],)), (), one_line(error), is_fatal=True)
    finally:
        # Rank 0 may have been killed before it could remove what it had begun.
        for path in (file, *(part_of(task.output, os.getpid()) for task in tasks)):
            path.unlink(missing_ok=True)


def _lines(command: Sequence[str], errors: IO[str], interrupts: Interrupts, progress: SweepProgress) -> Iterator[str]:
    """What rank 0 prints, line by line, until it ends or an interrupt comes; mpirun is ended in any case."""
    with ExitStack() as stack:
        # In a session of its own: a keyboard interrupt would otherwise reach mpirun too, which then prints pages.
        mpirun = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=end_with_parent(),
            env=stack.enter_context(private_tmpdir()),
        )
        stack.callback(_end, mpirun)
        assert mpirun.stdout is not None
        output = stack.enter_context(mpirun.stdout).fileno()
        rest = b""
        while not interrupts.number:
            ready = wait([interrupts.file, output], _REFRESH_S)
            progress.show()
            if output in ready:
                if not (block := os.read(output, 65536)):
                    return
                *lines, rest = (rest + block).split(b"\n")
                yield from (line.decode() for line in lines)


def _end(mpirun: subprocess.Popen[bytes]) -> None:
    """Have mpirun end its ranks, if it does not end by itself at once."""
    for patience_s, act in ((0.5, mpirun.terminate), (PATIENCE_S, mpirun.kill)):
        try:
            mpirun.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            act()
    mpirun.wait()


def _reason(errors: IO[str]) -> str:
    """Why a launch broke down: our own line among those of mpirun, else the last exception, else the first line."""
    errors.seek(0)
    lines = [line.strip() for line in errors if re.search(r"\w", line)]
    ours = [line.removeprefix("areabench: ") for line in lines if line.startswith("areabench: ")]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
    # mpirun adds pages about the ranks that it ended; the cause stands before or among them.
    return (ours or exceptions or lines[:1] or ["it printed nothing"])[-1]
