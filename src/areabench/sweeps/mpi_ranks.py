"""The ranks of a launch that makes one run after the other: they follow rank 0, each run with fresh state.

Worker ranks load this module, so it loads nothing that only rank 0 needs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

from areabench.engine.events import Status
from areabench.experiment.parse import parse_experiment
from areabench.transports.mpi_run import run_on_mpi
from areabench.transports.options import RunOptions
from areabench.transports.world import SharedFailure, World


class Call(NamedTuple):
    """What rank 0 tells the others: the next experiment as TOML, or that there is none, and the exit code."""

    experiment: str
    exit_code: int = 0


def follow(world: World, around: RunOptions) -> int:
    """Any other rank: take part in one run after the other; the exit code that rank 0 gives."""
    nothing = Call("")
    while (call := world.of_server(lambda: nothing)).experiment:
        with suppress(SharedFailure):  # rank 0 tells it
            play(world, call, around)
    return call.exit_code


def play(world: World, call: Call, around: RunOptions) -> Status | None:
    """One run on as many ranks as it can use, with messages of its own; None on the ranks that it leaves idle."""
    experiment = parse_experiment(call.experiment)
    part = world.first(experiment.clients.count + 1)
    if part is None:
        return None
    try:
        status, _ = run_on_mpi(lambda: experiment, around, part, began_at=time.time())
    except SharedFailure:
        part.leave()  # together; after any other failure some ranks are not there to leave, and all are ended
        raise
    part.leave()
    return status
