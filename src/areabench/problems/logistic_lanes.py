"""Local steps of many models of logistic regression at once, which see the same mini-batches: lanes of one pass.

The mathematics of `LocalLogistic`, arranged so that a step passes over the large arrays in its two matrix products
only. A model is held as c·V: the regulariser shrinks the number c, and BLAS subtracts the scaled gradient from V. The
products are wide ones, which BLAS may round differently from those of a single model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from areabench.problems.minibatches import Minibatches

if TYPE_CHECKING:
    from areabench.problems.logistic import LogisticProblem

_LARGEST_EXPONENT = 14.0  # c stays between exp of plus and minus this, far inside the range of float32


class LaneWorkspace:
    """The buffers of one mini-batch gradient of many models; shared by all clients of a process.

    The softmax runs on (classes, lanes, samples), where its loops are long; the products on (lanes, classes, samples).
    """

    def __init__(self, lanes: int, batch_size: int, shape: tuple[int, int]) -> None:
        classes, features = shape
        self.scores = np.empty((lanes, classes, batch_size), dtype=np.float32)
        self.by_class = np.empty((classes, lanes, batch_size), dtype=np.float32)
        self.row = np.empty((lanes, batch_size), dtype=np.float32)
        self.local = np.empty((lanes, classes, features), dtype=np.float32)

    def softmax(self, scale: NDArray[np.float32]) -> None:
        """Turn the scores, times `scale` of shape (lanes, 1), into class probabilities: from `scores` to `by_class`."""
        by_class, row = self.by_class, self.row
        np.multiply(self.scores.transpose(1, 0, 2), scale, out=by_class)
        np.maximum.reduce(by_class, axis=0, out=row)
        np.subtract(by_class, row, out=by_class)
        np.exp(by_class, out=by_class)
        np.add.reduce(by_class, axis=0, out=row)
        np.divide(by_class, row, out=by_class)


class Step(NamedTuple):
    """The numbers of one local step, one a lane."""

    first: bool  # whether V is multiplied by `shrink`, as at the first step of a stretch
    shrink: NDArray[np.float32]  # kept^m for the m steps from this one to the end of its stretch, shape (lanes, 1, 1)
    scale: NDArray[np.float32]  # what turns V·x into scores, shape (lanes, 1)
    factor: NDArray[np.float32]  # what turns residuals into the small factor of V's change, shape (lanes, 1)


def plan_round(kept: NDArray[np.float64], rates: NDArray[np.float64], scale: float, count: int) -> list[Step]:
    """The steps W <- kept·W - rates·gradient of one round of `count` steps; `kept` and `rates` of shape (lanes,).

    V is multiplied by kept^m at the first step of a stretch of m, so that c is 1 again after the last. A stretch is a
    whole round unless kept is far from 1.
    """
    with np.errstate(divide="ignore"):
        most = _LARGEST_EXPONENT / max(float(np.abs(np.log(np.abs(kept))).max()), 1e-300)
    length = max(1, int(min(most, count)))
    steps = []
    for number in range(count):
        first = number % length == 0
        left = min(length - number % length, count - number)  # steps to the end of the stretch, this one included
        before = np.ones_like(kept) if first else kept**-left
        after = kept ** (1 - left) if left > 1 else np.ones_like(kept)  # kept may be 0 where the stretch is one step
        shrink = _column(kept**left)[:, :, None]
        steps.append(Step(first, shrink, _column(scale * before), _column(rates * scale / after)))
    return steps


def _column(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.astype(np.float32)[:, None]


class LogisticLanes:
    """One client's share of the objective for many models at once."""

    def __init__(self, problem: LogisticProblem, work: LaneWorkspace, batches: Minibatches, weight: float) -> None:
        self._problem, self._work, self._batches, self._weight = problem, work, batches, weight
        self._step_sizes: NDArray[np.float64] | None = None
        self._steps: list[Step] = []

    def descend(self, models: NDArray[Any], step_sizes: NDArray[np.float64]) -> NDArray[Any]:
        """M steps of each lane; models and result of shape (lanes, dimension), step sizes of shape (lanes,).

        The result is lent until the next call for any client.
        """
        if step_sizes is not self._step_sizes:
            self._step_sizes, self._steps = step_sizes, self._plan(step_sizes)
        local, source = self._work.local, models.reshape(self._work.local.shape)
        np.multiply(source, self._steps[0].shrink, out=local)  # reads in order, and so brings the models near
        for rows, step in zip(self._batches.next_round(), self._steps, strict=True):
            self._residuals(source, rows, step)
            if step.first and source is local:
                np.multiply(local, step.shrink, out=local)
            self._subtract()
            source = local
        return local.reshape(models.shape)

    def skip(self, rounds: int) -> None:
        """Draw what so many rounds draw."""
        self._batches.skip(rounds)

    def _plan(self, step_sizes: NDArray[np.float64]) -> list[Step]:
        problem = self._problem
        rates = step_sizes * self._weight
        kept, per_sample = 1 - rates * problem.settings.regularisation, rates / problem.settings.batch_size
        return plan_round(kept, per_sample, problem.data.scale, problem.local_steps)

    def _residuals(self, models: NDArray[Any], rows: NDArray[np.int64], step: Step) -> None:
        """The small factor of all lanes' gradients, into the workspace's scores."""
        problem, shared, work = self._problem, self._problem.workspace, self._work
        shared.load(problem.data, rows)
        np.dot(models.reshape(-1, problem.shape[1]), shared.inputs.T, out=work.scores.reshape(-1, len(rows)))
        work.softmax(step.scale)
        np.subtract(work.by_class, shared.one_hot[:, None, :], out=work.by_class)
        np.multiply(work.by_class, step.factor, out=work.scores.transpose(1, 0, 2))

    def _subtract(self) -> None:
        """V <- V - small factor · samples; for Fortran's order everything stands transposed."""
        work, inputs = self._work, self._problem.workspace.inputs
        local, scores = work.local.reshape(-1, inputs.shape[1]), work.scores.reshape(-1, len(inputs))
        sgemm(-1.0, inputs.T, scores.T, beta=1.0, c=local.T, overwrite_c=1)
