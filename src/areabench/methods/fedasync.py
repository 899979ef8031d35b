"""FedAsync: each arrival mixes the client's model into the server's, less if it is stale.

C. Xie, O. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from areabench.arrays import Vector
from areabench.experiment.method_records import FedAsync
from areabench.methods.as_fedavg import send_model
from areabench.methods.base import Arrival, Given, Method, Step, remember_nothing
from areabench.methods.local import with_prox


class MixingState(NamedTuple):
    """The server's model, and the one that takes its place at the step, which follows each update."""

    model: Vector
    mixed: Vector | None


def step_to_mixed(state: MixingState) -> Step:
    """The server's model becomes the mixed one."""
    assert state.mixed is not None
    return Step(MixingState(state.mixed, None))


def has_mixed(state: MixingState) -> bool:
    """Whether an update has arrived since the last step."""
    return state.mixed is not None


def fedasync(clients: int, mixing: float, scale: Callable[[int], float]) -> Method:
    """FedAsync with the weight a = `mixing` of a fresh model, and the factor s(tau) = `scale` of a stale one."""

    def start(model: Vector) -> Step:
        return Step(MixingState(model, None), tuple(range(clients)))

    def receive(state: MixingState, arrival: Arrival) -> Step:  # x_s <- (1 - a_t) x_s + a_t x_i, a_t = a · s(tau)
        weight = mixing * scale(arrival.staleness)
        mixed = (1 - weight) * state.model + weight * arrival.payload
        return Step(MixingState(state.model, mixed), (arrival.client,))

    return Method("fedasync", remember_nothing, send_model, start, receive, step_to_mixed, reply="after", due=has_mixed)


def constant(_staleness: int) -> float:
    """The factor 1."""
    return 1.0


def polynomial(exponent: float) -> Callable[[int], float]:
    """The factor (1 + tau)^-p."""
    return lambda staleness: float((1 + staleness) ** -exponent)


def hinge(slope: float, delay: int) -> Callable[[int], float]:
    """The factor 1 up to tau = b, then 1/(h (tau - b) + 1)."""
    return lambda staleness: 1 / (slope * max(0, staleness - delay) + 1)


def build(settings: FedAsync, given: Given) -> Method:
    """The method that an experiment names; the proximal term does nothing in a first local step."""
    scale = {
        "constant": constant,
        "polynomial": polynomial(settings.exponent),
        "hinge": hinge(settings.hinge_slope, settings.hinge_delay),
    }[settings.staleness]
    method = fedasync(given.clients, settings.mixing, scale)
    return with_prox(method, settings.prox) if settings.prox and given.local_steps > 1 else method
