"""What a problem is: a starting point, local descent, and an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Stack, Vector

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment
    from areabench.problems.data.settings import DataSettings
    from areabench.problems.datasets import Dataset


@dataclass(frozen=True)
class Metrics:
    """Quality of a sequence of models, one entry per model; NaN where a problem does not define it."""

    train_loss: NDArray[np.float64]
    test_accuracy: NDArray[np.float64]  # percent
    squared_distance: NDArray[np.float64]  # to the minimiser

    @classmethod
    def of(
        cls,
        train_loss: Sequence[float] | NDArray[np.float64],
        test_accuracy: Sequence[float] | NDArray[np.float64] | None = None,
        squared_distance: Sequence[float] | NDArray[np.float64] | None = None,
    ) -> Metrics:
        """The metrics that a problem defines; the others are NaN."""
        given = (train_loss, test_accuracy, squared_distance)
        undefined = np.full(len(train_loss), np.nan)
        return cls(*(undefined if each is None else np.asarray(each, dtype=np.float64) for each in given))


ONE_ENTRY_PER_MODEL = "return areabench.extend.Metrics with one entry per model, as Metrics.of makes it"


def wrong_metrics(found: object, count: int) -> str:
    """What is wrong with what evaluate() returned for `count` models; empty if nothing is."""
    if not isinstance(found, Metrics):
        return f"returned {type(found).__name__}"
    for name, values in vars(found).items():
        if np.shape(values) != (count,):
            return f"returned {name} of shape {np.shape(values)} for {count} model{'s' * (count != 1)}"
    return ""


@dataclass(frozen=True)
class ClientData:
    """A data set, and which of its training rows each client holds."""

    data: Dataset
    parts: Sequence[NDArray[np.int64]]


_LINEAR_MODEL = 784 * 10  # entries of a model where nothing says how many


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """The section [problem]; each problem's file has a record of its own."""

    own: ClassVar[bool] = False  # whether this is a part of the user's own
    takes_data: ClassVar[bool] = True  # otherwise it draws its own functions: no [data], no [split]
    takes_sparse: ClassVar[bool] = False
    takes_targets: ClassVar[bool] = False  # numbers to predict, in place of classes
    computes_lanes: ClassVar[bool] = False  # whether its local problems are `LocalLanes`
    entry_bytes: ClassVar[int] = 8  # of an entry of a model
    has_accuracy: ClassVar[bool] = True
    solved_quickly: ClassVar[bool] = True  # whether its minimiser, if it has one, is found in less than seconds

    name: str = ""

    @property
    def samples_per_step(self) -> int:
        """Samples that a local step draws."""
        return int(getattr(self, "batch_size", 0))

    @property
    def samples_held(self) -> int:
        """Samples of each client where the problem draws its own functions."""
        return int(getattr(self, "samples", 0))

    @property
    def named_code(self) -> tuple[str, ...]:
        """Import paths of what is imported when the problem is built."""
        return ()

    @property
    def not_convex_enough(self) -> str:
        """Why Theorem 1, which assumes strong convexity, does not apply, where that is known; empty elsewhere."""
        return ""

    @property
    def wants_minimiser(self) -> bool:
        """Whether a run solves for the minimiser before it begins."""
        return False

    def load_libraries(self) -> None:
        """Import what the problem needs, from where it is installed."""

    def remarks(self) -> Mapping[str, str]:
        """What a value does that its key does not say: by key, a few words."""
        return weighting_remarks(getattr(self, "weighting", ""))

    def check(self, experiment: Experiment) -> None:
        """Raise a UserError for what makes no sense together with other settings."""

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        raise NotImplementedError

    def local(self, problem: Problem, client: int, _local_steps: int) -> LocalProblem:
        """The objective of a client of this problem."""
        return problem.local(client)

    def model_bytes(self, data: DataSettings | None) -> int:
        """About the size of a model, as far as it is known before the data are loaded."""
        entries = getattr(self, "dimension", 0) if data is None else data.model_entries
        return self.entry_bytes * (entries or _LINEAR_MODEL)

    def try_out(self, problem: Problem, again: Problem, step_size: float, local_steps: int) -> None:
        """Raise a UserError where a problem that is not the package's cannot be used; `again` was made like it."""


def weighting_remarks(weighting: str) -> Mapping[str, str]:
    """What the key `weighting` does, and other problems by default."""
    if weighting == "share":
        return {"weighting": 'client i descends (s_i/S)·f_i; "exact", the default of torch, is n times that'}
    if weighting == "exact":
        return {"weighting": 'client i descends n·(s_i/S)·f_i; "share", the default of logistic, is 1/n of it'}
    return {}


class LocalProblem(Protocol):
    """One client's objective. It owns the client's sample stream, of which each local step takes one mini-batch."""

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """The model after M local steps, or after `steps`; a new array, `model` is not changed."""
        ...

    def gradient(self, model: Vector) -> Vector:
        """The stochastic gradient of what the client descends, on its next mini-batch; a new array like `model`."""
        ...

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws, without computing them."""
        ...


class LocalLanes(LocalProblem, Protocol):
    """One client's objective for the models of several runs at once, each of which is a lane."""

    def descend_lanes(self, models: Sequence[Stack], step_sizes: NDArray[np.float64]) -> Stack:
        """M local steps of each lane on the same mini-batches; shape (lanes, dimension), step sizes of shape (lanes,).

        The rows of all `models` are the lanes in order; none is changed. The result may be lent: it is valid until the
        next call for any client of the problem.
        """
        ...


class Problem(Protocol):
    """The global objective and its parts."""

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of every model and message."""
        ...

    def start(self) -> Vector:
        """The starting point x_{s,0}, drawn from the experiment's seed."""
        ...

    def local(self, client: int) -> LocalProblem:
        """Client `client`'s objective, at its first round."""
        ...

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss over all training data (NaN unless `with_loss`), accuracy over test data, distance to the minimiser."""
        ...
