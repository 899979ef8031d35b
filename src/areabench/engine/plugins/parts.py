"""The user's own data, split, delays, method and problem: made by calling their functions, and checked before a run.

An error names what the function returned, and the remedy. A dry run shows mistakes before the run file is made: it
calls everything that a run calls, with read-only arrays, and twice where the results must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
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

Rows = NDArray[np.int64]

_DRY_RUN = "failed in a dry run"
_CONTRACT = "see docs/extending.md"
_TRIED_DELAYS = 16  # of each of the first clients, before a run
_TRIED_CLIENTS = 4


# ---------------------------------------------------------------------------------------------------- data


def own_data(settings: OwnPart, cache: Path) -> Dataset:
    """The data set that the user's function loads or makes; its arrays are read-only afterwards."""
    data = call("data", settings, cache=cache)
    if not isinstance(data, Dataset):
        refuse("data", settings, f"returned {type(data).__name__}", "let it return areabench.extend.Dataset")
    if not isinstance(data.classes, int | np.integer) or data.classes < 1:
        refuse("data", settings, f"gave classes = {data.classes!r}", "give the number of classes, a whole number >= 1")
    for part in ("train", "test"):
        if wrong := _wrong_samples(data, part):
            refuse("data", settings, f"gave {wrong}", "see docs/extending.md for what a data set holds")
    if not isinstance(data.scale, int | float | np.floating) or not math.isfinite(data.scale):
        refuse("data", settings, f"gave the scale {data.scale!r}", "give a finite number, such as 1.0")
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
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != (len(features),):
        kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        return f"{part}_labels of type {kind} and shape {np.shape(labels)} for {len(features)} samples, not int64"
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


def own_method(settings: OwnMethod, experiment: Experiment) -> Method:
    """The method that the user's function makes."""
    clients, seed = experiment.clients.count, experiment.seed
    method = call("method", settings, clients=clients, seed=seed, step_size=settings.step_size)
    if not isinstance(method, Method):
        refuse("method", settings, f"returned {type(method).__name__}", "let it return areabench.extend.Method")
    return method


def try_method(settings: OwnMethod, experiment: Experiment, start: Vector) -> None:
    """Call a method's five functions in turn, with one update of the first client, and check all that they return."""
    method, clients = own_method(settings, experiment), range(experiment.clients.count)

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse("method", settings, trouble, remedy)

    def checked_step(name: str, step: Any, earlier: Any) -> Step:
        if not isinstance(step, Step):
            reject(f"{name} returned {type(step).__name__}", "let it return Step(state, calls)")
        if wrong := _wrong_state(step.state, start, earlier):
            reject(f"{name} returned a state that {wrong}", "see docs/extending.md for what a state may hold")
        if not _are_clients(step.calls, clients):
            reject(f"{name} calls {step.calls!r}", f"give a tuple of clients from 0 to {len(clients) - 1}, each once")
        return step

    def checked_memory(name: str, memory: Any) -> Vector | None:
        if memory is not None and (wrong := _wrong_vector(memory, start)):
            reject(f"{name} gave a memory that {wrong}", "remember a vector like the model, or None")
        return memory  # type: ignore[no-any-return]  # a vector, or None

    with blaming("method", settings, _DRY_RUN):
        first = checked_step("start", method.start(start), None)
        if not first.calls:
            reject("start calls no client, so none would ever work", "name clients in Step(state, calls)")
        local = (start + 1e-3).astype(start.dtype)  # an update of zero may be a special case
        report = method.report(checked_memory("remember", method.remember(start)), start, local)
        if not isinstance(report, Report):
            reject(f"report returned {type(report).__name__}", "let it return Report(payload, memory)")
        if wrong := _wrong_vector(report.payload, start):
            reject(f"report gave a payload that {wrong}", "send a vector like the model")
        checked_memory("report", report.memory)
        received = checked_step("receive", method.receive(first.state, first.calls[0], report.payload), first.state)
        checked_step("aggregate", method.aggregate(received.state), first.state)


def _are_clients(calls: Any, clients: range) -> bool:
    """Whether calls are a tuple of clients that exist, none twice; a negative number would count from the end."""
    known = isinstance(calls, tuple) and all(type(each) is int and each in clients for each in calls)
    return known and len(set(calls)) == len(calls)


