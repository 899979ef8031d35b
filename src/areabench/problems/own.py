"""A problem of the user's own: made by calling their function, and tried before a run.

An error names what the function returned, and the remedy. The dry run shows mistakes before the run file is made: it
calls what a run calls, with read-only arrays, and twice where the results must be the same.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from areabench.arrays import Vector, wrong_vector
from areabench.errors import RunFailure
from areabench.plugins.call import CONTRACT, DRY_RUN, blaming, call, record_of, refuse
from areabench.problems.base import (
    ONE_ENTRY_PER_MODEL,
    ClientData,
    LocalProblem,
    Problem,
    ProblemSettings,
    wrong_metrics,
)
from areabench.settings.keys import NO_SETTINGS, SAMPLE_PATH, SETTINGS_DOC, Settings, key


@dataclass(frozen=True, kw_only=True)
class OwnProblem(ProblemSettings):
    """A function of the user's own, which is executed."""

    own = True
    section: ClassVar[str] = "problem"
    base: ClassVar[type] = ProblemSettings
    given: ClassVar[tuple[str, ...]] = ("clients", "local_steps", "seed", "data", "parts")

    name: str = SAMPLE_PATH
    settings: Settings = key(SETTINGS_DOC, NO_SETTINGS)

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem that the user's function makes; `held` is its data, if the experiment has some."""
        if (record := record_of(self)) is not None:
            return record.build(held, clients, local_steps, seed)  # type: ignore[no-any-return]
        given = {} if held is None else {"data": held.data, "parts": list(held.parts)}
        problem = call(self, clients=clients, local_steps=local_steps, seed=seed, **given)

        with blaming(self, DRY_RUN):
            needed = ("dimension", "dtype", "start", "local", "evaluate")
            if lacking := [name for name in needed if not hasattr(problem, name)]:
                refuse(self, f"returned {type(problem).__name__}, which lacks {', '.join(lacking)}", CONTRACT)
            dimension = problem.dimension
            dtype = problem.dtype
            start = problem.start()
            if not isinstance(dtype, np.dtype) or dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
                refuse(self, f"has the dtype {dtype!r}", "take np.dtype(np.float32) or np.dtype(np.float64)")
            if type(dimension) is not int or dimension < 1:
                refuse(self, f"has the dimension {dimension!r}", "give a whole number >= 1")
            if wrong := wrong_vector(start, np.empty(dimension, dtype)):
                refuse(self, f"has a start() that {wrong}", "give one vector of the dimension and the dtype")
            if not np.isfinite(start).all():
                refuse(self, "has a start() with entries that are not finite", "start elsewhere")
            if problem.start().tobytes() != start.tobytes():
                refuse(self, "starts elsewhere each time", "draw from stream(seed, Purpose.START)")
        return problem  # type: ignore[no-any-return]  # it has all that a problem has

    def local(self, problem: Problem, client: int, local_steps: int) -> LocalProblem:
        """The objective of a client, which may know whole rounds only."""
        return OwnLocal(self, problem.local(client), local_steps)

    def try_out(self, problem: Problem, again: Problem, step_size: float, local_steps: int) -> None:
        """Two rounds of the first client, with and without `skip`, and evaluations: types, shapes, and the same bits.

        Also single steps and a gradient, where its local problem has them. `again` is the same problem, made a second
        time: every rank and every replay makes its own.
        """

        def local(problem: Problem) -> OwnLocal:
            found = problem.local(0)
            for name in ("descend", "skip"):
                if not hasattr(found, name):
                    refuse(self, f"has a local(client) without {name}", CONTRACT)
            return OwnLocal(self, found, local_steps)

        def descended(worker: OwnLocal, model: Vector, steps: int | None = None) -> Vector:
            found = worker.descend(model, step_size, steps)
            if wrong := wrong_vector(found, model):
                refuse(self, f"has a descend() that returned what {wrong}", "return a new vector like the model")
            return found

        def compare(one: Vector, other: Vector, trouble: str, remedy: str) -> None:
            if one.tobytes() != other.tobytes():
                refuse(self, trouble, remedy)

        skips_steps = "let skip(steps) draw what that number of local steps draws"
        once = "draw from stream(seed, ...) only where it is made, not from np.random"
        with blaming(self, DRY_RUN):
            start = _read_only(problem.start())
            worker = local(problem)
            first = _read_only(descended(worker, start))
            remedy = "draw random numbers from stream(seed, Purpose.SAMPLES, client) only"
            same = descended(local(problem), start)
            compare(first, same, "gives another result for the same round of client 0", remedy)
            late = local(problem)
            late.skip(local_steps)  # as a client does in a resumed run
            if late.takes_steps:
                skipped = local_steps
                remedy = skips_steps
            else:
                skipped = 1
                remedy = "let skip(rounds) draw what that number of rounds draws"
            trouble = f"gives another second round after skip({skipped}) than after a first one"
            compare(descended(worker, first), descended(late, first), trouble, remedy)
            if worker.takes_steps:
                trouble = f"gives another round with steps = {local_steps} than without"
                whole = descended(local(problem), start, local_steps)
                compare(first, whole, trouble, "let `steps` be local_steps if None")
                single, late = local(problem), local(problem)
                late.skip(2)
                descended(single, start, 1)
                if hasattr(problem.local(0), "gradient"):
                    if wrong := wrong_vector(single.gradient(start), start):
                        refuse(self, f"has a gradient() that returned what {wrong}", "return a vector like the model")
                else:
                    descended(single, start, 1)
                trouble = "gives another third step after skip(2) than after two"
                compare(descended(single, first, 1), descended(late, first, 1), trouble, skips_steps)
            compare(start, again.start(), "starts elsewhere each time it is made", once)
            # A stream opened when the problem is made would be shared by its clients, and differ between ranks.
            trouble = "gives another first round of client 0 each time it is made"
            compare(first, descended(local(again), start), trouble, once)
        with blaming(self, f"has an evaluate() that {DRY_RUN}"):
            for count, with_loss in ((1, True), (2, False)):  # as a run may call it
                if wrong := wrong_metrics(problem.evaluate([start] * count, with_loss=with_loss), count):
                    refuse(self, f"has an evaluate() that {wrong}", ONE_ENTRY_PER_MODEL)


