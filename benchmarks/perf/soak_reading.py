"""Reply latency and service time over time, from a run file of millions of events, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import Kind, Status
from areabench.runfile.layout import status_of

WINDOW_S = 60.0
_ROWS_A_BLOCK = 65_536  # 8 MB
SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Window:
    """The updates of one minute."""

    begin_s: float
    updates: int
    reply_s: tuple[float, ...]  # quantiles, by SHARES
    service_s: tuple[float, ...]

    @property
    def middle_s(self) -> float:
        """The middle of the minute."""
        return self.begin_s + WINDOW_S / 2


def read_windows(path: Path) -> tuple[list[Window], Status]:
    """The windows of a run in order, and how it ended; never more than a window and a block are in memory."""
    with h5py.File(path, "r") as file:
        windows = list(_windows(file["events"]))
        return windows, status_of(file)


def _windows(events: h5py.Dataset) -> Iterator[Window]:
    waiting: list[NDArray[Any]] = []
    number = 0
    for block in _blocks(events):
        numbers = (block["time_s"] // WINDOW_S).astype(int)
        for found in np.unique(numbers):
            if found != number and waiting:
                yield _window(number, np.concatenate(waiting))
                waiting = []
            number = int(found)
            waiting.append(block[numbers == found])
    if waiting:
        yield _window(number, np.concatenate(waiting))


def _blocks(events: h5py.Dataset) -> Iterator[NDArray[Any]]:
    """The updates, with the columns that are needed."""
    for begin in range(0, len(events), _ROWS_A_BLOCK):
        block = events[begin : begin + _ROWS_A_BLOCK]
        yield block[block["kind"] == Kind.UPDATE][["time_s", "reply_s", "service_s"]]


def _window(number: int, rows: NDArray[Any]) -> Window:
    reply_s = rows["reply_s"][np.isfinite(rows["reply_s"])]
    return Window(number * WINDOW_S, len(rows), _quantiles(reply_s), _quantiles(rows["service_s"]))


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(values, SHARES).tolist()) if len(values) else (np.nan,) * len(SHARES)
