"""How a long command ends when it is interrupted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


def run_interruptible(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a command that continues where it was interrupted; SIGTERM interrupts it too, so that it cleans up."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted; the same command continues from here", file=sys.stderr)
        sys.exit(130)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt
