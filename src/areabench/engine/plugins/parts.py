"""The user's own data, split, delays, method and problem: made by calling their functions, and checked before a run.

An error names what the function returned, and the remedy. A dry run shows mistakes before the run file is made: it
calls everything that a run calls, with read-only arrays, and twice where the results must be the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.evaluation import ONE_ENTRY_PER_MODEL, wrong_metrics
from areabench.engine.plugins.load import blaming, call, caller, refuse
from areabench.errors import RunFailure
from areabench.experiment.checks import check_enough
from areabench.experiment.fields import OwnMethod, OwnPart
from areabench.experiment.records import Clients
from areabench.methods.base import Arrival, Call, Given, Method, Report, Step, Work
from areabench.problems.base import Problem
from areabench.problems.datasets import Dataset
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.engine.data import ClientData

Rows = NDArray[np.int64]

_DRY_RUN = "failed in a dry run"
_CONTRACT = "see docs/extending.md"
_TRIED_DELAYS = 16  # of each of the first clients, before a run
_TRIED_CLIENTS = 4
_SKIPPED_STEPS = "let skip(steps) draw what that number of local steps draws"


# ---------------------------------------------------------------------------------------------------- data


def own_data(settings: OwnPart, cache: Path) -> Dataset:
    """The data set that the user's function loads or makes; its arrays are read-only afterwards."""
    data = call("data", settings, cache=cache)
    if not isinstance(data, Dataset):
        refuse("data", settings, f"returned {type(data).__name__}", "let it return areabench.extend.Dataset")
    least = 0 if getattr(data.train_labels, "dtype", np.dtype(np.int64)).kind == "f" else 1
    if not isinstance(data.classes, int | np.integer) or data.classes < least:
        refuse("data", settings, f"gave classes = {data.classes!r}", "give the number of classes, a whole number >= 1")
    for part in ("train", "test"):
        if wrong := _wrong_samples(data, part):
            refuse("data", settings, f"gave {wrong}", "see docs/extending.md for what a data set holds")
    if not isinstance(data.scale, int | float | np.floating) or not math.isfinite(data.scale):
        refuse("data", settings, f"gave the scale {data.scale!r}", "give a finite number, such as 1.0")
    kind = np.int64 if data.classes else np.float64
    labels = [part.astype(kind, copy=False) for part in (data.train_labels, data.test_labels)]
    data = replace(data, train_labels=labels[0], test_labels=labels[1])
    for array in (data.train_features, data.train_labels, data.test_features, data.test_labels):
        array.flags.writeable = False
    return data


def _wrong_samples(data: Dataset, part: str) -> str:
    """What is wrong with the training or test samples; empty if nothing is."""
    features, labels = getattr(data, f"{part}_features"), getattr(data, f"{part}_labels")
    if not isinstance(features, np.ndarray) or features.ndim != 2 or not features.size:
        return f"{part}_features of shape {np.shape(features)}, not (samples, features)"
    if features.dtype.kind not in "uif" or features.shape[1] != data.train_features.shape[1]:
        return f"{part}_features of type {features.dtype} and {features.shape[1]} columns"
    if (bad := features.size - np.count_nonzero(np.isfinite(features))) != 0:
        return f"{part}_features of which {bad:,} are not finite (NaN or infinite)"
    kinds = "iu" if data.classes else "iuf"
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in kinds or labels.shape != (len(features),):
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        return f"{part}_labels of type {kind} and shape {np.shape(labels)} for {len(features)} samples, not integers"
    if not data.classes:
        return "" if np.isfinite(labels).all() else f"{part}_labels of which some are not finite (NaN or infinite)"
    if labels.min() < 0 or labels.max() >= data.classes:
        return f"{part}_labels from {labels.min()} to {labels.max()}, not 0 to classes - 1 = {data.classes - 1}"
    return ""


# ---------------------------------------------------------------------------------------------------- split


def own_split(settings: OwnPart, labels: Rows, clients: int, seed: int) -> list[Rows]:
    """The sorted rows of each client; two clients may hold the same row, and some rows may be held by none."""
    check_enough(settings, len(labels), clients)
    found, again = (_drawn_split(settings, labels, clients, seed) for _ in range(2))
    if len(found) != clients:
        count = f"{len(found)} part{'s' * (len(found) != 1)}"
        refuse("split", settings, f"returned {count} for {clients} clients", "return one per client")
    for client, part in enumerate(found):
        if wrong := _wrong_rows(part, len(labels)):
            refuse("split", settings, f"gave client {client} {wrong}", f"give row numbers from 0 to {len(labels) - 1}")
    if any(not np.array_equal(*pair) for pair in zip(found, again, strict=True)):
        refuse("split", settings, "gives other parts each time", "draw from its generator only")
    return [np.sort(part).astype(np.int64, copy=False) for part in found]


