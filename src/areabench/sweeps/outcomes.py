"""How the passes of a sweep end, and the files that they write until then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from areabench.engine.events import ENDED, Status
from areabench.sweeps.plan import Pass


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


def part_of(output: Path, pid: int) -> Path:
    """Where process `pid` writes a file of the folder until it is complete."""
    return output.with_name(f"{output.name}.{pid}.part")


@dataclass(frozen=True)
class PassFiles:
    """The files of a pass until they are complete."""

    attempted: Pass
    paths: tuple[Path, ...]

    def published(self, statuses: Sequence[Status]) -> PassOutcome:
        """Give the files of runs that have ended their names; the outcome of the pass."""
        for task, path, status in zip(self.attempted.tasks, self.paths, statuses, strict=True):
            if status.state in ENDED:
                path.replace(task.output)
        return PassOutcome(self.attempted, tuple(statuses))


@contextmanager
def files_of_pass(attempted: Pass, pid: int) -> Iterator[PassFiles]:
    """A context in which process `pid` makes the files of a pass; what is not published is removed."""
    paths = tuple(part_of(task.output, pid) for task in attempted.tasks)
    try:
        yield PassFiles(attempted, paths)
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
