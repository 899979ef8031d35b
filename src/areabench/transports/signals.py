"""Signals: what makes a run write a checkpoint or stop, and what interrupts a sweep."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from types import FrameType, TracebackType

from areabench.host import Handlers, restore_handlers, set_handlers

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)  # of a run
LISTENING = "listening"  # step of a run: rank 0 acts on signals
BEGUN = "begun"  # all ranks have begun
INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # of a sweep; SIGHUP: the terminal is closed
_LEAST_PATIENCE_S = 10.0  # of a checkpoint with a client that does not answer
_PATIENCE_INTERVALS = 5


class CheckpointTriggers:
    """When a run writes a checkpoint: every `every_s` real seconds, and at a signal, some of which also stop the run.

    A context that handles the signals; a second SIGINT ends the run at once. Without an interval (None) there are no
    checkpoints, and signals keep their handlers. Open MPI's launcher sends SIGCONT a quarter of a second before
    SIGTERM, and SIGKILL a quarter of a second after it; so SIGCONT is the time to write a checkpoint.
    """

    def __init__(self, every_s: float | None) -> None:
        self.enabled = every_s is not None
        self._every_s = every_s or math.inf  # zero: only at a signal
        self._next_s = time.perf_counter() + self._every_s
        self.patience_s = max(_LEAST_PATIENCE_S, _PATIENCE_INTERVALS * self._every_s)  # with clients that do not answer
        self.stop_signal = ""  # name of the first signal that stops the run
        self.continued = False  # whether SIGCONT came
        self._before: Handlers = {}

    def __enter__(self) -> CheckpointTriggers:
        """Handle the signals; only a main thread can."""
        if self.enabled:
            self._before = set_handlers((*STOP_SIGNALS, signal.SIGCONT), self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the handlers; SIGUSR1, a warning before the end of a job, is ignored once the run is over."""
        restore_handlers(self._before)
        if self._before.get(signal.SIGUSR1) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, _nothing)  # not SIG_IGN, which processes that it starts would inherit

    def due(self) -> bool:
        """Whether the interval is over; if so, the next one begins now."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGCONT:
            self.continued = True
            return
        if self.stop_signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop_signal = self.stop_signal or signal.Signals(number).name


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


class Interrupts:
    """A context that notes SIGINT, SIGTERM and SIGHUP; `file` becomes readable at the first one."""

    def __init__(self) -> None:
        self.number = 0  # of the first signal
        self.file, self._write_end = os.pipe()
        self._before: Handlers = {}

    def __enter__(self) -> Interrupts:
        """Handle the signals; only a main thread can."""
        self._before = set_handlers((each for each in INTERRUPT_SIGNALS if not _under_nohup(each)), self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the handlers."""
        restore_handlers(self._before)
        for file in (self.file, self._write_end):
            with suppress(OSError):
                os.close(file)

    @property
    def exit_code(self) -> int:
        """The exit code that a shell expects of a process that a signal ended."""
        return 128 + self.number

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self.number:
            self.number = number
            os.write(self._write_end, b"!")


def _under_nohup(number: signal.Signals) -> bool:
    """Whether this is SIGHUP and it is ignored, as under `nohup`; then it stays ignored."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