def _drawn_split(settings: OwnPart, labels: Rows, clients: int, seed: int) -> list[NDArray[Any]]:
    parts = call("split", settings, labels=labels, clients=clients, generator=stream(seed, Purpose.SPLIT))
    remedy = "let it return an array of row numbers per client"
    if not hasattr(parts, "__iter__"):
        refuse("split", settings, f"returned {type(parts).__name__}", remedy)
    with blaming("split", settings):  # the function may be a generator, which fails only now
        found = list(parts)
    try:
        return [np.asarray(part) for part in found]
    except (TypeError, ValueError):
        refuse("split", settings, f"returned {type(parts).__name__}", remedy)


def _wrong_rows(part: NDArray[Any], samples: int) -> str:
    """What is wrong with the rows of a client; empty if nothing is."""
    if part.ndim != 1 or not len(part):
        return "no rows" if not part.size else f"an array of shape {part.shape}"
    if part.dtype.kind not in "iu":
        return f"row numbers of type {part.dtype}"
    if part.min() < 0 or part.max() >= samples:
        return f"rows from {part.min()} to {part.max()}"
    return "some row twice" if len(np.unique(part)) < len(part) else ""


# ---------------------------------------------------------------------------------------------------- delays


def own_delays(settings: OwnPart, rates: NDArray[np.float64], seed: int) -> Callable[[int], Iterator[float]]:
    """A function from a client to the durations (s) of all its rounds."""
    function = caller("delays", settings)  # looked up once: that takes longer than a call

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
        rounds = f"{number} round{'s' * (number != 1)}"
        raise RunFailure(
            f"delays.name = {settings.name!r} ended after {rounds} of client {client}; let it yield without end"
        )

    return durations


def try_delays(settings: OwnPart, rates: NDArray[np.float64], seed: int) -> None:
    """Draw the first delays of some clients twice: they must be positive and finite, and the same."""
    durations = own_delays(settings, rates, seed)
    for client in range(min(len(rates), _TRIED_CLIENTS)):
        with blaming("delays", settings):
            first, again = (list(islice(durations(client), _TRIED_DELAYS)) for _ in range(2))
        if first != again:
            refuse("delays", settings, f"gives client {client} others each time", "draw from its generator only")


# ---------------------------------------------------------------------------------------------------- method


def own_method(settings: OwnMethod, given: Given) -> Method:
    """The method that the user's function makes."""
    method = call("method", settings, **given._asdict(), weights=given.weights)
    if not isinstance(method, Method):
        refuse("method", settings, f"returned {type(method).__name__}", "let it return areabench.extend.Method")
    return method


