"""Which ranks of a launch are alive, as far as this machine can tell: their processes, by number and start time.

A launcher tells the death of a rank by signals that a scheduler sends at the walltime too, and some tell nothing;
the list of processes tells both apart. Of ranks on other machines nothing is known here.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


def peak_bytes(who: int) -> int:
    """The most memory that this process (RUSAGE_SELF), or the largest of its children that ended, has taken."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(who).ru_maxrss * unit


_IMPORTED_AT = time.time()
_PROC = Path("/proc")


@dataclass(frozen=True)
class Footprint:
    """One rank during one run; shares are of the real time that the run took."""

    host: str
    cores: frozenset[int]  # that it may use, by number
    busy: float  # share of the time in which it used a core
    waited: float  # share in which it wanted one and had to wait; NaN where the system does not tell
    memory_bytes: int  # its fair part of shared pages included


class Meter:
    """Measures a rank from now on."""

    def __init__(self) -> None:
        self._wall_s, self._busy_s, self._waited_s = time.perf_counter(), time.process_time(), _waited_s()

    def read(self, host: str) -> Footprint:
        """What this rank has taken since."""
        wall_s = max(time.perf_counter() - self._wall_s, 1e-9)
        busy, waited = time.process_time() - self._busy_s, _waited_s() - self._waited_s
        return Footprint(host, own_cores(), busy / wall_s, waited / wall_s, memory_bytes())


@dataclass(frozen=True)
class HostLoad:
    """A host's cores, and the share of them that its ranks used; NaN where not known."""

    cores: int = 0
    load: float = math.nan


def fullest_host(footprints: Sequence[Footprint]) -> HostLoad:
    """The host whose cores are used most."""
    hosts = {one.host for one in footprints}
    loads = [_host_load([one for one in footprints if one.host == host]) for host in sorted(hosts)]
    return max(loads, key=lambda host: host.load, default=HostLoad())


def _host_load(ranks: Sequence[Footprint]) -> HostLoad:
    cores = len(frozenset[int]().union(*(rank.cores for rank in ranks)))
    return HostLoad(cores, sum(rank.busy for rank in ranks) / max(cores, 1))


def memory_bytes() -> int:
    """The memory of this process, shared pages divided among those who share them; else the most it ever took."""
    try:
        found = re.search(r"^Pss:\s*(\d+) kB", (_PROC / "self" / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return 1024 * int(found[1]) if found else peak_bytes(resource.RUSAGE_SELF)


def process_began_at() -> float:
    """When this process began, as a Unix time; when this module was imported where the system does not tell."""
    try:
        ticks = int((_PROC / "self" / "stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED_AT
    began_at = time.time() - age_s
    return began_at if began_at <= _IMPORTED_AT else _IMPORTED_AT


def _waited_s() -> float:
    """How long this process has waited for a core so far, in seconds; NaN where the system does not tell."""
    try:
        return int((_PROC / "self" / "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


def own_cores() -> frozenset[int]:
    """The cores that this process may use, by number; all where the system does not tell."""
    every = range(os.cpu_count() or 1)
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else every)


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


Handlers = dict[signal.Signals, Any]


def take_over(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Handlers:
    """Have signals handled so; what handled them before, for `give_back`. Only a main thread can: elsewhere none is."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {each: signal.signal(each, handler) for each in signals}


def give_back(before: Handlers) -> None:
    """Have signals handled as they were."""
    for each, handler in before.items():
        signal.signal(each, handler)
