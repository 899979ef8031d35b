"""Data sets, splits and delays from outside the package: what they return is looked at before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.plugins.load import blaming, call, caller, refuse
from areabench.errors import RunFailure
from areabench.experiment.checks import check_enough
from areabench.experiment.fields import OwnMethod, OwnPart
from areabench.experiment.records import Clients, Experiment
from areabench.methods.base import Method, Report, Step
from areabench.problems.base import Metrics, Problem
from areabench.problems.datasets import Dataset
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.engine.data import ClientData


_TRIED = 16  # delays of each of the first clients that are drawn before a run begins
_TRIED_CLIENTS = 4
_PARTS = "let it return an array of row numbers a client"


# ---------------------------------------------------------------------------------------------------- data


def own_data(settings: OwnPart, cache: Path) -> Dataset:
    """The data set that a function of the user's own loads or makes; its arrays are read-only from here on."""
    data = call("data", settings, cache=cache)
    if not isinstance(data, Dataset):
        refuse("data", settings, f"returned {type(data).__name__}", "let it return areabench.extend.Dataset")
    for part in ("train", "test"):
        if flaw := _samples_flaw(data, part):
            refuse("data", settings, f"gave {flaw}", "see docs/extending.md for what a data set holds")
    if not math.isfinite(data.scale):
        refuse("data", settings, f"gave the scale {data.scale}", "give a finite number, such as 1.0")
    for array in (data.train_features, data.train_labels, data.test_features, data.test_labels):
        array.flags.writeable = False
    return data


def _samples_flaw(data: Dataset, part: str) -> str:
    features, labels = getattr(data, f"{part}_features"), getattr(data, f"{part}_labels")
    if not isinstance(features, np.ndarray) or features.ndim != 2 or not features.size:
        return f"{part}_features of shape {np.shape(features)}, not (samples, features)"
    if features.dtype.kind not in "uif" or features.shape[1] != data.train_features.shape[1]:
        return f"{part}_features of type {features.dtype} and {features.shape[1]} columns"
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != (len(features),):
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        return f"{part}_labels of type {kind} and shape {np.shape(labels)} for {len(features)} samples, not int64"
    if labels.min() < 0 or labels.max() >= data.classes:
        return f"{part}_labels from {labels.min()} to {labels.max()}, not 0 to classes - 1 = {data.classes - 1}"
    return ""


# ---------------------------------------------------------------------------------------------------- split


