"""The start of a rank: what it tells `areabench launch` of its progress, and the time that MPI may take to start.

Worker ranks load this module, so it loads nothing that only the server needs.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from areabench.errors import UserError
from areabench.launching.families import StartedBy

FOLDER = "AREABENCH_LAUNCH"  # names the folder in which the ranks of one launch leave a file for each step they make
LIMIT = "AREABENCH_START_LIMIT"
_DEFAULT_LIMIT_S = 600  # 1,000 ranks on one machine take 100 s; a cluster's file system may take minutes more
SPOKEN = "spoken"  # step: a rank has said why all of them end
_LATER_S = 2  # that the other ranks leave the first one to speak: where it ends, most launchers end all


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


def start_limit_s(environment: Mapping[str, str]) -> int:
    """How long MPI may take to start on all ranks, in seconds."""
    text = environment.get(LIMIT) or str(_DEFAULT_LIMIT_S)
    if not text.isdecimal() or not 1 <= int(text) < 1_000_000:
        raise UserError(f"{LIMIT} = {text!r} is not a whole number of seconds from 1 to 999,999; correct or unset it")
    return int(text)


class StartLimit:
    """A context in which MPI starts; it ends this rank, with one line, where that takes longer than the limit.

    MPI_Init keeps Python's lock: no thread and no handler of this process runs until it returns. So a child of this
    process keeps the time. It ends the rank by a signal, because MPI reports that to the other ranks, unlike an exit.
    """

    def __init__(self, started: StartedBy | None, limit_s: int) -> None:
        self._started, self._limit_s, self._pipe, self._child = started, limit_s, -1, 0

    def __enter__(self) -> StartLimit:
        if self._started is not None:
            read_end, self._pipe = os.pipe()
            rank_process, self._child = os.getpid(), os.fork()
            if not self._child:
                os.close(self._pipe)
                _keep_time(read_end, rank_process, self._started, self._limit_s)
            os.close(read_end)
        return self

    def first_meeting(self) -> None:
        """MPI_Init has returned; the ranks meet for the first time."""
        if self._child:
            with suppress(OSError):  # the child was killed: the run needs it no longer
                os.write(self._pipe, b"!")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child:
            os.close(self._pipe)
            with suppress(ChildProcessError):
                os.waitpid(self._child, 0)


def _keep_time(pipe: int, rank_process: int, started: StartedBy, limit_s: int) -> None:
    """Wait until the rank closes the pipe or ends; at the limit, say so and end it. Does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard's goes to the rank too
        end_s, waits_for = time.monotonic() + limit_s + (_LATER_S if started.rank else 0), "in MPI_Init"
        while select.select([pipe], [], [], max(0.0, end_s - time.monotonic()))[0]:
            if not os.read(pipe, 1):
                os._exit(0)
            waits_for = "for the first meeting of all ranks"
        os.write(
            2,
            f"areabench: rank {started.rank} of {started.ranks} has waited {waits_for} for {limit_s:,} s, the limit, "
            f"and ends; a rank may have died: see the other lines; {LIMIT} sets another limit in seconds\n".encode(),
        )
        os.kill(rank_process, signal.SIGALRM)
    finally:
        os._exit(1)
