"""The runs of a sweep in passes, which are computed one by one; how they end, and their files until then.

An executor takes passes and yields how each of them ended, as it ends: `pool` in processes, `mpi` in launches of
mpirun, `on_ranks` in the launch that it is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from areabench.engine.events import ENDED, Status
from areabench.experiment.experiment import Experiment


@dataclass(frozen=True)
class Task:
    """One run to compute, and the run file to leave."""

    experiment: Experiment
    output: Path


@dataclass(frozen=True)
class Pass:
    """Runs that are simulated together, in one pass over the events; on MPI a single one."""

    tasks: tuple[Task, ...]

    def divided(self) -> list[Pass]:
        """Its tasks one by one."""
        return [Pass((task,)) for task in self.tasks]


@dataclass(frozen=True)
class PassOutcome:
    """How a pass ended: a status for each of its tasks, or the error because of which there is none."""

    attempted: Pass
    statuses: tuple[Status, ...]
    error: str = ""
    is_fatal: bool = False  # every later pass would fail in the same way, for example on a full disk

    @property
    def divides(self) -> bool:
        """Whether its tasks are tried again one by one, to see which of them it was."""
        return bool(self.error) and not self.is_fatal and len(self.attempted.tasks) > 1


Executor: TypeAlias = Callable[[Sequence[Pass]], Generator[PassOutcome]]


def part_of(output: Path, pid: int) -> Path:
    """Where process `pid` writes a file of the folder until it is complete."""
    return output.with_name(f"{output.name}.{pid}.part")


@contextmanager
def parts_of(attempted: Pass, pid: int) -> Iterator[list[Path]]:
    """A context in which process `pid` writes the files of a pass; what is not published is removed."""
    parts = [part_of(task.output, pid) for task in attempted.tasks]
    try:
        yield parts
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def published(attempted: Pass, parts: Sequence[Path], statuses: Sequence[Status]) -> PassOutcome:
    """Give the files of runs that have ended their names; the outcome of the pass."""
    for task, part, status in zip(attempted.tasks, parts, statuses, strict=True):
        if status.state in ENDED:
            part.replace(task.output)
    return PassOutcome(attempted, tuple(statuses))
