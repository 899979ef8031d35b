"""Facts of this machine: what a rank uses of it, which processes are alive, and who handles signals.

psutil gives what it knows exactly. Three facts are read from /proc instead, because psutil lacks them or is coarser:
that a process has begun to exit, the time that a process has waited for a core, and start times finer than a second.
"""

from __future__ import annotations

import math
import os
import pwd
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from areabench.errors import UserError

_IMPORTED_AT = time.time()
_PROC = Path("/proc")

# ---------------------------------------------------------------------------------------------------- cores, memory


def own_cores() -> frozenset[int]:
    """The cores that this process may use, by number; all of them where the system does not say."""
    every = range(os.cpu_count() or 1)
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else every)


def memory_bytes() -> int:
    """The memory of this process, shared pages divided among those that share them; else the most it ever took."""
    import psutil  # needed once per run: a rank that computes has not loaded it before

    with suppress(psutil.Error, OSError, AttributeError):  # a system that does not say
        used = psutil.Process().memory_full_info()
        return int(getattr(used, "pss", used.uss))
    return peak_bytes(resource.RUSAGE_SELF)


def peak_bytes(who: int) -> int:
    """The most memory that this process (RUSAGE_SELF), or the largest of its children that ended, has taken."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(who).ru_maxrss * unit


def _waited_s() -> float:
    """How long this process has waited for a core so far, in seconds; NaN where the system does not say."""
    try:
        return int((_PROC / "self" / "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


@dataclass(frozen=True)
class Footprint:
    """What one rank used during one run; shares are of the real time that the run took."""

    host: str
    cores: frozenset[int]  # that it may use, by number
    busy: float  # share of the time in which it used a core
    waited: float  # share of the time in which it waited for a core; NaN where the system does not say
    memory_bytes: int


class Meter:
    """Measures the footprint of this rank from now on."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._busy_s = time.process_time()
        self._waited_s = _waited_s()

    def read(self, host: str) -> Footprint:
        """The footprint since this meter was made."""
        took_s = max(time.perf_counter() - self._began_s, 1e-9)
        busy_s = time.process_time() - self._busy_s
        waited_s = _waited_s() - self._waited_s
        return Footprint(host, own_cores(), busy_s / took_s, waited_s / took_s, memory_bytes())


@dataclass(frozen=True)
class HostLoad:
    """The number of a host's cores and the share of them that its ranks used; NaN where not known."""

    cores: int = 0
    load: float = math.nan


def fullest_host(footprints: Sequence[Footprint]) -> HostLoad:
    """The load of the host whose cores are used most."""
    loads = []
    for host in sorted({rank.host for rank in footprints}):
        ranks = [rank for rank in footprints if rank.host == host]
        cores = len(frozenset[int]().union(*(rank.cores for rank in ranks)))
        loads.append(HostLoad(cores, sum(rank.busy for rank in ranks) / max(cores, 1)))
    return max(loads, key=lambda host: host.load, default=HostLoad())


# ---------------------------------------------------------------------------------------------------- home


def spare_home() -> Path:
    """A home folder where HOME is not set: the user's own, or a temporary one that only this user can write."""
    import tempfile  # hardly ever needed

    with suppress(KeyError):  # the system does not know this user, as in some containers
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        if home.is_dir() and os.access(home, os.W_OK):
            return home
    folder = Path(tempfile.gettempdir()) / f"areabench-home-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return folder
    raise UserError(f"HOME is not set, and {folder} cannot be used instead; set HOME to a folder of your own")


# ---------------------------------------------------------------------------------------------------- processes

_ENDED = "ZXx"  # states of a process that has ended and that its parent has not waited for
_EXITING = 0x4  # flag of a process that is closing its files, which its peers notice before it has ended
_STATE = 0  # fields of /proc/PID/stat after the name
_FLAGS = 6
_START = 19
_LOOK_EVERY_S = 1.0


class Process(NamedTuple):
    """A process: its machine, its number there, and its start time (in ticks of that machine; 0 if not known)."""

    machine: str
    pid: int
    began: int


def this_process() -> Process:
    """The calling process."""
    return Process(this_machine(), os.getpid(), start_ticks(os.getpid()) or 0)


def this_machine() -> str:
    """A name for the space in which process numbers are unique: the host, and the container where there are any."""
    space = ""
    with suppress(OSError):
        space = str((_PROC / "self" / "ns" / "pid").readlink())
    return f"{os.uname().nodename} {space}".strip()


def is_alive(process: Process) -> bool:
    """Whether a process of this machine still runs; a later process with the same number does not count."""
    # Systems use process numbers again, so that the start time must be the same too where it is known.
    began = start_ticks(process.pid)
    return began is not None and process.began in (0, began)


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks; 0 where the system does not say; None if there is no such process.

    Reads one line in some ten microseconds, where psutil takes several files; and psutil does not report the flag of a
    process that is exiting, so that it would be taken for alive when its connections are closed already.
    """
    try:
        words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()  # the name may contain anything
    except ProcessLookupError:
        return None
    except OSError:
        if (_PROC / "self" / "stat").exists():
            return None
        import psutil

        if not psutil.pid_exists(pid):
            return None
        return 0
    if words[_STATE] in _ENDED or int(words[_FLAGS]) & _EXITING:
        return None
    return int(words[_START])


def process_began_at() -> float:
    """When this process started, as a Unix time; when this module was imported where the system does not say.

    psutil's start times are exact to a second only: they rest on the time of boot, which the system rounds.
    """
    ticks = start_ticks(os.getpid())
    if not ticks:
        return _IMPORTED_AT
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return min(time.time() - age_s, _IMPORTED_AT)


class Liveness:
    """Which ranks of a launch are alive, as one of them sees it; of ranks on other machines it knows nothing.

    A launcher reports the death of a rank by signals that a scheduler also sends at the time limit, and some launchers
    report nothing. The list of processes distinguishes the two.
    """

    def __init__(self, processes: Sequence[Process], rank: int, clock: Callable[[], float] = time.monotonic) -> None:
        here = this_machine()
        self._near = {
            other: process for other, process in enumerate(processes) if process.machine == here and other != rank
        }
        self._clock = clock
        self._looked_s = clock()
        self._launcher = os.getppid()
        self._server_gone = False

    def gone(self) -> list[int]:
        """The ranks on this machine that have ended; takes some ten microseconds per rank."""
        return [rank for rank, process in self._near.items() if not is_alive(process)]

    def launcher_gone(self) -> bool:
        """Whether the process that started this rank has ended: its children get another parent."""
        return os.getppid() != self._launcher

    def server_gone(self) -> bool:
        """Whether rank 0 or the launcher has ended, for a worker's rank; cheap, as it looks once per second."""
        now_s = self._clock()
        if now_s - self._looked_s >= _LOOK_EVERY_S and not self._server_gone:
            self._looked_s = now_s
            self._server_gone = self.launcher_gone() or (0 in self._near and not is_alive(self._near[0]))
        return self._server_gone


# ---------------------------------------------------------------------------------------------------- signals

Handlers = dict[signal.Signals, Any]


def set_handlers(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Handlers:
    """Handle signals with `handler`; the handlers before, for `restore_handlers`. Outside the main thread: none."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {each: signal.signal(each, handler) for each in signals}


def restore_handlers(before: Handlers) -> None:
    """Handle signals as before `set_handlers`."""
    for each, handler in before.items():
        signal.signal(each, handler)
