"""The ranks of a launch that makes one run after the other: they follow rank 0, each run with fresh state.

Worker ranks load this module, so it loads nothing that only rank 0 needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from areabench.engine.events import Status
from areabench.experiment.experiment import Experiment
from areabench.transports.mpi_run import run_on_mpi
from areabench.transports.options import RunOptions
from areabench.transports.world import SharedFailure, World


class NextRun(NamedTuple):
    """What rank 0 tells the others: the most ranks that the next run can use, 0 after the last, and the exit code."""

    ranks: int
    exit_code: int = 0


def follow(world: World, options: RunOptions) -> int:
    """Any rank but 0: take part in one run after the other; the exit code that rank 0 gives."""
    nothing = NextRun(0)
    while (next_run := world.from_server(lambda: nothing)).ranks:
        with suppress(SharedFailure):  # rank 0 reports it
            run_together(world, next_run, _not_loaded_here, options)
    return next_run.exit_code


def run_together(world: World, next_run: NextRun, load: Callable[[], Experiment], options: RunOptions) -> Status | None:
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
