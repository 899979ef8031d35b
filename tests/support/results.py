"""Results made by hand: what a sweep reads of its run files, with numbers that a test chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from areabench.engine.events import State, Status
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.settings.parse import Location
from areabench.sweeps.file import SweepFile
from areabench.sweeps.plan import Member, SweepPlan
from areabench.sweeps.read import Sweep
from areabench.sweeps.result import Result
from areabench.timing.rates import RateSettings

PAPER = Experiment(  # in the paper's table of n = 128, M = 1, non-IID
    clients=Clients(count=128),
    method=Area(step_size=100.0),
    stop=Stop(horizon_s=10.0),
    problem=Logistic(),
    data=Mnist(),
    split=Dirichlet(),
)


def made(
    experiment: Experiment, time_s: npt.ArrayLike, accuracy: npt.ArrayLike, loss: npt.ArrayLike,
    state: State = State.DONE, **changes: Any,
) -> Result:  # fmt: skip
    """A run that ended at its horizon, with snapshots at these times; `changes` are fields of the result."""
    status = Status(state, "", experiment.stop.horizon_s or 0.0, 1, 0, 1)
    times_s, accuracies, losses = (np.asarray(values, np.float64) for values in (time_s, accuracy, loss))
    none = np.zeros(0, np.int64)
    result = Result(Path("run.h5"), experiment, status, times_s, losses, accuracies, none, none)
    return replace(result, **changes)


def run(
    method: MethodSettings | None = None, seed: int = 1, loss: float = 1.0, accuracy: float = 50.0,
    reached_s: float = math.inf, state: State = State.DONE, rates: RateSettings | None = None,
) -> Result:  # fmt: skip
    """A run over 10 s with one snapshot per second; 80 % is held from `reached_s` until before the end."""
    time_s = np.arange(11.0)
    accuracies = np.where(time_s >= reached_s, 80.0, 10.0)
    accuracies[-1] = accuracy
    experiment = replace(
        PAPER, method=method or PAPER.method, rates=rates or PAPER.rates, record=Record(interval_s=1.0), seed=seed
    )
    return made(experiment, time_s, accuracies, [*[math.nan] * 10, loss], state)


def counts(values: Sequence[int]) -> npt.NDArray[np.int64]:
    """Numbers of updates, clients or steps."""
    return np.array(values, np.int64)


NO_GRID = SweepFile(Location("one.toml"), {}, "", 1, ((),))


def sweep_of(results: Sequence[Result], planned: Sequence[Experiment] = (), **changes: Any) -> Sweep:
    """A sweep called `one` of these results; planned are their experiments, where no others are."""
    experiments = planned or [result.experiment for result in results]
    members = tuple(Member((), experiment.seed, experiment, "", "run.h5") for experiment in experiments)
    return replace(Sweep(SweepPlan("one", NO_GRID, members), tuple(results), (), ()), **changes)
