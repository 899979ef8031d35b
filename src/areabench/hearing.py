"""Signals that are handled for a while, and given back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

Handlers = dict[signal.Signals, Any]


def take_over(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Handlers:
    """Have signals handled so; what handled them before, for `give_back`. Only a main thread can: elsewhere none is."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {each: signal.signal(each, handler) for each in signals}


def give_back(before: Handlers) -> None:
    """Have signals handled as they were."""
    for each, handler in before.items():
        signal.signal(each, handler)
