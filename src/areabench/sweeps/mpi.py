"""Sweeps in real time: all runs one after the other inside one mpirun; another is started where a rank died."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areabench.engine.events import State, Status
from areabench.experiment.parse import parse_experiment, to_toml
from areabench.sweeps.folder import part_of
from areabench.sweeps.plan import Pass, Task
from areabench.sweeps.pool import Outcome

if TYPE_CHECKING:
    from areabench.transports.options import RunOptions
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import IO

from areabench.engine.events import ENDED
from areabench.errors import one_line
from areabench.launch.mpirun import PATIENCE_S, mpirun_command, own_folder, tether
from areabench.progress import SweepProgress
from areabench.sweeps.mpi_ranks import Call, play
from areabench.transports.options import RunOptions
from areabench.transports.signals import Interrupts
from areabench.transports.world import SharedFailure, World

READY = "ready"  # what rank 0 says before its first run


@dataclass(frozen=True)
class Batch:
    """Runs to make, and for whom: the command that asked for them, and the process that takes the files over."""

    tasks: tuple[Task, ...]
    command: str
    pid: int

    def write(self, path: Path) -> None:
        """Write the file."""
        tasks = [{"experiment": to_toml(task.experiment), "output": str(task.output)} for task in self.tasks]
        path.write_text(json.dumps({"command": self.command, "pid": self.pid, "tasks": tasks}), encoding="utf-8")


def read_batch(path: Path) -> Batch:
    """Read what `write` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tasks = tuple(Task(parse_experiment(task["experiment"]), Path(task["output"])) for task in content["tasks"])
    return Batch(tasks, content["command"], content["pid"])


def lead_batch(batch: Batch, leader_of: Callable[[RunOptions], Leader], around: RunOptions) -> None:
    """Rank 0: make all runs, and print a line for each as it ends."""
    leader = leader_of(replace(around, command=batch.command))
    print(READY, flush=True)
    for number, task in enumerate(batch.tasks):
        print(tell(number, leader.attempt(task, part_of(task.output, batch.pid))), flush=True)
    leader.dismiss(0)


def tell(number: int, outcome: Outcome) -> str:
    """The outcome of a batch's task in one line."""
    status = {**asdict(outcome.statuses[0]), "state": int(outcome.statuses[0].state)} if outcome.statuses else None
    return json.dumps([number, status, outcome.trouble, outcome.hopeless])


def understand(line: str, tasks: Sequence[Task]) -> Outcome | None:
    """What `tell` told; None for the words of somebody else, such as a warning of the MPI library."""
    try:
        number, status, trouble, hopeless = json.loads(line)
        return Outcome(Pass((tasks[number],)), _statuses(status), trouble, hopeless)
    except (ValueError, TypeError, IndexError):
        return None


def _statuses(status: dict[str, Any] | None) -> tuple[Status, ...]:
    return () if status is None else (Status(**{**status, "state": State(status["state"])}),)


_LOOK_S = 0.2  # how often to show progress, where it is shown


def run_in_launches(
    tasks: Sequence[Task], ranks: int | None, command: str, interrupts: Interrupts, progress: SweepProgress
) -> Iterator[Outcome]:
    """Run all tasks in their order, until there is an interrupt; a launch that breaks down fails the run under way."""
    pending = deque(tasks)
    while pending and not interrupts.number:
        launch = _Launch(Batch(tuple(pending), command, os.getpid()), ranks, interrupts, progress)
        for outcome in launch.outcomes():
            pending.popleft()
            yield outcome


