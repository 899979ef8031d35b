"""A problem from outside the package: built, and tried on its first client before a run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from areabench.experiment import Clients
from areabench.outside.calling import blaming, call, refuse
from areabench.outside.states import vector_flaw
from areabench.outside_settings import OutsidePart
from areabench.problems.base import Metrics, Problem, Vector

if TYPE_CHECKING:
    from areabench.scenario import Held

_FIRST_TRIAL = "failed in a first trial"
_CONTRACT = "see docs/extending.md"
_NEEDED = ("dimension", "dtype", "start", "local", "evaluate")


def outside_problem(settings: OutsidePart, clients: Clients, seed: int, held: Held | None) -> Problem:
    """The problem that a function of the user's own makes; `held` is its data, where the experiment has some."""
    data = {} if held is None else {"data": held.data, "parts": held.parts}
    problem = call("problem", settings, clients=clients.count, local_steps=clients.local_steps, seed=seed, **data)
    trial = _Trial(settings, problem)
    with blaming("problem", settings, _FIRST_TRIAL):
        if lacking := [name for name in _NEEDED if not hasattr(problem, name)]:
            trial.refuse(f"returned {type(problem).__name__}, which lacks {', '.join(lacking)}", _CONTRACT)
        trial.start()
    return problem  # type: ignore[no-any-return]  # by all that was seen


def try_problem(settings: OutsidePart, problem: Problem, again: Problem, step_size: float) -> None:
    """Two rounds of the first client, skipped ones, and an evaluation: what each returns, and whether it repeats.

    `again` is the same problem, made a second time: every rank and every replay makes its own.
    """
    trial = _Trial(settings, problem)
    with blaming("problem", settings, _FIRST_TRIAL):
        trial.rounds(step_size)
        trial.made_again(again, step_size)
        trial.evaluation()


class _Trial:
    """A problem, tried in several ways."""

    def __init__(self, settings: OutsidePart, problem: Any) -> None:
        self._settings, self._problem = settings, problem

    def start(self) -> None:
        """The starting point."""
        dimension, dtype, start = self._problem.dimension, self._problem.dtype, self._problem.start()
        if not isinstance(dtype, np.dtype) or dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            self.refuse(f"has the dtype {dtype!r}", "take np.dtype(np.float32) or np.dtype(np.float64)")
        if type(dimension) is not int or dimension < 1:
            self.refuse(f"has the dimension {dimension!r}", "give a whole number >= 1")
        if flaw := vector_flaw(start, np.empty(dimension, dtype)):
            self.refuse(f"has a start() that {flaw}", "give one vector of the dimension and the dtype")
        if not np.isfinite(start).all():
            self.refuse("has a start() with entries that are not finite", "start elsewhere")
        if self._problem.start().tobytes() != start.tobytes():
            self.refuse("starts elsewhere each time", "draw from stream(seed, Purpose.START)")

    def rounds(self, step_size: float) -> None:
        """A second round must come out the same from a client that has skipped the first: a run may be resumed."""
        start = self._frozen(self._problem.start())
        worker, again, late = (self._problem.local(0) for _ in range(3))
        for name in ("descend", "skip"):
            if not hasattr(worker, name):
                self.refuse(f"has a local(client) without {name}", _CONTRACT)
        first = self._frozen(self._descended(worker, start, step_size))
        if first.tobytes() != self._descended(again, start, step_size).tobytes():
            self.refuse("gives another result for the same round of client 0", _STREAMS)
        second = self._descended(worker, first, step_size)
        late.skip(1)
        if second.tobytes() != self._descended(late, first, step_size).tobytes():
            self.refuse("gives another second round after skip(1) than after a first one", _SKIP)

    def made_again(self, again: Any, step_size: float) -> None:
        """A constructor must not draw from elsewhere than the seed."""
        if self._problem.start().tobytes() != again.start().tobytes():
            self.refuse("starts elsewhere each time it is made", _SEED)
        start = self._frozen(self._problem.start())
        first, second = (self._descended(each.local(0), start, step_size) for each in (self._problem, again))
        if first.tobytes() != second.tobytes():
            self.refuse("gives another first round of client 0 each time it is made", _SEED)

    def _descended(self, worker: Any, model: Vector, step_size: float) -> Vector:
        found = worker.descend(model, step_size)
        if flaw := vector_flaw(found, model):
            self.refuse(f"has a descend() that returned what {flaw}", "return a new vector like the model")
        return found  # type: ignore[no-any-return]  # it is a vector

    def evaluation(self) -> None:
        """The quality of the starting point."""
        found = self._problem.evaluate([self._problem.start()], with_loss=True)
        if not isinstance(found, Metrics):
            self.refuse(f"has an evaluate() that returned {type(found).__name__}", "return areabench.extend.Metrics")
        for name, values in vars(found).items():
            if np.shape(values) != (1,):
                self.refuse(f"has an evaluate() with {name} of shape {np.shape(values)} for 1 model", _METRICS)

    @staticmethod
    def _frozen(model: Vector) -> Vector:
        """As others may hold it: a model that was sent out must not change."""
        model = model.copy()
        model.flags.writeable = False
        return model

    def refuse(self, trouble: str, remedy: str) -> NoReturn:
        """Say what is wrong with it."""
        refuse("problem", self._settings, trouble, remedy)


_STREAMS = "draw random numbers from stream(seed, Purpose.SAMPLES, client) only"
_SEED = "draw from stream(seed, ...) only where it is made, not from np.random"
_SKIP = "let skip(rounds) draw what so many rounds draw"
_METRICS = "give one entry a model, or use Metrics.of"