class _Checks:
    """What a method may return; `fail` takes what is wrong and what to do, and raises."""

    def __init__(self, method: Method, start: Vector, fail: Callable[[str, str], NoReturn]) -> None:
        self._method, self._start, self._fail = method, start, fail
        self._payload = start if method.payload_like is None else method.payload_like(start)
        self._memory = method.remember(start)
        self._attached: Vector | None = None  # like the first
        if self._memory is not None and not isinstance(self._memory, np.ndarray):
            fail(f"remember gave {type(self._memory).__name__}", "remember an array, or None")

    def step(self, name: str, step: Any) -> Step:
        """A step, with a model like the start and calls that are clients or calls of clients."""
        if not isinstance(step, Step):
            self._fail(f"{name} returned {type(step).__name__}", "let it return Step(state, calls)")
        self.state(name, step.state)
        if not _are_calls(step.calls) or not _are_calls(step.contacts) or not _are_calls(step.cancels):
            told = step.calls, *(each for each in (step.contacts, step.cancels) if each)
            self._fail(f"{name} calls {told[0] if len(told) == 1 else told!r}", "give a tuple of clients, or of Call")
        if (step.contacts or step.cancels) and not self._method.interrupts:
            self._fail(f"{name} contacts or cancels clients", "let the Method have interrupts=True")
        for each in step.calls:
            if isinstance(each, Call) and each.model is not None and (wrong := _wrong_vector(each.model, self._start)):
                self._fail(f"{name} gave client {each.client} a model that {wrong}", "send a vector like the model")
        return step

    def state(self, name: str, state: Any) -> Any:
        """A state whose model is like the start."""
        if wrong := _wrong_vector(getattr(state, "model", None), self._start):
            self._fail(f"{name} gave a model that {wrong}", "keep the type and shape of the starting point")
        return state

    def attached(self, attached: Any) -> Vector:
        """What goes out with a model, always with the shape and type of the first."""
        if not isinstance(attached, np.ndarray):
            self._fail(f"attach gave {type(attached).__name__}", "attach an array")
        if self._attached is None:
            self._attached = np.empty_like(attached)
        if wrong := _wrong_vector(attached, self._attached):
            self._fail(f"attach gave what {wrong}", "attach an array of the same shape and type every time")
        return attached

    def report(self, report: Any) -> Report:
        """A report whose payload and memory have the shapes and types that the method has said."""
        if not isinstance(report, Report):
            self._fail(f"report returned {type(report).__name__}", "let it return Report(payload, memory)")
        if wrong := _wrong_vector(report.payload, self._payload):
            own = self._method.payload_like is not None
            self._fail(
                f"report gave a payload that {wrong}",
                "send an array like that of payload_like" if own else "send a vector like the model",
            )
        if (report.memory is None) != (self._memory is None):
            self._fail(
                "remembers something in some rounds only", "let `remember` and `report` both give an array, or None"
            )
        if self._memory is not None and (wrong := _wrong_vector(report.memory, self._memory)):
            self._fail(f"report gave a memory that {wrong}", "remember an array like that of `remember`")
        return report


def try_method(settings: OwnMethod, given: Given, start: Vector) -> None:
    """Call a method's five functions in turn, with one update of the first client, and check all that they return."""
    method, clients = own_method(settings, given), range(given.clients)

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse("method", settings, trouble, remedy)

    with blaming("method", settings, _DRY_RUN):
        checks = _Checks(method, start, reject)

        def checked(name: str, step: Any, earlier: Any) -> Step:
            if isinstance(step, Step) and (wrong := _wrong_state(step.state, start, earlier)):
                reject(f"{name} returned a state that {wrong}", "see docs/extending.md for what a state may hold")
            found = checks.step(name, step)
            if unknown := [each for each in map(_called, found.calls) if each not in clients]:
                reject(f"{name} calls client {unknown[0]}", f"name clients from 0 to {len(clients) - 1}")
            return found

        first = checked("start", method.start(start), None)
        if not first.calls and method.wake is None:
            reject("start calls no client, so none would ever work", "name clients in Step(state, calls)")
        local = (start + 1e-3).astype(start.dtype)  # an update of zero may be a special case
        attached = None if method.attach is None else checks.attached(method.attach(first.state))
        work = Work(start, given.step_size, given.local_steps, start, local, attached)
        report = checks.report(method.report(method.remember(start), work))
        if not first.calls:
            return
        arrival = Arrival(
            _called(first.calls[0]), report.payload, 0, 0, start, 0, given.step_size, given.local_steps, 0.0
        )
        received = checked("receive", method.receive(first.state, arrival), first.state)
        if method.due is None or method.due(received.state):
            checked("aggregate", method.aggregate(received.state), first.state)


def _called(call: int | Call) -> int:
    return call.client if isinstance(call, Call) else call


def _are_calls(calls: Any) -> bool:
    """Whether calls are a tuple of clients, or of calls of clients."""
    return isinstance(calls, tuple) and all(isinstance(each, Call) or type(each) is int for each in calls)


def guarded_method(settings: OwnMethod, method: Method, start: Vector) -> Method:
    """The method, whose every step and report is checked during a run: the dry run sees the first ones only."""

    def fail(what: str, remedy: str) -> NoReturn:
        raise RunFailure(f"method.name = {settings.name!r} {what}; {remedy}")

    checks = _Checks(method, start, fail)

    def guarded(name: str, function: Callable[..., Step]) -> Callable[..., Step]:
        return lambda *given: checks.step(name, function(*given))

    attach, again, remove, add = method.attach, method.again, method.remove, method.add
    return replace(
        method,
        name=settings.name,
        report=lambda memory, work: checks.report(method.report(memory, work)),
        start=guarded("start", method.start),
        receive=guarded("receive", method.receive),
        aggregate=guarded("aggregate", method.aggregate),
        attach=None if attach is None else lambda state: checks.attached(attach(state)),
        again=None if again is None else lambda *given: checks.state("again", again(*given)),
        lose=None if method.lose is None else guarded("lose", method.lose),
        remove=None if remove is None else lambda *given: checks.state("remove", remove(*given)),
        add=None if add is None else lambda *given: checks.state("add", add(*given)),
    )