class _Launch:
    """One mpirun that works through a batch."""

    def __init__(self, batch: Batch, ranks: int | None, interrupts: Interrupts, progress: SweepProgress) -> None:
        self._batch, self._interrupts, self._progress = batch, interrupts, progress
        self._file = part_of(batch.tasks[0].output.parent / "batch.json", os.getpid())
        needed = max(task.experiment.clients.count for task in batch.tasks) + 1
        self._command = mpirun_command(min(ranks or needed, needed), ["batch", str(self._file)])

    def outcomes(self) -> Iterator[Outcome]:
        """What becomes of the tasks in their order; the first that the launch leaves without a word has failed."""
        tasks, told, ready = self._batch.tasks, 0, False
        try:
            self._batch.write(self._file)
            with tempfile.TemporaryFile("w+", errors="replace") as said:
                for line in self._lines(said):
                    ready = ready or line == READY
                    if outcome := understand(line, tasks):
                        told += 1
                        yield outcome
                if told < len(tasks) and not self._interrupts.number:
                    reason = f"the launch broke down: {_reason(said)}"
                    yield Outcome(Pass((tasks[told],)), (), reason, hopeless=not ready)  # no other would come up either
        except OSError as error:
            if told < len(tasks):
                yield Outcome(Pass((tasks[told],)), (), one_line(error), hopeless=True)
        finally:
            for path in (self._file, *(part_of(task.output, os.getpid()) for task in tasks)):
                path.unlink(missing_ok=True)

    def _lines(self, said: IO[str]) -> Iterator[str]:
        """What rank 0 prints, line by line, until it ends or an interrupt comes; mpirun is ended in any case."""
        with own_folder() as surroundings:
            yield from self._lines_in(surroundings, said)

    def _lines_in(self, surroundings: dict[str, str], said: IO[str]) -> Iterator[str]:
        # In a session of its own: an interrupt from the keyboard would reach it beside us, and it prints pages then.
        mpirun = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            preexec_fn=tether(),
            env=surroundings,
        )
        assert mpirun.stdout is not None
        output, rest = mpirun.stdout.fileno(), b""
        try:
            while not self._interrupts.number:
                ready = wait([self._interrupts.file, output], _LOOK_S)
                self._progress.show()
                if output in ready:
                    if not (block := os.read(output, 65536)):
                        return
                    *lines, rest = (rest + block).split(b"\n")
                    yield from (line.decode() for line in lines)
        finally:
            mpirun.stdout.close()
            _end(mpirun)


def _end(mpirun: subprocess.Popen[bytes]) -> None:
    """Have mpirun end its ranks, if it does not end by itself at once."""
    for patience_s, act in ((0.5, mpirun.terminate), (PATIENCE_S, mpirun.kill)):
        try:
            mpirun.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            act()
    mpirun.wait()


def _reason(said: IO[str]) -> str:
    """Why a launch broke down: our own words among those of mpirun, else the last exception, else what came first."""
    said.seek(0)
    lines = [line.strip() for line in said if re.search(r"\w", line)]
    ours = [line.removeprefix("areabench: ") for line in lines if line.startswith("areabench: ")]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failure)\b", line)]
    return (ours or exceptions or lines[:1] or ["without a word"])[-1]


class Leader:
    """Rank 0 of a launch that runs one experiment after the other."""

    def __init__(self, world: World, around: RunOptions) -> None:
        self._world, self._around = world, around

    def attempt(self, task: Task, part: Path) -> Outcome:
        """One run, written to `part`; its file takes its name when it is complete."""
        attempted, around = Pass((task,)), replace(self._around, output=part, force=True)
        call = Call(task.experiment.clients.count)
        try:
            status = play(self._world, self._world.from_server(lambda: call), lambda: task.experiment, around)
            assert status is not None
            if status.state in ENDED:
                part.replace(task.output)
            return Outcome(attempted, (status,))
        except SharedFailure as failure:
            reason = one_line(failure)
            return Outcome(attempted, (), reason, hopeless="cannot be written" in reason)
        except OSError as error:
            return Outcome(attempted, (), one_line(error), hopeless=True)
        finally:
            part.unlink(missing_ok=True)

    def dismiss(self, exit_code: int) -> None:
        """There is no other run."""
        self._world.from_server(lambda: Call(0, exit_code))
