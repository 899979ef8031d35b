"""A method of the user's own: made by calling their function, tried before a run, and checked in it.

An error names what the function returned, and the remedy. The dry run shows mistakes before the run file is made: it
calls what a run calls, with read-only arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from areabench.arrays import Vector, wrong_vector
from areabench.errors import RunFailure
from areabench.methods.base import Arrival, Call, Method, MethodInputs, MethodSettings, Report, Step, Work
from areabench.plugins.call import DRY_RUN, blaming, call, record_of, refuse
from areabench.settings.keys import NO_SETTINGS, SAMPLE_PATH, SETTINGS_DOC, Settings, key


@dataclass(frozen=True, kw_only=True)
class OwnMethod(MethodSettings):
    """A function of the user's own, which is executed."""

    own = True
    section: ClassVar[str] = "method"
    base: ClassVar[type] = MethodSettings
    given: ClassVar[tuple[str, ...]] = (
        "clients", "seed", "step_size", "local_steps", "rates", "samples", "weights", "updates", "period_s",
    )  # fmt: skip

    name: str = SAMPLE_PATH
    settings: Settings = key(SETTINGS_DOC, NO_SETTINGS)

    @property
    def client_driven(self) -> bool:
        """It need not be."""
        return False

    @property
    def calls_clients(self) -> bool:
        """That is not known."""
        return False

    def build(self, inputs: MethodInputs) -> Method:
        """The method that the user's function makes."""
        record = record_of(self)
        method = call(self, **inputs._asdict(), weights=inputs.weights) if record is None else record.build(inputs)
        if not isinstance(method, Method):
            refuse(self, f"returned {type(method).__name__}", "let it return areabench.extend.Method")
        return method

    def build_checked(self, inputs: MethodInputs, start: Vector) -> Method:
        """The same, tried first, and checked in each run."""
        try_method(self, inputs, start)
        return guarded_method(self, self.build(inputs), start)


class _Checks:
    """What a method may return; `fail` takes what is wrong and what to do, and raises."""

    def __init__(self, method: Method, start: Vector, fail: Callable[[str, str], NoReturn]) -> None:
        self._method = method
        self._start = start
        self._fail = fail
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
            if isinstance(each, Call) and each.model is not None and (wrong := wrong_vector(each.model, self._start)):
                self._fail(f"{name} gave client {each.client} a model that {wrong}", "send a vector like the model")
        return step

    def state(self, name: str, state: Any) -> Any:
        """A state whose model is like the start."""
        if wrong := wrong_vector(getattr(state, "model", None), self._start):
            self._fail(f"{name} gave a model that {wrong}", "keep the type and shape of the starting point")
        return state

    def attached(self, attached: Any) -> Vector:
        """What goes out with a model, always with the shape and type of the first."""
        if not isinstance(attached, np.ndarray):
            self._fail(f"attach gave {type(attached).__name__}", "attach an array")
        if self._attached is None:
            self._attached = np.empty_like(attached)
        if wrong := wrong_vector(attached, self._attached):
            self._fail(f"attach gave what {wrong}", "attach an array of the same shape and type every time")
        return attached

    def report(self, report: Any) -> Report:
        """A report whose payload and memory have the shapes and types that the method has said."""
        if not isinstance(report, Report):
            self._fail(f"report returned {type(report).__name__}", "let it return Report(payload, memory)")
        if wrong := wrong_vector(report.payload, self._payload):
            own = self._method.payload_like is not None
            self._fail(
                f"report gave a payload that {wrong}",
                "send an array like that of payload_like" if own else "send a vector like the model",
            )
        if (report.memory is None) != (self._memory is None):
            self._fail(
                "remembers something in some rounds only", "let `remember` and `report` both give an array, or None"
            )
        if self._memory is not None and (wrong := wrong_vector(report.memory, self._memory)):
            self._fail(f"report gave a memory that {wrong}", "remember an array like that of `remember`")
        return report


def try_method(settings: OwnMethod, inputs: MethodInputs, start: Vector) -> None:
    """Call a method's five functions in turn, with one update of the first client, and check all that they return."""
    method = settings.build(inputs)
    clients = range(inputs.clients)

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse(settings, trouble, remedy)

    with blaming(settings, DRY_RUN):
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
        work = Work(start, inputs.step_size, inputs.local_steps, start, local, attached)
        report = checks.report(method.report(method.remember(start), work))
        if not first.calls:
            return
        arrival = Arrival(
            _called(first.calls[0]), report.payload, 0, 0, start, 0, inputs.step_size, inputs.local_steps, 0.0
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

    attach = method.attach
    again = method.again
    remove = method.remove
    add = method.add
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


def _wrong_state(state: Any, model: Vector, earlier: Any) -> str:
    """What is wrong with a server's state; empty if nothing is. `earlier` is an earlier state of the same run."""
    if not hasattr(state, "_asdict"):
        return f"is {type(state).__name__}, not a NamedTuple"
    if not hasattr(state, "model"):
        return "has no field `model`"
    if wrong := wrong_vector(state.model, model):
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
