"""A live progress line on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
import time

_REFRESH_S = 0.2


class ProgressLine:
    """One line that is written over itself, at most five times a second."""

    def __init__(self, label: str, horizon_s: float | None, *, visible: bool) -> None:
        self._label, self._visible = label, visible
        self._of = f" / {horizon_s:g}" if horizon_s is not None else ""
        self._begun_s, self._next_s = time.perf_counter(), 0.0

    def __call__(self, time_s: float, updates: int) -> None:
        """Show the run's time and count, if it is time to."""
        if self._visible and (now_s := time.perf_counter()) >= self._next_s:
            self._next_s = now_s + _REFRESH_S
            rate = updates / max(time_s, 1e-9)
            self._write(f"{self._label:<12} {time_s:7.1f}{self._of} s  {updates:>9,} updates  {rate:>8,.0f}/s")

    def close(self) -> None:
        """Take the line away."""
        if self._visible:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<78}" + ("" if text else "\r"))
        sys.stderr.flush()
