"""Interrupts that are noted and waited for, instead of being raised in the middle of something."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType

from areabench.hearing import Handlers, give_back, take_over

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last where the terminal is closed


class Interrupts:
    """Notes SIGINT, SIGTERM and SIGHUP while it is used as a context; `file` becomes readable at the first one."""

    def __init__(self) -> None:
        self.number = 0  # of the first signal that came
        self.file, self._note = os.pipe()
        self._before: Handlers = {}

    def __enter__(self) -> Interrupts:
        """Take the signals over; only a main thread can."""
        self._before = take_over((each for each in SIGNALS if not _under_nohup(each)), self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        give_back(self._before)
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
