"""Rank 0 of a launch that makes one run after the other. Needs mpi4py, which `sweeps.mpi` does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from areabench.engine.client import most_ranks
from areabench.engine.events import ENDED
from areabench.errors import one_line
from areabench.sweeps.folder import part_of
from areabench.sweeps.mpi import READY, Batch, outcome_line
from areabench.sweeps.mpi_ranks import NextRun, run_together
from areabench.sweeps.plan import Pass, Task
from areabench.sweeps.pool import PassOutcome
from areabench.transports.options import RunOptions
from areabench.transports.world import SharedFailure, World


def lead_batch(batch: Batch, world: World, options: RunOptions) -> None:
    """Make all runs of a batch, and print one line for each as it ends."""
    leader = Leader(world, replace(options, command=batch.command))
    print(READY, flush=True)
    for number, task in enumerate(batch.tasks):
        print(outcome_line(number, leader.attempt(task, part_of(task.output, batch.pid))), flush=True)
    leader.dismiss(0)


class Leader:
    """Rank 0 of a launch that runs one experiment after the other."""

    def __init__(self, world: World, options: RunOptions) -> None:
        self._world, self._options = world, options

    def attempt(self, task: Task, part: Path) -> PassOutcome:
        """One run, written to `part`; its file takes its name when it is complete."""
        attempted, options = Pass((task,)), replace(self._options, output=part, force=True)
        next_run = NextRun(most_ranks(task.experiment))
        try:
            self._world.from_server(lambda: next_run)
            status = run_together(self._world, next_run, lambda: task.experiment, options)
            assert status is not None
            if status.state in ENDED:
                part.replace(task.output)
            return PassOutcome(attempted, (status,))
        except SharedFailure as failure:
            reason = one_line(failure)
            return PassOutcome(attempted, (), reason, is_fatal="cannot be written" in reason)
        except OSError as error:
            return PassOutcome(attempted, (), one_line(error), is_fatal=True)
        finally:
            part.unlink(missing_ok=True)

    def dismiss(self, exit_code: int) -> None:
        """Tell the other ranks that there is no further run, and the exit code."""
        self._world.from_server(lambda: NextRun(0, exit_code))