def _wrong_vector(vector: Any, model: Vector) -> str:
    """How a vector differs from a model in type or shape; empty if it does not."""
    if not isinstance(vector, np.ndarray):
        return f"is {type(vector).__name__}, not an array"
    if vector.dtype != model.dtype:
        return f"is {vector.dtype}, where the problem has {model.dtype}"
    return "" if vector.shape == model.shape else f"has the shape {vector.shape}, not {model.shape}"


def _wrong_state(state: Any, model: Vector, earlier: Any) -> str:
    """What is wrong with a server's state; empty if nothing is. `earlier` is an earlier state of the same run."""
    if not hasattr(state, "_asdict"):
        return f"is {type(state).__name__}, not a NamedTuple"
    if not hasattr(state, "model"):
        return "has no field `model`"
    if wrong := _wrong_vector(state.model, model):
        return f"has a model that {wrong}"
    if earlier is not None and type(state) is not type(earlier):
        return f"is {type(state).__name__}, and was {type(earlier).__name__} before"
    return _wrong_fields(state, earlier)


def _wrong_fields(state: Any, earlier: Any) -> str:
    for name, value in state._asdict().items():
        before = None if earlier is None else getattr(earlier, name)
        if hasattr(value, "_asdict"):
            if earlier is not None and not hasattr(before, "_asdict"):
                return f"has a field {name} that was {type(before).__name__} at the start; begin with a NamedTuple"
            if wrong := _wrong_fields(value, before):
                return f"{wrong} (in {name})"
        elif not _is_plain(value):
            return f"has a field {name} of type {type(value).__name__}, which no checkpoint can hold"
        elif earlier is not None and (_kind(value), _kind(before)) in _CHANGES:
            return f"has a field {name} that was None at the start and is a number now; begin with a number"
    return ""


def _is_plain(value: Any) -> bool:
    """Whether a value is an array with an axis, a number, a tuple of whole numbers or of numbers, or None."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind in "biuf"
    if isinstance(value, tuple):
        return all(type(entry) is int for entry in value) or all(type(entry) is float for entry in value)
    return value is None or isinstance(value, bool | int | float)


def _kind(value: Any) -> str:
    """How a checkpoint reads a value."""
    return "nothing" if value is None else "array" if isinstance(value, np.ndarray) else "number"


# Kinds of a field now and before between which a checkpoint, read by the form of an earlier state, cannot tell.
_CHANGES = (("number", "nothing"), ("array", "number"), ("number", "array"), ("nothing", "number"))


# ---------------------------------------------------------------------------------------------------- problem


def own_problem(settings: OwnPart, clients: Clients, seed: int, held: ClientData | None) -> Problem:
    """The problem that the user's function makes; `held` is its data, if the experiment has some."""
    given = {} if held is None else {"data": held.data, "parts": list(held.parts)}
    problem = call("problem", settings, clients=clients.count, local_steps=clients.local_steps, seed=seed, **given)

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse("problem", settings, trouble, remedy)

    with blaming("problem", settings, _DRY_RUN):
        needed = ("dimension", "dtype", "start", "local", "evaluate")
        if lacking := [name for name in needed if not hasattr(problem, name)]:
            reject(f"returned {type(problem).__name__}, which lacks {', '.join(lacking)}", _CONTRACT)
        dimension, dtype, start = problem.dimension, problem.dtype, problem.start()
        if not isinstance(dtype, np.dtype) or dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            reject(f"has the dtype {dtype!r}", "take np.dtype(np.float32) or np.dtype(np.float64)")
        if type(dimension) is not int or dimension < 1:
            reject(f"has the dimension {dimension!r}", "give a whole number >= 1")
        if wrong := _wrong_vector(start, np.empty(dimension, dtype)):
            reject(f"has a start() that {wrong}", "give one vector of the dimension and the dtype")
        if not np.isfinite(start).all():
            reject("has a start() with entries that are not finite", "start elsewhere")
        if problem.start().tobytes() != start.tobytes():
            reject("starts elsewhere each time", "draw from stream(seed, Purpose.START)")
    return problem  # type: ignore[no-any-return]  # it has all that a problem has