def own_split(settings: OwnPart, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """The rows of each client, sorted; two clients may hold the same row, and some rows may be held by nobody."""
    check_enough(settings, len(labels), clients)
    found, again = (_drawn_parts(settings, labels, clients, seed) for _ in range(2))
    if len(found) != clients:
        refuse("split", settings, f"returned {len(found)} parts for {clients} clients", "return one a client")
    for client, part in enumerate(found):
        if flaw := _part_flaw(part, len(labels)):
            refuse("split", settings, f"gave client {client} {flaw}", f"give row numbers from 0 to {len(labels) - 1}")
    if any(not np.array_equal(*pair) for pair in zip(found, again, strict=True)):
        refuse("split", settings, "gives other parts each time", "draw from its generator only")
    return [np.sort(part).astype(np.int64, copy=False) for part in found]


def _drawn_parts(settings: OwnPart, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[Any]]:
    generator = stream(seed, Purpose.SPLIT)
    parts = call("split", settings, labels=labels, clients=clients, generator=generator)
    if not hasattr(parts, "__iter__"):
        refuse("split", settings, f"returned {type(parts).__name__}", _PARTS)
    with blaming("split", settings):  # its code may be a generator, and fail only now
        found = list(parts)
    try:
        return [np.asarray(part) for part in found]
    except (TypeError, ValueError):
        refuse("split", settings, f"returned {type(parts).__name__}", _PARTS)


def _part_flaw(part: NDArray[Any], samples: int) -> str:
    if part.ndim != 1 or not len(part):
        return "no rows" if not part.size else f"an array of shape {part.shape}"
    if part.dtype.kind not in "iu":
        return f"row numbers of type {part.dtype}"
    if part.min() < 0 or part.max() >= samples:
        return f"rows from {part.min()} to {part.max()}"
    return "some row twice" if len(np.unique(part)) < len(part) else ""


# ---------------------------------------------------------------------------------------------------- delays


def own_delays(settings: OwnPart, rates: NDArray[np.float64], seed: int) -> Callable[[int], Iterator[float]]:
    """A function from a client to all durations (s) of its rounds, from its first one on."""
    function = caller("delays", settings)  # found once: that takes longer than a call

    def durations(client: int) -> Iterator[float]:
        generator = stream(seed, Purpose.DELAYS, client)
        found = function(client=client, rate=float(rates[client]), generator=generator)
        if not hasattr(found, "__iter__"):
            refuse("delays", settings, f"returned {type(found).__name__}", "let it yield seconds, one per round")
        number = 0
        for number, duration_s in enumerate(found, 1):
            if not isinstance(duration_s, float | int | np.floating) or not 0 < duration_s < math.inf:
                raise RunFailure(
                    f"delays.name = {settings.name!r} gave {duration_s!r} in round {number - 1} of client {client}; "
                    "give a finite number of seconds above 0"
                )
            yield float(duration_s)
        raise RunFailure(
            f"delays.name = {settings.name!r} ended after {number} rounds of client {client}; let it yield for ever"
        )

    return durations


def try_delays(settings: OwnPart, rates: NDArray[np.float64], seed: int) -> None:
    """Draw the first delays of some clients twice: they must be positive and finite, and the same."""
    durations = own_delays(settings, rates, seed)
    for client in range(min(len(rates), _TRIED_CLIENTS)):
        with blaming("delays", settings):
            first, again = (list(islice(durations(client), _TRIED)) for _ in range(2))
        if first != again:
            refuse("delays", settings, f"gives client {client} others each time", "draw from its generator only")


def state_flaw(state: Any, model: Vector, form: Any = None) -> str:
    """What is wrong with a server's state; empty where nothing is. `form` is an earlier state of the same run."""
    if not hasattr(state, "_asdict"):
        return f"is {type(state).__name__}, not a NamedTuple"
    if not hasattr(state, "model"):
        return "has no field `model`"
    if flaw := vector_flaw(state.model, model):
        return f"has a model that {flaw}"
    if form is not None and type(state) is not type(form):
        return f"is {type(state).__name__}, and was {type(form).__name__} before"
    return _fields_flaw(state, form)


def vector_flaw(vector: Any, model: Vector) -> str:
    """How a vector differs from a model in type or shape; empty where it does not."""
    if not isinstance(vector, np.ndarray):
        return f"is {type(vector).__name__}, not an array"
    if vector.dtype != model.dtype:
        return f"is {vector.dtype}, where the problem has {model.dtype}"
    return "" if vector.shape == model.shape else f"has the shape {vector.shape}, not {model.shape}"


def _fields_flaw(state: Any, form: Any) -> str:
    for name, value in state._asdict().items():
        before = None if form is None else getattr(form, name)
        if hasattr(value, "_asdict"):
            flaw = _fields_flaw(value, before if hasattr(before, "_asdict") else None)
            if flaw:
                return f"{flaw} (in {name})"
        elif not _is_plain(value):
            return f"has a field {name} of type {type(value).__name__}, which no checkpoint can hold"
        elif form is not None and (_kind(value), _kind(before)) in _TURNS:
            return f"has a field {name} that was None at the start and is a number now; begin with a number"
    return ""


def _is_plain(value: Any) -> bool:
    """Arrays with an axis, numbers, tuples of whole numbers or of numbers, or None."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind in "biuf"
    if isinstance(value, tuple):
        return all(type(entry) is int for entry in value) or all(type(entry) is float for entry in value)
    return value is None or isinstance(value, bool | int | float)


def _kind(value: Any) -> str:
    """Whether a value is an array, nothing, or else: a checkpoint reads these in different ways."""
    return "nothing" if value is None else "array" if isinstance(value, np.ndarray) else "number"


_TURNS = (("number", "nothing"), ("array", "number"), ("number", "array"), ("nothing", "number"))


def own_method(settings: OwnMethod, experiment: Experiment) -> Method:
    """The method that a function of the user's own makes."""
    clients, seed = experiment.clients.count, experiment.seed
    method = call("method", settings, clients=clients, seed=seed, step_size=settings.step_size)
    if not isinstance(method, Method):
        refuse("method", settings, f"returned {type(method).__name__}", "let it return areabench.extend.Method")
    return method


def try_method(settings: OwnMethod, experiment: Experiment, start: Vector) -> None:
    """Take one of its own through a start, an update and a server step, and look at all that it returns."""
    trial = _Trial(settings, own_method(settings, experiment), start, experiment.clients.count)
    with blaming("method", settings, "failed in a first trial"):
        trial.run()


class _Trial:
    """A method with one update of its first client."""

    def __init__(self, settings: OwnMethod, method: Method, start: Vector, clients: int) -> None:
        self._settings, self._method, self._start, self._clients = settings, method, start, clients

    def run(self) -> None:
        """All five functions in turn."""
        method, start = self._method, self._start
        first = self._step("start", method.start(start), None)
        if not first.calls:
            self._refuse("start calls no client, so nobody would ever work", "name clients in Step(state, calls)")
        local = (start + 1e-3).astype(start.dtype)  # an update of nothing may be a special case
        report = method.report(self._memory("remember", method.remember(start)), start, local)
        if not isinstance(report, Report):
            self._refuse(f"report returned {type(report).__name__}", "let it return Report(payload, memory)")
        if flaw := vector_flaw(report.payload, start):
            self._refuse(f"report gave a payload that {flaw}", "send a vector like the model")
        self._memory("report", report.memory)
        received = self._step("receive", method.receive(first.state, first.calls[0], report.payload), first.state)
        self._step("aggregate", method.aggregate(received.state), first.state)

    def _step(self, where: str, step: Any, form: Any) -> Step:
        if not isinstance(step, Step):
            self._refuse(f"{where} returned {type(step).__name__}", "let it return Step(state, calls)")
        if flaw := state_flaw(step.state, self._start, form):
            self._refuse(f"{where} returned a state that {flaw}", "see docs/extending.md for what a state may hold")
        known = range(self._clients)
        if not isinstance(step.calls, tuple) or any(type(each) is not int or each not in known for each in step.calls):
            self._refuse(f"{where} calls {step.calls!r}", f"give a tuple of clients from 0 to {self._clients - 1}")
        return step

    def _memory(self, where: str, memory: Any) -> Vector | None:
        if memory is not None and (flaw := vector_flaw(memory, self._start)):
            self._refuse(f"{where} gave a memory that {flaw}", "remember a vector like the model, or None")
        return memory  # type: ignore[no-any-return]  # it is a vector, or nothing

    def _refuse(self, trouble: str, remedy: str) -> NoReturn:
        """Say what is wrong with it."""
        refuse("method", self._settings, trouble, remedy)


_FIRST_TRIAL = "failed in a first trial"
_CONTRACT = "see docs/extending.md"
_NEEDED = ("dimension", "dtype", "start", "local", "evaluate")


def own_problem(settings: OwnPart, clients: Clients, seed: int, held: ClientData | None) -> Problem:
    """The problem that a function of the user's own makes; `held` is its data, where the experiment has some."""
    given = {} if held is None else {"data": held.data, "parts": held.parts}
    problem = call("problem", settings, clients=clients.count, local_steps=clients.local_steps, seed=seed, **given)
    trial = _ProblemTrial(settings, problem)
    with blaming("problem", settings, _FIRST_TRIAL):
        if lacking := [name for name in _NEEDED if not hasattr(problem, name)]:
            trial.refuse(f"returned {type(problem).__name__}, which lacks {', '.join(lacking)}", _CONTRACT)
        trial.start()
    return problem  # type: ignore[no-any-return]  # by all that was seen


def try_problem(settings: OwnPart, problem: Problem, again: Problem, step_size: float) -> None:
    """Two rounds of the first client, skipped ones, and an evaluation: what each returns, and whether it repeats.

    `again` is the same problem, made a second time: every rank and every replay makes its own.
    """
    trial = _ProblemTrial(settings, problem)
    with blaming("problem", settings, _FIRST_TRIAL):
        trial.rounds(step_size)
        trial.made_again(again, step_size)
        trial.evaluation()


class _ProblemTrial:
    """A problem, tried in several ways."""

    def __init__(self, settings: OwnPart, problem: Any) -> None:
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
