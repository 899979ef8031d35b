"""What local steps do in addition to a method's own rule: a proximal term, momentum, control variates.

- FedProx: T. Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
- SCAFFOLD: S. P. Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Method, Report, Step, Work, within
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Local:
    """What local steps do in addition to the method's own rule."""

    prox: float = key("rho: adds rho·(y - x) to each gradient, x the model that the client was sent", 0.0, minimum=0)
    control_variates: bool = key("SCAFFOLD: clients and server keep control variates, which correct gradients", False)
    momentum: float = key(
        "beta: local steps follow v <- beta·v + gradient, from v = 0 in each round", 0.0, minimum=0, below=1
    )


def with_local(method: Method, local: Local, clients: int) -> Method:
    """The method with what [local] adds."""
    if local.prox:
        method = with_prox(method, local.prox)
    if local.momentum:
        method = replace(method, momentum=local.momentum)
    return with_control_variates(method, clients) if local.control_variates else method


def with_prox(method: Method, weight: float) -> Method:
    """The method whose clients add rho (y - x) to each gradient at y, x the model that they were sent."""
    inner = method.correct

    def correct(memory: Any, work: Work, gradient: Vector) -> Vector:
        pulled = gradient + weight * (work.local - work.model)
        return pulled if inner is None else inner(memory, work, pulled)

    return replace(method, correct=correct)


class ControlState(NamedTuple):
    """The state of the method itself, and the server's control variate c."""

    inner: Any
    control: Vector

    @property
    def model(self) -> Vector:
        """The server's model."""
        model: Vector = self.inner.model
        return model


def _not_with(name: str, what: str) -> str:
    return f'local.control_variates: do not go with method "{name}", which {what}; let the method correct gradients'


def with_control_variates(method: Method, clients: int) -> Method:
    """SCAFFOLD around a method: gradients g - c_i + c, and c_i <- c_i - c + (x - x_i)/(K alpha) (its option II).

    An order carries (x, c), an update (what the method sends, the change of c_i). A client remembers what the method
    remembers, if anything, and c_i. The server adds 1/n of each change to c as it arrives.
    """
    if method.attach is not None or method.payload_like is not None:
        raise UserError(_not_with(method.name, "has an `attach` or a `payload_like`"))

    def remember(start: Vector) -> Vector:
        held = method.remember(start)
        own = np.zeros_like(start)
        if held is not None and (held.shape, held.dtype) != (own.shape, own.dtype):
            raise UserError(_not_with(method.name, "remembers an array that is not like the model"))
        return own[None] if held is None else np.stack([own, held])

    def held_by(memory: Vector) -> Vector | None:
        return memory[1] if len(memory) > 1 else None

    def begin(memory: Vector, model: Vector, _attached: Vector) -> Vector:
        return model if method.begin is None else method.begin(held_by(memory), model, None)

    def correct(memory: Vector, work: Work, gradient: Vector) -> Vector:
        corrected = gradient if method.correct is None else method.correct(held_by(memory), work, gradient)
        assert work.attached is not None
        return np.asarray(corrected - memory[0] + work.attached)

    def report(memory: Vector, work: Work) -> Report:
        sent = method.report(held_by(memory), work._replace(attached=None))
        own = memory[0]
        if work.steps:
            # without local steps there is no gradient that the control variate could follow
            assert work.attached is not None
            own = own - work.attached + (work.start - work.local) / (work.steps * work.step_size)
        own = own.astype(memory.dtype, copy=False)
        kept = own[None] if sent.memory is None else np.stack([own, sent.memory])
        return Report(np.stack([sent.payload, own - memory[0]]), kept)

    def start(model: Vector) -> Step:
        step = method.start(model)
        return step._replace(state=ControlState(step.state, np.zeros_like(model)))

    def receive(state: ControlState, arrival: Arrival) -> Step:
        step = method.receive(state.inner, arrival._replace(payload=arrival.payload[0]))
        return step._replace(state=ControlState(step.state, state.control + arrival.payload[1] / clients))

    return replace(
        within(method),
        remember=remember,
        report=report,
        start=start,
        receive=receive,
        begin=begin,
        correct=correct,
        attach=lambda state: state.control,
        payload_like=lambda start: np.stack([start, start]),
    )
