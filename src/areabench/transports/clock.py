"""Time and waiting: a clock that may be stretched, and pauses that grow while nothing happens."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_PR_SET_TIMERSLACK = 29
_PR_GET_TIMERSLACK = 30


class Cores(NamedTuple):
    """Whether each rank of this machine has a core of its own, and whether MPI yields the core while it waits."""

    spare: bool
    yielded: bool


class RealClock:
    """Seconds of the experiment since the start; each takes `stretch` real seconds."""

    def __init__(self, stretch: float = 1.0, starts_at_s: float = 0.0) -> None:
        self._stretch = stretch
        self._starts_at_s = starts_at_s
        self.start()

    def start(self) -> None:
        """Start at zero, or at the time that was given."""
        self._begun_s = time.perf_counter() - self._starts_at_s * self._stretch

    def now_s(self) -> float:
        """Seconds of the experiment since the start."""
        return (time.perf_counter() - self._begun_s) / self._stretch

    def real_s(self, duration_s: float) -> float:
        """Real seconds that a duration of the experiment takes."""
        return duration_s * self._stretch


class Backoff:
    """Pauses that grow by half each time from `shortest_s` to `longest_s`; `reset` after something happened.

    Where cores are spare it spins for `spin_s` before the first sleep, because waking up takes 50 microseconds.
    """

    def __init__(self, shortest_s: float, longest_s: float, spin_s: float = 0.0) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._spin_s = spin_s
        self._pause_s = shortest_s
        self._idle_s = 0.0

    def reset(self, shortest_s: float = 0.0) -> None:
        """Something happened: begin with short pauses again, of at least `shortest_s`."""
        self._pause_s = max(shortest_s, self._shortest_s)
        self._idle_s = 0.0

    def pause(self, limit_s: float) -> None:
        """Nothing happened: sleep for at most `limit_s`."""
        if self._spin_s and self._spins():
            return
        time.sleep(max(0.0, min(self._pause_s, limit_s)))
        self._pause_s = min(1.5 * self._pause_s, self._longest_s)

    def _spins(self) -> bool:
        """Yield the core instead of a sleep, unless nothing has happened for `spin_s`."""
        now_s = time.perf_counter()
        self._idle_s = self._idle_s or now_s
        if now_s - self._idle_s > self._spin_s:
            return False
        os.sched_yield()
        return True


def sharpen_sleep() -> None:
    """Ask Linux to end sleeps within one microsecond of the time asked for instead of 50."""
    _set_timer_slack(1000)


@contextmanager
def lengthened_sleep() -> Iterator[None]:
    """A context in which Linux may end sleeps of this thread 5 ms late: for code that looks again after each sleep."""
    before = ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0) if sys.platform == "linux" else 0
    _set_timer_slack(5_000_000)
    try:
        yield
    finally:
        _set_timer_slack(before)


def _set_timer_slack(nanoseconds: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0)
