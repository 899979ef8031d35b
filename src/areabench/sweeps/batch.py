"""A batch: the runs that one launch is to make, as a file for its rank 0, which tells of each as it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areabench.config import parse_experiment, to_toml
from areabench.schema import State, Status
from areabench.sweeps.folder import part_of
from areabench.sweeps.passes import Pass, Task
from areabench.sweeps.pool import Outcome

if TYPE_CHECKING:
    from areabench.surroundings import Surroundings
    from areabench.sweeps.leader import Leader


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


def lead_batch(batch: Batch, leader_of: Callable[[Surroundings], Leader], around: Surroundings) -> None:
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
