"""Time and waiting: a clock that may be stretched, and pauses that grow while nothing happens."""

from __future__ import annotations

import ctypes
import sys
import time

_PR_SET_TIMERSLACK = 29


class Clock:
    """Seconds of the experiment since the start, each of them `stretch` real ones long."""

    def __init__(self, stretch: float = 1.0) -> None:
        self._stretch, self._begun_s = stretch, time.perf_counter()

    def start(self) -> None:
        """It is zero now."""
        self._begun_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds of the experiment since the start."""
        return (time.perf_counter() - self._begun_s) / self._stretch

    def real_s(self, duration_s: float) -> float:
        """How long so many seconds of the experiment really take."""
        return duration_s * self._stretch


class Backoff:
    """Pauses from `shortest_s`, growing by half each time up to `longest_s`; `reset` when something happened."""

    def __init__(self, shortest_s: float, longest_s: float) -> None:
        self._shortest_s, self._longest_s = shortest_s, longest_s
        self._pause_s = shortest_s

    def reset(self) -> None:
        """Something happened: be quick again."""
        self._pause_s = self._shortest_s

    def pause(self, limit_s: float) -> None:
        """Nothing happened: sleep for a while, at most `limit_s`."""
        time.sleep(max(0.0, min(self._pause_s, limit_s)))
        self._pause_s = min(1.5 * self._pause_s, self._longest_s)


def sharpen_sleep() -> None:
    """Ask Linux to wake this process within a microsecond of the time asked for, not within 50."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)
