"""What the events of a run come to, counted block by block as they reach the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.errors import RunFileError
from areabench.opening import damaged, whole_events
from areabench.schema import EVENT, Kind

WINDOW_S = 10.0  # of the run's time: what counts as recent
_ROWS_A_READ = 65_536


class Counts:
    """Counts of the first `read_so_far` events."""

    def __init__(self, clients: int) -> None:
        self.read_so_far = 0
        self.kinds = np.zeros(len(Kind), np.int64)
        self.served = np.zeros(clients, np.int64)
        self.staleness = np.zeros(0, np.int64)  # how many updates were 0, 1, 2, ... versions old
        self.lost: tuple[int, ...] = ()
        self.last_time_s = 0.0
        self._recent_s = np.zeros(0)  # times of the updates in the window

    def read(self, path: Path, events: h5py.Dataset) -> None:
        """Count the events that are new; the last rows may be there without their content, and are left for later."""
        total = len(events)
        while self.read_so_far < total:
            rows = events[self.read_so_far : min(self.read_so_far + _ROWS_A_READ, total)]
            _check(path, rows, len(self.served), total)
            whole = whole_events(rows)
            self._add(rows[:whole])
            if whole < len(rows):
                break

    def take(self, staleness: NDArray[np.int64], served: NDArray[np.int64]) -> None:
        """Counts that the run made itself, where it kept no events."""
        self.staleness, self.served = staleness, served
        self.kinds[Kind.UPDATE] = served.sum()

    @property
    def updates(self) -> int:
        """Updates used."""
        return int(self.kinds[Kind.UPDATE])

    def recent_rate(self, time_s: float) -> float:
        """Updates a second of the run's time in the window before `time_s`; NaN at the start."""
        window_s = min(WINDOW_S, time_s)
        return float(np.count_nonzero(self._recent_s > time_s - window_s)) / window_s if window_s > 0 else np.nan

    def _add(self, rows: NDArray[Any]) -> None:
        if not len(rows):
            return
        used = rows[rows["kind"] == Kind.UPDATE]
        self.read_so_far += len(rows)
        self.kinds += np.bincount(rows["kind"], minlength=len(Kind))
        self.served += np.bincount(used["client"], minlength=len(self.served))
        self.staleness = _summed(self.staleness, np.bincount(used["staleness"]))
        self.lost += tuple(rows["client"][rows["kind"] == Kind.LOST].tolist())
        self.last_time_s = float(rows["time_s"][-1])
        times_s = np.concatenate([self._recent_s, used["time_s"]])
        self._recent_s = times_s[times_s > self.last_time_s - WINDOW_S]


def _summed(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.zeros(max(len(first), len(second)), np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def _check(path: Path, rows: NDArray[Any], clients: int, events: int) -> None:
    """Refuse what no run writes, before it is counted."""
    if rows.dtype != EVENT:
        raise damaged(path, f"/events has columns {rows.dtype.names}, expected {EVENT.names}")
    used = rows[rows["kind"] == Kind.UPDATE]
    limits = {"kind": (rows, max(Kind)), "client": (used, clients - 1), "staleness": (used, events)}
    for name, (some, most) in limits.items():
        if len(some) and not 0 <= some[name].min() <= some[name].max() <= most:
            raise RunFileError(f"{path}: is damaged (/events: {name} has values that there are not)")