class OwnLocal:
    """The user's local problem. One whose descend() takes no `steps` makes whole rounds; its skip() counts rounds."""

    def __init__(self, settings: OwnPart, local: Any, local_steps: int) -> None:
        self._settings, self._local, self._local_steps = settings, local, local_steps
        self.takes_steps = _takes_steps(local.descend)

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """The model after M local steps, or after `steps`."""
        if steps is None:
            return self._local.descend(model, step_size)  # type: ignore[no-any-return]  # try_problem checks what it is
        if self.takes_steps:
            return self._local.descend(model, step_size, steps=steps)  # type: ignore[no-any-return]
        if steps != self._local_steps:
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


def _takes_steps(descend: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `steps` that can be given by name."""
    try:
        found = inspect.signature(descend).parameters.get("steps")
    except (ValueError, TypeError):  # some functions that are written in C
        return False
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def try_problem(settings: OwnPart, problem: Problem, again: Problem, step_size: float, local_steps: int) -> None:
    """Two rounds of the first client, with and without `skip`, and evaluations: types, shapes, and the same bits.

    Also single steps and a gradient, where its local problem has them. `again` is the same problem, made a second time:
    every rank and every replay makes its own.
    """

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse("problem", settings, trouble, remedy)

    elsewhere = "draw from stream(seed, ...) only where it is made, not from np.random"

    def local(problem: Problem) -> OwnLocal:
        found = problem.local(0)
        for name in ("descend", "skip"):
            if not hasattr(found, name):
                reject(f"has a local(client) without {name}", _CONTRACT)
        return OwnLocal(settings, found, local_steps)

    def descended(worker: OwnLocal, model: Vector, steps: int | None = None) -> Vector:
        found = worker.descend(model, step_size, steps)
        if wrong := _wrong_vector(found, model):
            reject(f"has a descend() that returned what {wrong}", "return a new vector like the model")
        return found

    def try_steps(start: Vector, first: Vector) -> None:
        """Single steps, and a gradient if there is one: `first` is where a round leads from `start`."""
        whole, single, late = (local(problem) for _ in range(3))
        if first.tobytes() != descended(whole, start, local_steps).tobytes():
            reject(f"gives another round with steps = {local_steps} than without", "let `steps` be local_steps if None")
        late.skip(2)
        descended(single, start, 1)
        if hasattr(problem.local(0), "gradient"):
            if wrong := _wrong_vector(single.gradient(start), start):
                reject(f"has a gradient() that returned what {wrong}", "return a new vector like the model")
        else:
            descended(single, start, 1)
        if descended(single, first, 1).tobytes() != descended(late, first, 1).tobytes():
            reject("gives another third step after skip(2) than after two", _SKIPPED_STEPS)

    with blaming("problem", settings, _DRY_RUN):
        start = _read_only(problem.start())
        worker, same, late = (local(problem) for _ in range(3))
        first = _read_only(descended(worker, start))
        if first.tobytes() != descended(same, start).tobytes():
            reject(
                "gives another result for the same round of client 0",
                "draw random numbers from stream(seed, Purpose.SAMPLES, client) only",
            )
        second = descended(worker, first)
        late.skip(local_steps)  # as a client does in a resumed run
        if second.tobytes() != descended(late, first).tobytes():
            skipped = local_steps if late.takes_steps else 1
            reject(
                f"gives another second round after skip({skipped}) than after a first one",
                _SKIPPED_STEPS if late.takes_steps else "let skip(rounds) draw what that number of rounds draws",
            )
        if worker.takes_steps:
            try_steps(start, first)
        if start.tobytes() != again.start().tobytes():
            reject("starts elsewhere each time it is made", elsewhere)
        if first.tobytes() != descended(local(again), start).tobytes():
            reject("gives another first round of client 0 each time it is made", elsewhere)
    with blaming("problem", settings, f"has an evaluate() that {_DRY_RUN}"):
        for count, with_loss in ((1, True), (2, False)):  # as a run may call it
            if wrong := wrong_metrics(problem.evaluate([start] * count, with_loss=with_loss), count):
                reject(f"has an evaluate() that {wrong}", ONE_ENTRY_PER_MODEL)


def _read_only(model: Vector) -> Vector:
    """A copy as others hold it: a model that was sent must not change."""
    model = model.copy()
    model.flags.writeable = False
    return model
