"""Time and waiting: a clock that may be stretched, and pauses that grow while nothing happens."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import NamedTuple

_PR_SET_TIMERSLACK = 29


class Cores(NamedTuple):
    """What the ranks of this machine have: a core each to spare, and an MPI that yields its core while it waits."""

    spare: bool
    yielded: bool


class Clock:
    """Seconds of the experiment since the start, each of them `stretch` real ones long."""

    def __init__(self, stretch: float = 1.0, starts_at_s: float = 0.0) -> None:
        self._stretch, self._starts_at_s = stretch, starts_at_s
        self.start()

    def start(self) -> None:
        """It is zero now, or what it is to start at."""
        self._begun_s = time.perf_counter() - self._starts_at_s * self._stretch

    def now_s(self) -> float:
        """Seconds of the experiment since the start."""
        return (time.perf_counter() - self._begun_s) / self._stretch

    def real_s(self, duration_s: float) -> float:
        """How long so many seconds of the experiment really take."""
        return duration_s * self._stretch


class Backoff:
    """Pauses from `shortest_s`, growing by half each time up to `longest_s`; `reset` when something happened.

    Where there are cores to spare, it spins for `spin_s` before the first sleep, whose wake-up takes 50 microseconds.
    """

    def __init__(self, shortest_s: float, longest_s: float, spin_s: float = 0.0) -> None:
        self._shortest_s, self._longest_s, self._spin_s = shortest_s, longest_s, spin_s
        self._pause_s, self._idle_s = shortest_s, 0.0

    def reset(self, shortest_s: float = 0.0) -> None:
        """Something happened: be quick again, but pause at least so long."""
        self._pause_s, self._idle_s = max(shortest_s, self._shortest_s), 0.0

    def pause(self, limit_s: float) -> None:
        """Nothing happened: sleep for a while, at most `limit_s`."""
        if self._spin_s and self._spins():
            return
        time.sleep(max(0.0, min(self._pause_s, limit_s)))
        self._pause_s = min(1.5 * self._pause_s, self._longest_s)

    def _spins(self) -> bool:
        """Let others have the core and look again, unless this has gone on for long."""
        now_s = time.perf_counter()
        self._idle_s = self._idle_s or now_s
        if now_s - self._idle_s > self._spin_s:
            return False
        os.sched_yield()
        return True


def sharpen_sleep() -> None:
    """Ask Linux to wake this process within a microsecond of the time asked for, not within 50."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)
