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
        """The same, tried first, and checked in each run: the dry run sees the first steps only."""

        def fail(trouble: str, remedy: str) -> NoReturn:
            raise RunFailure(f"method.name = {self.name!r} {trouble}; {remedy}")

        try_method(self, inputs, start)
        method = replace(self.build(inputs), name=self.name)
        return checked_method(method, start, fail, lambda state: _wrong_model(state, start))


def checked_method(
    method: Method, start: Vector, fail: Callable[[str, str], NoReturn], wrong_state: Callable[[Any], str]
) -> Method:
    """The method, whose every step, state and report is checked as it comes.

    `fail` takes what is wrong and what to do, and raises. `wrong_state` says what is wrong with a state.
    An array of another shape or type than the model's could spread unnoticed: numpy stretches it.
    """
    payload = start if method.payload_like is None else method.payload_like(start)
    remembered = method.remember(start)
    attached_first: list[Vector] = []
    if remembered is not None and not isinstance(remembered, np.ndarray):
        fail(f"remember gave {type(remembered).__name__}", "remember an array, or None")

    def look_at(name: str, state: Any) -> None:
        if wrong := wrong_state(state):
            fail(f"{name} returned a state that {wrong}", "see docs/extending.md for what a state may hold")

    def giving_steps(name: str, function: Callable[..., Step]) -> Callable[..., Step]:
        def checked(*given: Any) -> Step:
            step: Any = function(*given)
            if not isinstance(step, Step):
                fail(f"{name} returned {type(step).__name__}", "let it return Step(state, calls)")
            look_at(name, step.state)
            for told in (step.calls, step.contacts, step.cancels):
                if not isinstance(told, tuple) or not all(isinstance(each, Call) or type(each) is int for each in told):
                    fail(f"{name} calls {told!r}", "give a tuple of clients, or of Call")
            if (step.contacts or step.cancels) and not method.interrupts:
                fail(f"{name} contacts or cancels clients", "let the Method have interrupts=True")
            for each in step.calls:
                if isinstance(each, Call) and each.model is not None and (wrong := wrong_vector(each.model, start)):
                    fail(f"{name} gave client {each.client} a model that {wrong}", "send a vector like the model")
            return step

        return checked

    def giving_states(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*given: Any) -> Any:
            state = function(*given)
            look_at(name, state)
            return state

        return checked

    def report(memory: Any, work: Work) -> Report:
        found: Any = method.report(memory, work)
        if not isinstance(found, Report):
            fail(f"report returned {type(found).__name__}", "let it return Report(payload, memory)")
        if wrong := wrong_vector(found.payload, payload):
            like = "a vector like the model" if method.payload_like is None else "an array like that of payload_like"
            fail(f"report gave a payload that {wrong}", f"send {like}")
        if (found.memory is None) != (remembered is None):
            fail("remembers something in some rounds only", "let `remember` and `report` both give an array, or None")
        if remembered is not None and (wrong := wrong_vector(found.memory, remembered)):
            fail(f"report gave a memory that {wrong}", "remember an array like that of `remember`")
        return found

    def attach(state: Any) -> Vector:
        """What goes out with a model always has the shape and type of the first."""
        assert method.attach is not None
        attached: Any = method.attach(state)
        if not isinstance(attached, np.ndarray):
            fail(f"attach gave {type(attached).__name__}", "attach an array")
        if not attached_first:
            attached_first.append(np.empty_like(attached))
        if wrong := wrong_vector(attached, attached_first[0]):
            fail(f"attach gave what {wrong}", "attach an array of the same shape and type every time")
        return attached

    return replace(
        method,
        report=report,
        start=giving_steps("start", method.start),
        receive=giving_steps("receive", method.receive),
        aggregate=giving_steps("aggregate", method.aggregate),
        attach=method.attach and attach,
        again=method.again and giving_states("again", method.again),
        lose=method.lose and giving_steps("lose", method.lose),
        remove=method.remove and giving_states("remove", method.remove),
        add=method.add and giving_states("add", method.add),
    )


def try_method(settings: OwnMethod, inputs: MethodInputs, start: Vector) -> None:
    """Call a method's five functions in turn, with one update of the first client, and check all that they return."""
    built = settings.build(inputs)
    clients = range(inputs.clients)
    seen: list[Any] = []  # the first state

    def reject(trouble: str, remedy: str) -> NoReturn:
        refuse(settings, trouble, remedy)

    def wrong_state(state: Any) -> str:
        wrong = _wrong_state(state, start, seen[0] if seen else None)
        seen.append(state)
        return wrong

    with blaming(settings, DRY_RUN):
        method = checked_method(built, start, reject, wrong_state)
        first = method.start(start)
        called = [each.client if isinstance(each, Call) else each for each in first.calls]
        if unknown := [client for client in called if client not in clients]:
            reject(f"start calls client {unknown[0]}", f"name clients from 0 to {len(clients) - 1}")
        if not called and method.wake is None:
            reject("start calls no client, so none would ever work", "name clients in Step(state, calls)")
        local = (start + 1e-3).astype(start.dtype)  # an update of zero may be a special case
        attached = None if method.attach is None else method.attach(first.state)
        work = Work(start, inputs.step_size, inputs.local_steps, start, local, attached)
        payload = method.report(method.remember(start), work).payload
        if not called:
            return
        arrival = Arrival(called[0], payload, 0, 0, start, 0, inputs.step_size, inputs.local_steps, 0.0)
        received = method.receive(first.state, arrival)
        if method.due is None or method.due(received.state):
            method.aggregate(received.state)


def _wrong_model(state: Any, model: Vector) -> str:
    wrong = wrong_vector(getattr(state, "model", None), model)
    return f"has a model that {wrong}" if wrong else ""


def _wrong_state(state: Any, model: Vector, earlier: Any) -> str:
    """What is wrong with a server's state; empty if nothing is. `earlier` is an earlier state of the same run."""
    if not hasattr(state, "_asdict"):
        return f"is {type(state).__name__}, not a NamedTuple"
    if not hasattr(state, "model"):
        return "has no field `model`"
    if wrong := _wrong_model(state, model):
        return wrong
    if earlier is not None and type(state) is not type(earlier):
        return f"is {type(state).__name__}, and was {type(earlier).__name__} before"
    return _wrong_fields(state, earlier)


def _wrong_fields(state: Any, earlier: Any) -> str:
    """What no checkpoint can hold, or could not read by the form of an earlier state."""
    for name, value in state._asdict().items():
        before = None if earlier is None else getattr(earlier, name)
        if hasattr(value, "_asdict"):
            if earlier is not None and not hasattr(before, "_asdict"):
                return f"has a field {name} that was {type(before).__name__} at the start; begin with a NamedTuple"
            if wrong := _wrong_fields(value, before):
                return f"{wrong} (in {name})"
            continue
        kind = _kind(value)
        if not kind:
            return f"has a field {name} of type {type(value).__name__}, which no checkpoint can hold"
        was = kind if earlier is None else _kind(before)
        if kind != was and "a number" in (kind, was):
            return f"has a field {name} that was {was} at the start and is {kind} now; begin with {kind}"
    return ""


def _kind(value: Any) -> str:
    """How a checkpoint reads a value: an array with an axis, numbers or a tuple of them, None; empty: not at all."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return "an array" if value.ndim > 0 and value.dtype.kind in "biuf" else ""
    if isinstance(value, tuple):
        plain = all(type(entry) is int for entry in value) or all(type(entry) is float for entry in value)
    else:
        plain = isinstance(value, bool | int | float)
    return "a number" if plain else ""