class OwnLocal:
    """The user's local problem. One whose descend() takes no `steps` makes whole rounds; its skip() counts rounds."""

    def __init__(self, settings: OwnProblem, local: Any, local_steps: int) -> None:
        self._settings = settings
        self._local = local
        self._local_steps = local_steps
        try:
            steps = inspect.signature(local.descend).parameters.get("steps")
        except (ValueError, TypeError):  # some functions that are written in C
            steps = None
        self.takes_steps = steps is not None and steps.kind in (steps.POSITIONAL_OR_KEYWORD, steps.KEYWORD_ONLY)

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """The model after M local steps, or after `steps`; `try_out` checks what it is."""
        if steps is not None and self.takes_steps:
            return self._local.descend(model, step_size, steps=steps)  # type: ignore[no-any-return]
        if steps not in (None, self._local_steps):
            self._fail_without_steps()
        return self._local.descend(model, step_size)  # type: ignore[no-any-return]

    def gradient(self, model: Vector) -> Vector:
        """The stochastic gradient on the next mini-batch."""
        if not self.takes_steps:
            self._fail_without_steps()  # its skip() could not skip the mini-batch
        if not hasattr(self._local, "gradient"):
            self._fail("has a local problem without gradient()", "add gradient(model)")
        return self._local.gradient(model)  # type: ignore[no-any-return]

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        if self.takes_steps:
            self._local.skip(steps)
        elif steps % self._local_steps:
            self._fail_without_steps()
        else:
            self._local.skip(steps // self._local_steps)

    def _fail_without_steps(self) -> NoReturn:
        self._fail("has a local problem whose descend() takes no `steps`", "let it take `steps`")

    def _fail(self, trouble: str, remedy: str) -> NoReturn:
        raise RunFailure(f"problem.name = {self._settings.name!r} {trouble}, which this method needs; {remedy}")


def _read_only(model: Vector) -> Vector:
    """A copy as others hold it: a model that was sent must not change."""
    model = model.copy()
    model.flags.writeable = False
    return model
