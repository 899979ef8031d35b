"""Sweeps in real time: one run after the other, each under an mpirun of its own."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import IO

from areabench.config import to_toml
from areabench.errors import UserError, one_line
from areabench.launch import PATIENCE_S, mpirun_command
from areabench.progress import SweepProgress
from areabench.reading import open_run
from areabench.sweeps.folder import part_of
from areabench.sweeps.interrupts import Interrupts
from areabench.sweeps.passes import Pass, Task
from areabench.sweeps.pool import Outcome
from areabench.sweeps.results import ENDED

_LOOK_S = 0.1  # how often to look whether a run has ended, which takes many seconds


def run_one_by_one(tasks: Sequence[Task], interrupts: Interrupts, progress: SweepProgress) -> Iterator[Outcome]:
    """Run all tasks in their order, until there is an interrupt."""
    if tasks:
        mpirun_command(2, [])  # a machine without MPI is told once, not once a run
    for task in tasks:
        outcome = _run(task, interrupts, progress)
        if outcome is not None:
            yield outcome
        if interrupts.number:
            return


def _run(task: Task, interrupts: Interrupts, progress: SweepProgress) -> Outcome | None:
    """One run; its file takes its name when it is complete. None where an interrupt ended it."""
    part, experiment = part_of(task.output, os.getpid()), part_of(task.output.with_suffix(".toml"), os.getpid())
    arguments = ["run", str(experiment), "--output", str(part), "--force", "--progress", "never"]
    attempted = Pass((task,))
    try:
        command = mpirun_command(task.experiment.clients.count + 1, arguments)
        experiment.write_text(to_toml(task.experiment), encoding="utf-8")
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            code = _wait(command, said, interrupts, progress)
            if code is None:
                return None
            if code not in (0, 3):  # done, or diverged
                reason = _reason(code, said)
                return Outcome(attempted, (), reason, hopeless="cannot be written" in reason)
        with open_run(part) as run:
            status = run.status
        if status.state in ENDED:
            part.replace(task.output)
        return Outcome(attempted, (status,))
    except UserError as error:
        return Outcome(attempted, (), str(error))
    except OSError as error:
        return Outcome(attempted, (), one_line(error), hopeless=True)
    finally:
        part.unlink(missing_ok=True)
        experiment.unlink(missing_ok=True)


def _wait(command: Sequence[str], said: IO[str], interrupts: Interrupts, progress: SweepProgress) -> int | None:
    """Run mpirun to its end; its exit code, or None where an interrupt came first and it was ended."""
    # In a session of its own: an interrupt from the keyboard would reach it beside us, and it prints pages then.
    nothing = subprocess.DEVNULL
    ranks = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=said, start_new_session=True)
    try:
        while ranks.poll() is None and not wait([interrupts.file], _LOOK_S):
            progress.show()
        return ranks.returncode
    finally:
        _end(ranks)


def _end(ranks: subprocess.Popen[bytes]) -> None:
    """Have mpirun end its ranks, if it has not ended."""
    if ranks.poll() is None:
        ranks.terminate()
        try:
            ranks.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            ranks.kill()
            ranks.wait()


def _reason(code: int, said: IO[str]) -> str:
    """Why a run failed: our own words among those of mpirun, else the last exception, else what came first."""
    said.seek(0)
    lines = [line.strip() for line in said if re.search(r"\w", line)]
    ours = [line.removeprefix("areabench: ") for line in lines if line.startswith("areabench: ")]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
    return f"exit code {code}: {(ours or exceptions or lines[:1] or ['without a word'])[-1]}"
