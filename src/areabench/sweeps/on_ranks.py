"""A launch that makes one run after the other: rank 0 leads, the other ranks follow it, each run with fresh state.

Worker ranks load this module, so it loads nothing that only rank 0 needs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from areabench.engine.client import most_ranks
from areabench.engine.events import Status
from areabench.errors import one_line
from areabench.experiment.experiment import Experiment
from areabench.sweeps.passes import Pass, PassOutcome, Task, parts_of, published
from areabench.transports.mpi_run import run_on_mpi
from areabench.transports.options import RunOptions
from areabench.transports.signals import Interrupts
from areabench.transports.world import SharedFailure, World


class NextRun(NamedTuple):
    """What rank 0 tells the others: the most ranks that the next run can use, 0 after the last, and the exit code."""

    ranks: int
    exit_code: int = 0


def lead_batch(file: Path, world: World, options: RunOptions) -> None:
    """Rank 0: make all runs of a batch, and print one line for each as it ends."""
    from areabench.sweeps.mpi import READY, outcome_line, read_batch

    batch = read_batch(file)
    leader = Leader(world, replace(options, command=batch.command))
    print(READY, flush=True)
    for number, task in enumerate(batch.tasks):
        print(outcome_line(number, leader.attempt(task, batch.pid)), flush=True)
    leader.dismiss(0)


class Leader:
    """Rank 0 of a launch that runs one experiment after the other."""

    def __init__(self, world: World, options: RunOptions) -> None:
        self._world = world
        self._options = options

    def run(self, passes: Sequence[Pass], interrupts: Interrupts) -> Generator[PassOutcome]:
        """Make all runs in their order, until there is an interrupt."""
        for each in passes:
            if interrupts.number:
                return
            yield self.attempt(each.tasks[0], os.getpid())

    def attempt(self, task: Task, pid: int) -> PassOutcome:
        """One run; until it is complete, process `pid` knows the name of its file."""
        attempted = Pass((task,))
        next_run = NextRun(most_ranks(task.experiment))
        with parts_of(attempted, pid) as parts:
            try:
                # The others wait for this, so nothing that can fail may stand before it.
                self._world.from_server(lambda: next_run)
                options = replace(self._options, output=parts[0], force=True)
                status = _run_together(self._world, next_run, lambda: task.experiment, options)
                assert status is not None
                return published(attempted, parts, [status])
            except SharedFailure as failure:
                reason = one_line(failure)
                return PassOutcome(attempted, (), reason, is_fatal="cannot be written" in reason)
            except OSError as error:
                return PassOutcome(attempted, (), one_line(error), is_fatal=True)

    def dismiss(self, exit_code: int) -> None:
        """Tell the other ranks that there is no further run, and the exit code."""
        self._world.from_server(lambda: NextRun(0, exit_code))


def follow(world: World, options: RunOptions) -> int:
    """Any rank but 0: take part in one run after the other; the exit code that rank 0 gives."""
    nothing = NextRun(0)
    while (next_run := world.from_server(lambda: nothing)).ranks:
        with suppress(SharedFailure):  # rank 0 reports it
            _run_together(world, next_run, _not_loaded_here, options)
    return next_run.exit_code


def _run_together(
    world: World, next_run: NextRun, load: Callable[[], Experiment], options: RunOptions
) -> Status | None:
    """One run on as many ranks as it can use, with messages of its own; None on the ranks that it leaves idle.

    Rank 0 alone loads the experiment.
    """
    part = world.first(next_run.ranks)
    if part is None:
        return None
    try:
        status = run_on_mpi(load, options, part, began_at=time.time()).status
    except SharedFailure:
        part.leave()  # together; after any other failure some ranks are not there to leave, and all are ended
        raise
    part.leave()
    return status


def _not_loaded_here() -> Experiment:
    raise AssertionError("rank 0 loads the experiment")
