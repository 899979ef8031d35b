"""Buffered updates whose mean goes through an optimiser at the server: momentum, Adam, and FADAS.

- Adam at the server: S. Reddi et al., Adaptive Federated Optimization, ICLR 2021 (FedAdam; without bias correction).
- FADAS: Y. Wang, S. Wang, S. Lu, J. Chen, FADAS: Towards Federated Adaptive Asynchronous Optimization, ICML 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.methods.base import (
    Arrival,
    Buffer,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    add_to_buffer,
    remember_nothing,
)
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class ServerMomentum(MethodSettings):
    """Buffered updates with momentum at the server: m <- beta·m + mean, x <- x - eta·m."""

    label = "server momentum"
    colour = "#7A5C99"
    page = "methods-buffered.md#momentum-and-adam-at-the-server"
    paper = "Nguyen et al., AISTATS 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "3 d"

    name: str = "server-momentum"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    momentum: float = key("beta", 0.9, minimum=0, below=1)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        along = momentum(self.momentum)
        return averaged_along(self.name, inputs.clients, Velocity, along, lambda _oldest: self.server_step_size)


@dataclass(frozen=True, kw_only=True)
class ServerAdam(MethodSettings):
    """Buffered updates with Adam at the server, without bias correction."""

    label = "server Adam"
    colour = "#9A7BC4"
    page = "methods-buffered.md#momentum-and-adam-at-the-server"
    paper = "Reddi et al., ICLR 2021"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "4 d"

    name: str = "server-adam"
    server_step_size: float = key("step size eta of the server", 0.01, above=0)
    beta1: float = key("decay of the mean", 0.9, minimum=0, below=1)
    beta2: float = key("decay of the mean square", 0.99, minimum=0, below=1)
    epsilon: float = key("added to the root of the mean square", 1e-8, above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        along = adam(self.beta1, self.beta2, self.epsilon)
        return averaged_along(self.name, inputs.clients, Moments, along, lambda _oldest: self.server_step_size)


@dataclass(frozen=True, kw_only=True)
class Fadas(MethodSettings):
    """FADAS: buffered updates with AMSGrad at the server, and a step that shrinks with the delay."""

    label = "FADAS"
    colour = "#5D3A9B"
    page = "methods-buffered.md#fadas"
    paper = "Wang et al., ICML 2024"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "5 d"

    name: str = "fadas"
    server_step_size: float = key("step size eta of the server", 0.01, above=0)
    beta1: float = key("decay of the mean", 0.9, minimum=0, below=1)
    beta2: float = key("decay of the mean square", 0.99, minimum=0, below=1)
    epsilon: float = key("added to the root of the mean square", 1e-8, above=0)
    delay_threshold: int | None = key(
        "tau_c: the step is min(eta, 1/tau_max) if an update of the buffer is older; left out: always eta",
        None,
        minimum=1,
    )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        along = amsgrad(self.beta1, self.beta2, self.epsilon)
        step_size = delay_adaptive(self.server_step_size, self.delay_threshold)
        return averaged_along(self.name, inputs.clients, GreatestMoments, along, step_size)


class OptimiserState(NamedTuple):
    """The server's model, the buffered pseudo-gradients, the greatest staleness among them, and the moments."""

    model: Vector
    buffer: Buffer
    oldest: int
    moments: Any


class Velocity(NamedTuple):
    """What momentum keeps."""

    velocity: Vector


class Moments(NamedTuple):
    """What Adam keeps: the running means of D and of its squares."""

    mean: Vector
    square: Vector


class GreatestMoments(NamedTuple):
    """What AMSGrad keeps: Adam's two, and the greatest mean square so far."""

    mean: Vector
    square: Vector
    greatest: Vector


Direction = Callable[[Any, Vector], tuple[Any, Vector]]  # (moments, mean of the buffer) -> (moments, direction)


def momentum(beta: float) -> Direction:
    """The direction m <- beta·m + D."""

    def advance(moments: Velocity, mean: Vector) -> tuple[Velocity, Vector]:
        velocity = beta * moments.velocity + mean
        return Velocity(velocity), velocity

    return advance


def adam(beta1: float, beta2: float, epsilon: float) -> Direction:
    """The direction m/(sqrt(v) + epsilon), m <- beta1·m + (1 - beta1)·D, v <- beta2·v + (1 - beta2)·D²."""

    def advance(moments: Moments, mean: Vector) -> tuple[Moments, Vector]:
        first = beta1 * moments.mean + (1 - beta1) * mean
        second = beta2 * moments.square + (1 - beta2) * mean * mean
        return Moments(first, second), first / (np.sqrt(second) + epsilon)

    return advance


def amsgrad(beta1: float, beta2: float, epsilon: float) -> Direction:
    """The direction m/(sqrt(v̂) + epsilon), v̂ <- max(v̂, v), with Adam's m and v."""
    inner = adam(beta1, beta2, epsilon)

    def advance(moments: GreatestMoments, mean: Vector) -> tuple[GreatestMoments, Vector]:
        (first, second), _ = inner(Moments(moments.mean, moments.square), mean)
        greatest = np.maximum(moments.greatest, second)
        return GreatestMoments(first, second, greatest), first / (np.sqrt(greatest) + epsilon)

    return advance


def averaged_along(
    name: str, clients: int, kept: Callable[..., Any], direction: Direction, step_size: Callable[[int], float]
) -> Method:
    """FedBuff with an optimiser: `kept` holds its moments, `step_size` depends on the buffer's greatest staleness."""

    def start(model: Vector) -> Step:
        zeros = (np.zeros_like(model) for _ in kept._fields)  # type: ignore[attr-defined]  # it is a named tuple
        return Step(OptimiserState(model, Buffer(), 0, kept(*zeros)), tuple(range(clients)))

    def receive(state: OptimiserState, arrival: Arrival) -> Step:
        buffer = state.buffer.add(arrival.payload)
        oldest = max(state.oldest, arrival.staleness)
        return Step(OptimiserState(state.model, buffer, oldest, state.moments), (arrival.client,))

    def aggregate(state: OptimiserState) -> Step:
        # x_s <- x_s - eta · direction
        if state.buffer.size == 0:
            return Step(state)
        moments, along = direction(state.moments, state.buffer.mean())
        return Step(OptimiserState(state.model - step_size(state.oldest) * along, Buffer(), 0, moments))

    rule = (remember_nothing, send_pseudo_gradient, start, receive, aggregate)
    return Method(name, *rule, add=add_to_buffer)


def delay_adaptive(eta: float, threshold: int | None) -> Callable[[int], float]:
    """The step size of FADAS: eta, or min(eta, 1/tau_max) where the greatest staleness is beyond tau_c."""

    def step_size(oldest: int) -> float:
        return eta if threshold is None or oldest <= threshold else min(eta, 1 / oldest)

    return step_size
