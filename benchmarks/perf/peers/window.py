"""What all programs of this folder share: the plan they are given, the window that is timed, the line they print.

python -m peers.PROGRAM plan.json     prints one line of JSON, its last

This file imports nothing but the standard library: every environment runs it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

BATCH = 32
FEATURES = 784
CLASSES = 10


@dataclass(frozen=True)
class Plan:
    """One cell of the table: how many clients, how many local steps M in an update, how long to measure."""

    clients: int
    local_steps: int
    window_s: float
    data: str  # folder with images.npy, uint8 (samples, 784), and labels.npy, int64
    folder: str  # for what the program writes, empty at first

    @property
    def buffer(self) -> int:
        """Updates between two server steps of FedBuff."""
        return min(10, self.clients // 2)

    @property
    def share(self) -> int:
        """Samples of each client: whole batches, as many as there are for all."""
        return 60_000 // self.clients // BATCH * BATCH


@dataclass(frozen=True)
class Report:
    """What happened within the window."""

    updates: int
    local_steps: int  # that were executed, by all clients
    seconds: float


class Mark(NamedTuple):
    """Totals at a moment of the run."""

    time_s: float
    updates: int
    local_steps: int


class Window:
    """The timed part of a run: from the first moment after `warm_up` updates to the first after `window_s` seconds."""

    def __init__(self, plan: Plan, warm_up: int) -> None:
        self._plan = plan
        self._warm_up = warm_up
        self._first: Mark | None = None
        self._last: Mark | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run may end."""
        return self._last is not None

    def note(self, updates: int, local_steps: int) -> None:
        """The totals of the run so far, as seen by the server after one update or after a round."""
        if updates < self._warm_up or self._last:
            return
        mark = Mark(time.perf_counter(), updates, local_steps)
        if self._first is None:
            self._first = mark
        elif mark.time_s - self._first.time_s >= self._plan.window_s:
            self._last = mark

    def report(self) -> Report:
        """The differences between end and beginning; the local steps must be those of the updates."""
        if self._first is None or self._last is None:
            raise RuntimeError("the run ended within the window")
        seconds, updates, local_steps = (last - first for last, first in zip(self._last, self._first, strict=True))
        return checked(Report(int(updates), int(local_steps), seconds), self._plan)


def checked(report: Report, plan: Plan) -> Report:
    """The report, if exactly M local steps were executed for each update."""
    expected = report.updates * plan.local_steps
    if report.local_steps != expected:
        raise RuntimeError(f"{report.local_steps} local steps were executed, expected {expected}")
    return report


def read_plan() -> Plan:
    """The plan that the command line names."""
    return Plan(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def run_program(measure: Callable[[Plan], Report]) -> None:
    """Measure what the plan asks for, print the report."""
    print(json.dumps(asdict(measure(read_plan()))), flush=True)
