"""How good a snapshot is: as the run recorded it, or evaluated here while the run continues."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from areabench.arrays import Vector
from areabench.engine.evaluation import evaluate_model
from areabench.errors import UserError, one_line
from areabench.experiment.experiment import Experiment
from areabench.problems.base import Metrics, Problem

_LEAST_PAUSE_S = 5.0  # between two evaluations
_PAUSE_SHARE = 10.0  # and at least this many times what the last one took
_LOW_PRIORITY = 10  # of -20 to 19; higher is less


@dataclass(frozen=True)
class Quality:
    """How good a snapshot is; NaN where the problem does not define it."""

    time_s: float
    version: int
    train_loss: float
    test_accuracy: float  # percent
    squared_distance: float
    source: str  # "file" or "watch"


def recorded_quality(snapshot: np.void, metrics: np.void) -> Quality:
    """What the run found itself, after its clock had stopped."""
    values = {item.name: float(metrics[item.name]) for item in fields(Metrics)}
    return Quality(float(snapshot["time_s"]), int(snapshot["version"]), **values, source="file")


class Evaluator:
    """Evaluates snapshots on a thread of its own, one at a time."""

    def __init__(self, source: Path, cache: Path, trusted: Sequence[str]) -> None:
        self._source, self._cache, self._trusted = source, cache, tuple(trusted)
        self._experiment: Experiment | None = None
        self._problem: Problem | None = None
        self._thread: threading.Thread | None = None
        self._pause_ends_s = 0.0
        self.latest: Quality | None = None
        self.trouble = ""  # why nothing can be evaluated

    def last_version(self) -> int | None:
        """The version that was evaluated last, -1 where none was; None: the evaluator takes no snapshot now."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self.trouble or time.monotonic() < self._pause_ends_s:
            return None
        return -1 if self.latest is None else self.latest.version

    def follow(self, experiment: Experiment) -> None:
        """Name the run; it is another one than before where its file was replaced."""
        if experiment is not self._experiment:
            self._experiment, self._problem, self.latest = experiment, None, None

    def offer(self, experiment: Experiment, snapshot: np.void, model: Vector, *, beside_clock: bool = False) -> None:
        """Begin to evaluate a snapshot; `beside_clock`: the run continues in real time on this machine."""
        self.follow(experiment)
        work = (experiment, snapshot, model, beside_clock)
        self._thread = threading.Thread(target=self._work, args=work, daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Wait for the present evaluation."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _work(self, experiment: Experiment, snapshot: np.void, model: Vector, beside_clock: bool) -> None:
        _lower_priority(entirely=beside_clock)
        began_s = time.monotonic()
        try:
            problem = self._problem or self._build(experiment)
            began_s = time.monotonic()
            found = evaluate_model(problem, model)
            if experiment is self._experiment:
                self._problem = problem
                self.latest = Quality(float(snapshot["time_s"]), int(snapshot["version"]), **found, source="watch")
        except UserError as error:
            self.trouble = str(error)
        except (Exception, SystemExit) as error:  # whatever a user's problem raises: the page lacks its quality
            self.trouble = one_line(error)
        ended_s = time.monotonic()
        self._pause_ends_s = ended_s + max(_LEAST_PAUSE_S, _PAUSE_SHARE * (ended_s - began_s))

    def _build(self, experiment: Experiment) -> Problem:
        from areabench.engine.scenario import build_scenario
        from areabench.plugins.trust import check_trusted, trusted_folders

        check_trusted(experiment, self._source, self._trusted)
        return build_scenario(experiment, self._cache, trusted_folders(self._trusted)).problem


def _lower_priority(*, entirely: bool) -> None:
    """Give other work priority over this thread, or run it only on idle cores; Linux can do both."""
    with suppress(AttributeError, OSError):
        if entirely:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
