"""Results made by hand: what a sweep reads of its run files, with numbers that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from areabench.engine.events import State, Status
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.sweeps.read import Result

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


def counts(values: Sequence[int]) -> npt.NDArray[np.int64]:
    """Numbers of updates, clients or steps."""
    return np.array(values, np.int64)
