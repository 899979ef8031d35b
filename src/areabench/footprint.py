"""What a rank takes of its machine: memory, cores, and time that it waited for one. Linux tells all of it."""

from __future__ import annotations

import math
import os
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.memory import peak_bytes

_IMPORTED_AT = time.time()
_PROC = Path("/proc/self")


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
        found = re.search(r"^Pss:\s*(\d+) kB", (_PROC / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return 1024 * int(found[1]) if found else peak_bytes(resource.RUSAGE_SELF)


def process_began_at() -> float:
    """When this process began, as a Unix time; when this module was imported where the system does not tell."""
    try:
        ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED_AT
    began_at = time.time() - age_s
    return began_at if began_at <= _IMPORTED_AT else _IMPORTED_AT


def _waited_s() -> float:
    """How long this process has waited for a core so far, in seconds; NaN where the system does not tell."""
    try:
        return int((_PROC / "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return math.nan


def own_cores() -> frozenset[int]:
    """The cores that this process may use, by number; all where the system does not tell."""
    every = range(os.cpu_count() or 1)
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else every)
