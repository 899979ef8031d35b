"""From one look to the next: what is new, how fast the run goes, and whether it has ended or was killed."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from areabench.errors import RunFileError, UserError
from areabench.schema import State
from areabench.watching.frame import KILLED, WAITING, Frame, Rates, Staleness, frame_of
from areabench.watching.quality import Evaluator, Quality, recorded_quality
from areabench.watching.tail import Look, Tail, Writer

_SPEED_OVER_S = 10.0  # of our time
_FIRST_EVALUATION_S = 30.0  # that a single look waits for
_LAST_MODEL_ONLY = "the run keeps its last model only, and evaluates at its end"


class Follower:
    """Looks at a run file again and again."""

    def __init__(
        self,
        path: Path,
        wait_s: float,
        evaluator: Evaluator | None,
        *,
        once: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._wait_s, self._evaluator, self._once, self._clock = path, wait_s, evaluator, once, clock
        self._tail = Tail(path)
        self._news_s, self._seen = clock(), (0, 0.0)
        self._passed: deque[tuple[float, float]] = deque()  # our time, the run's time
        self._troubled_s: float | None = None  # since when no look was possible
        self._gone_before = False
        self._last: Frame | None = None

    def look(self) -> Frame:
        """The frame of now; a UserError where there was no file, or no news, for too long."""
        try:
            look = self._tail.look(None if self._evaluator is None else self._evaluator.other_than())
        except RunFileError as error:
            return self._without(error)
        self._troubled_s = None
        frame = frame_of(str(self._path), look, self._speed(look), time.time(), self._quality(look))
        self._last = self._judged(frame, look)
        return self._last

    def _without(self, error: RunFileError) -> Frame:
        """No look was possible: the file is not there yet, or a file system lags behind."""
        now_s = self._clock()
        self._troubled_s = now_s if self._troubled_s is None else self._troubled_s
        waited_s = now_s - self._troubled_s
        if waited_s >= self._wait_s:
            waited = f" (waited {waited_s:.0f} s; --wait is longer)" if self._wait_s else ""
            raise UserError(f"{error}{waited}") from error
        there = self._path.exists()
        reason = f"for a file that can be read: {error}" if there else f"for {self._path} to be written"
        return _waiting(self._path, f"{reason} ({waited_s:.0f} s of {self._wait_s:g})", self._last)

    def _judged(self, frame: Frame, look: Look) -> Frame:
        """A run whose writer has gone without a word was killed: but who has started it may yet say why."""
        now_s = self._clock()
        if (seen := (look.size_bytes, look.written_at)) != self._seen:
            self._seen, self._news_s = seen, now_s
        if look.status.state != State.RUNNING or look.writer == Writer.THERE:
            self._gone_before = False
            return frame
        if look.writer == Writer.GONE:
            certain, self._gone_before = self._gone_before or self._once, True
            return replace(frame, state=KILLED, reason="its process is gone") if certain else frame
        silent_s = now_s - self._news_s
        if silent_s >= self._wait_s and not self._once:
            raise UserError(
                f"{self._path}: no news for {silent_s:.0f} s, and its writer cannot be seen from here: it was killed, "
                "or computes for long, or the file system lags; wait longer with --wait"
            )
        return replace(frame, reason=frame.reason or "its writer cannot be seen from here")

    def _speed(self, look: Look) -> float:
        """Seconds of the run in a second of ours, lately; NaN at the first look."""
        now_s, time_s = self._clock(), look.time_s
        if self._passed and time_s < self._passed[-1][1]:
            self._passed.clear()  # another run in its place
        self._passed.append((now_s, time_s))
        while len(self._passed) > 2 and self._passed[1][0] <= now_s - _SPEED_OVER_S:
            self._passed.popleft()
        first = self._passed[0]
        return (time_s - first[1]) / (now_s - first[0]) if now_s > first[0] else float("nan")

    def _quality(self, look: Look) -> tuple[Quality | None, str]:
        """Of the last snapshot that was evaluated, by the run itself or here; and why there is none."""
        if self._evaluator is not None:
            self._evaluator.follow(look.about.experiment)
        if look.snapshot is not None and look.metrics is not None:
            return recorded_quality(look.snapshot, look.metrics), ""
        if self._evaluator is None:
            return None, "not evaluated while the run goes on: --no-evaluate"
        if look.about.experiment.record.models == "last":
            return None, _LAST_MODEL_ONLY
        if look.snapshot is not None and look.model is not None:
            beside_clock = look.about.transport == "mpi" and os.uname().nodename in look.about.hosts
            self._evaluator.offer(look.about.experiment, look.snapshot, look.model, beside_clock=beside_clock)
        if self._once:
            self._evaluator.wait(_FIRST_EVALUATION_S)
        remark = f"not evaluated: {self._evaluator.trouble}" if self._evaluator.trouble else ""
        return self._evaluator.latest, remark or ("" if self._evaluator.latest else "being evaluated")


def _waiting(path: Path, reason: str, last: Frame | None) -> Frame:
    """A frame of a run that cannot be seen; what was seen of it before stays."""
    if last is not None:
        return replace(last, state=WAITING, reason=reason)
    nan = float("nan")
    return Frame(
        file=str(path), state=WAITING, reason=reason, name="", method="", step_size=nan, setting="", transport="",
        ranks=0, time_s=0.0, horizon_s=None, iterations=None, progress=None, speed=nan, left_s=nan, updates=None,
        server_steps=None, discarded=None, refused=None, lost=None, rates=Rates(nan, nan, nan),
        staleness=Staleness(nan, ()), snapshots=0, quality=None, quality_remark="", clients=(), counted=False,
        size_bytes=0, age_s=nan,
    )  # fmt: skip
