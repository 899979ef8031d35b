"""The steps that the ranks of a launch report to the launching process: a file for each, in a folder that both know.

Worker ranks load this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

FOLDER = "AREABENCH_LAUNCH"  # names the folder, for processes of `areabench launch` on its machine
REPORTED = "reported"  # a rank has said why all of them end; the steps of a run are in transports.signals
START_LIMIT_S = 600  # for MPI to start: 1,000 ranks on one machine take 100 s, a cluster's file system minutes more


def rank_step(rank: int) -> str:
    """The step of a rank that is about to start MPI."""
    return f"rank-{rank}"


def reporter(environment: Mapping[str, str]) -> Callable[[str], None]:
    """A function that notes a step for the launching process; without one it does nothing."""
    folder = environment.get(FOLDER, "")

    def report(step: str) -> None:
        with suppress(OSError):  # ranks on other machines have no such folder
            if folder:
                Path(folder, step).touch()

    return report