def guarded_method(settings: OwnMethod, method: Method, clients: int, model: Vector) -> Method:
    """The method, whose every step and report is checked during a run: the dry run sees the first ones only."""

    def fail(what: str, remedy: str) -> NoReturn:
        raise RunFailure(f"method.name = {settings.name!r} {what}; {remedy}")

    def state_of(name: str, state: Any) -> Any:
        if wrong := _wrong_vector(getattr(state, "model", None), model):
            fail(f"{name} gave a model that {wrong}", "keep the type and shape of the starting point")
        return state

    def guarded(name: str, function: Callable[..., Step]) -> Callable[..., Step]:
        def step_of(*given: Any) -> Step:
            step = function(*given)
            if not isinstance(step, Step):
                fail(f"{name} returned {type(step).__name__}", "let it return Step(state, calls)")
            state_of(name, step.state)
            if not _are_clients(step.calls, range(clients)):
                fail(f"{name} calls {step.calls!r}", f"give a tuple of clients from 0 to {clients - 1}, each once")
            return step

        return step_of

    def report(memory: Vector | None, base: Vector, local: Vector) -> Report:
        found = method.report(memory, base, local)
        if not isinstance(found, Report):
            fail(f"report returned {type(found).__name__}", "let it return Report(payload, memory)")
        if wrong := _wrong_vector(found.payload, model):
            fail(f"report gave a payload that {wrong}", "send a vector like the model")
        if found.memory is not None and (wrong := _wrong_vector(found.memory, model)):
            fail(f"report gave a memory that {wrong}", "remember a vector like the model, or None")
        return found

    remove = method.remove
    return replace(
        method,
        report=report,
        start=guarded("start", method.start),
        receive=guarded("receive", method.receive),
        aggregate=guarded("aggregate", method.aggregate),
        lose=None if method.lose is None else guarded("lose", method.lose),
        remove=None if remove is None else lambda *given: state_of("remove", remove(*given)),
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
            wrong = _wrong_fields(value, before if hasattr(before, "_asdict") else None)
            if wrong:
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
    given = {} if held is None else {"data": held.data, "parts": held.parts}
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


def try_problem(settings: OwnPart, problem: Problem, again: Problem, step_size: float) -> None:
    """Two rounds of the first client, with and without `skip`, and an evaluation: types, shapes, and the same bits.

    `again` is the same problem, made a second time: every rank and every replay makes its own.
    """

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse("problem", settings, trouble, remedy)

    elsewhere = "draw from stream(seed, ...) only where it is made, not from np.random"

    def descended(worker: Any, model: Vector) -> Vector:
        found = worker.descend(model, step_size)
        if wrong := _wrong_vector(found, model):
            reject(f"has a descend() that returned what {wrong}", "return a new vector like the model")
        return found  # type: ignore[no-any-return]  # a vector

    with blaming("problem", settings, _DRY_RUN):
        start = _read_only(problem.start())
        worker, same, late = (problem.local(0) for _ in range(3))
        for name in ("descend", "skip"):
            if not hasattr(worker, name):
                reject(f"has a local(client) without {name}", _CONTRACT)
        first = _read_only(descended(worker, start))
        if first.tobytes() != descended(same, start).tobytes():
            reject(
                "gives another result for the same round of client 0",
                "draw random numbers from stream(seed, Purpose.SAMPLES, client) only",
            )
        second = descended(worker, first)
        late.skip(1)  # as a client does in a resumed run
        if second.tobytes() != descended(late, first).tobytes():
            reject(
                "gives another second round after skip(1) than after a first one",
                "let skip(rounds) draw what that number of rounds draws",
            )
        if start.tobytes() != again.start().tobytes():
            reject("starts elsewhere each time it is made", elsewhere)
        if first.tobytes() != descended(again.local(0), start).tobytes():
            reject("gives another first round of client 0 each time it is made", elsewhere)
        found = problem.evaluate([problem.start()], with_loss=True)
        if not isinstance(found, Metrics):
            reject(f"has an evaluate() that returned {type(found).__name__}", "return areabench.extend.Metrics")
        for name, values in vars(found).items():
            if np.shape(values) != (1,):
                reject(
                    f"has an evaluate() with {name} of shape {np.shape(values)} for 1 model",
                    "give one entry per model, or use Metrics.of",
                )


def _read_only(model: Vector) -> Vector:
    """A copy as others hold it: a model that was sent must not change."""
    model = model.copy()
    model.flags.writeable = False
    return model
