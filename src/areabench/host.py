"""Which ranks of a launch are alive, as far as this machine can tell: their processes, by number and start time.

A launcher tells the death of a rank by signals that a scheduler sends at the walltime too, and some tell nothing;
the list of processes tells both apart. Of ranks on other machines nothing is known here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_DEAD = "ZXx"  # states of a process that has ended and was not yet waited for
_EXITING = 0x4  # among its flags: it closes its files, which others notice, and has not quite ended
_STATE, _FLAGS, _START = 0, 6, 19  # in /proc/PID/stat, behind the name


class Process(NamedTuple):
    """A process: where its number counts, the number, and when it began (in ticks of its machine; 0 if not known)."""

    machine: str
    pid: int
    began: int


def this_process() -> Process:
    """The process that asks."""
    return Process(this_machine(), os.getpid(), _began(os.getpid()) or 0)


def this_machine() -> str:
    """A name for where process numbers count: the host, and where there are containers, the container."""
    space = ""
    with suppress(OSError):
        space = str((_PROC / "self" / "ns" / "pid").readlink())
    return f"{os.uname().nodename} {space}".strip()


def is_alive(process: Process) -> bool:
    """Whether a process of this machine still runs; another one that has taken over its number does not count."""
    began = _began(process.pid)
    return began is not None and process.began in (0, began)


def _began(pid: int) -> int | None:
    """When a process began, in ticks; 0 where the system does not tell; None where there is no such process."""
    try:
        words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()  # the name may hold anything
    except ProcessLookupError:
        return None
    except OSError:
        return None if (_PROC / "self" / "stat").exists() else _answers(pid)
    return None if words[_STATE] in _DEAD or int(words[_FLAGS]) & _EXITING else int(words[_START])


def _answers(pid: int) -> int | None:
    """Where there is no /proc: 0 if there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # somebody else's
        return 0
    return 0


class Liveness:
    """The processes of all ranks, in their order, as one of them sees them."""

    def __init__(
        self,
        processes: Sequence[Process],
        rank: int,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        here = this_machine()
        self._near = {
            other: process for other, process in enumerate(processes) if process.machine == here and other != rank
        }
        self._every_s, self._clock, self._looked_s = every_s, clock, clock()
        self._launcher, self._server_gone = os.getppid(), False

    def gone(self) -> list[int]:
        """The ranks on this machine that have ended. Takes some ten microseconds for each of them."""
        return [rank for rank, process in self._near.items() if not is_alive(process)]

    def launcher_gone(self) -> bool:
        """Whether what has started this rank has ended: its children are given to another parent."""
        return os.getppid() != self._launcher

    def server_gone(self) -> bool:
        """For a worker's rank: whether rank 0 or the launcher has ended; looks once in `every_s`, so ask at will."""
        now_s = self._clock()
        if now_s - self._looked_s >= self._every_s and not self._server_gone:
            self._looked_s = now_s
            self._server_gone = self.launcher_gone() or (0 in self._near and not is_alive(self._near[0]))
        return self._server_gone
