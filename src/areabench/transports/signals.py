"""When a run interrupts its work: for a checkpoint each so many real seconds, and for good when a signal says so."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from types import FrameType, TracebackType

from areabench.host import Handlers, restore_handlers, set_handlers

STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Breaks:
    """Notes signals while it is used as a context; a second SIGINT ends the run at once.

    Without an interval there are no checkpoints at all, and signals do what they always do. Open MPI's launcher sends
    SIGCONT a quarter of a second before SIGTERM, and SIGKILL as long after it: the first is a moment to look around.
    """

    def __init__(self, every_s: float | None) -> None:
        self.enabled = every_s is not None
        self._every_s = every_s or math.inf  # zero: only when a signal says so
        self._next_s = time.perf_counter() + self._every_s
        self.signal = ""  # the first that came
        self.roused = False  # by SIGCONT
        self._before: Handlers = {}

    def __enter__(self) -> Breaks:
        """Take the signals over; only a main thread can."""
        if self.enabled:
            self._before = set_handlers((*STOPPING, signal.SIGCONT), self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        restore_handlers(self._before)

    def due(self) -> bool:
        """Whether it is time for a checkpoint; counts the next interval from now if so."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def _hear(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGCONT:
            self.roused = True
            return
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or signal.Signals(number).name


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last where the terminal is closed


class Interrupts:
    """Notes SIGINT, SIGTERM and SIGHUP while it is used as a context; `file` becomes readable at the first one."""

    def __init__(self) -> None:
        self.number = 0  # of the first signal that came
        self.file, self._note = os.pipe()
        self._before: Handlers = {}

    def __enter__(self) -> Interrupts:
        """Take the signals over; only a main thread can."""
        self._before = set_handlers((each for each in SIGNALS if not _under_nohup(each)), self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        restore_handlers(self._before)
        for file in (self.file, self._note):
            with suppress(OSError):
                os.close(file)

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended."""
        return 128 + self.number

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number = number
            os.write(self._note, b"!")


def _under_nohup(number: signal.Signals) -> bool:
    """Whether the terminal may be closed: `nohup` ignores that signal, and it stays ignored."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
