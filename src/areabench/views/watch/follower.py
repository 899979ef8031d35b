"""Follows a run file from frame to frame: its speed, its quality, and whether its process still writes."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from areabench.engine.events import State
from areabench.errors import RunFileError, UserError
from areabench.views.watch.frame import KILLED, WAITING, Frame, watch_frame
from areabench.views.watch.quality import Evaluator, Quality, recorded_quality
from areabench.views.watch.tail import Observation, Tail, Writer

_SPEED_OVER_S = 10.0  # of real time
_FIRST_EVALUATION_S = 30.0  # that a single frame waits for
_LAST_MODEL_ONLY = "the run keeps its last model only, and evaluates at its end"


class Follower:
    """Makes one frame after another of a run file."""

    def __init__(
        self,
        path: Path,
        wait_s: float,
        evaluator: Evaluator | None,
        *,
        once: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._wait_s = wait_s
        self._evaluator = evaluator
        self._clock = clock
        self.once = once  # whether there is one frame, which has to wait for what it shows
        self._tail = Tail(path)
        self._news_s = clock()
        self._state = (0, 0.0)  # size and time of the file at the last news
        self._passed: deque[tuple[float, float]] = deque()  # real time, the run's time
        self._unreadable_s: float | None = None  # since when the file cannot be read
        self._gone_before = False
        self._last: Frame | None = None

    def frame(self) -> Frame:
        """The present frame; a UserError where there was no file, or no news, for too long."""
        try:
            seen = self._tail.observe(None if self._evaluator is None else self._evaluator.last_version())
        except RunFileError as error:
            return self._unreadable(error)
        self._unreadable_s = None
        frame = watch_frame(str(self._path), seen, self._speed(seen), time.time(), *self._quality(seen))
        self._last = self._judged(frame, seen)
        return self._last

    def _unreadable(self, error: RunFileError) -> Frame:
        """The frame where the file is not there yet, or a file system lags behind."""
        now_s = self._clock()
        self._unreadable_s = now_s if self._unreadable_s is None else self._unreadable_s
        waited_s = now_s - self._unreadable_s
        if waited_s >= self._wait_s:
            waited = f" (waited {waited_s:.0f} s; --wait is longer)" if self._wait_s else ""
            raise UserError(f"{error}{waited}") from error
        reason = f"for a file that can be read: {error}" if self._path.exists() else f"for {self._path} to be written"
        return _waiting(self._path, f"{reason} ({waited_s:.0f} s of {self._wait_s:g})", self._last)

    def _judged(self, frame: Frame, seen: Observation) -> Frame:
        """A run whose process has ended without a final state was killed; its launcher may still write why."""
        now_s = self._clock()
        if (state := (seen.size_bytes, seen.written_at)) != self._state:
            self._state = state
            self._news_s = now_s
        if seen.status.state != State.RUNNING or seen.writer == Writer.THERE:
            self._gone_before = False
            return frame
        if seen.writer == Writer.GONE:
            certain = self._gone_before or self.once
            self._gone_before = True
            return replace(frame, state=KILLED, reason="its process has ended") if certain else frame
        silent_s = now_s - self._news_s
        if silent_s >= self._wait_s and not self.once:
            raise UserError(
                f"{self._path}: nothing new for {silent_s:.0f} s, and its writer cannot be seen from here: it was "
                "killed, or computes for long, or the file system lags; wait longer with --wait"
            )
        return replace(frame, reason=frame.reason or "its writer cannot be seen from here")

    def _speed(self, seen: Observation) -> float:
        """Seconds of the run per second of real time, lately; NaN for the first frame."""
        now_s = self._clock()
        time_s = seen.time_s
        if self._passed and time_s < self._passed[-1][1]:
            self._passed.clear()  # another run has replaced it
        self._passed.append((now_s, time_s))
        while len(self._passed) > 2 and self._passed[1][0] <= now_s - _SPEED_OVER_S:
            self._passed.popleft()
        first = self._passed[0]
        return (time_s - first[1]) / (now_s - first[0]) if now_s > first[0] else math.nan

    def _quality(self, seen: Observation) -> tuple[Quality | None, str]:
        """Quality of the last snapshot that was evaluated, by the run itself or here; else why there is none."""
        if self._evaluator is not None:
            self._evaluator.follow(seen.facts.experiment)
        if seen.snapshot is not None and seen.metrics is not None:
            return recorded_quality(seen.snapshot, seen.metrics), ""
        if self._evaluator is None:
            return None, "not evaluated while the run continues: --no-evaluate"
        if seen.facts.experiment.record.models == "last":
            return None, _LAST_MODEL_ONLY
        if seen.snapshot is not None and seen.model is not None:
            beside_clock = seen.facts.transport == "mpi" and os.uname().nodename in seen.facts.hosts
            self._evaluator.offer(seen.facts.experiment, seen.snapshot, seen.model, beside_clock=beside_clock)
        if self.once:
            self._evaluator.wait(_FIRST_EVALUATION_S)
        remark = f"not evaluated: {self._evaluator.trouble}" if self._evaluator.trouble else ""
        return self._evaluator.latest, remark or ("" if self._evaluator.latest else "being evaluated")


def _waiting(path: Path, reason: str, last: Frame | None) -> Frame:
    """A frame of a run that cannot be read; what was known of it before stays."""
    if last is not None:
        return replace(last, state=WAITING, reason=reason)
    return Frame(str(path), WAITING, reason)
