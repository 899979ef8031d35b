"""AS-FedAvg: asynchronous federated averaging, the paper's baseline (section 5).

The averaging is that of B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
Data (FedAvg); the buffering that of J. Nguyen et al. (FedBuff).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import (
    Arrival,
    Buffer,
    Method,
    MethodInputs,
    MethodSettings,
    Report,
    Step,
    Work,
    add_to_buffer,
    remember_nothing,
)
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class AsFedAvg(MethodSettings):
    """Asynchronous FedAvg: the server takes the plain mean of the buffered models."""

    label = "AS-FedAvg"
    colour = "#009E73"
    page = "methods.md#as-fedavg"
    paper = "McMahan et al., AISTATS 2017"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"

    name: str = "as-fedavg"
    step_size: float = key("step size alpha", above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return as_fedavg(inputs.clients)


class AveragingState(NamedTuple):
    """The server's model and the models it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def as_fedavg(clients: int) -> Method:
    """AS-FedAvg with `clients` clients."""

    def start(model: Vector) -> Step:
        return Step(AveragingState(model, Buffer()), tuple(range(clients)))

    def receive(state: AveragingState, arrival: Arrival) -> Step:
        return Step(AveragingState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    rule = (remember_nothing, send_model, start, receive, aggregate_models)
    return Method("as-fedavg", *rule, add=add_to_buffer)


def send_model(_memory: None, work: Work) -> Report:
    """A client of plain averaging sends its model x_i^M and remembers nothing."""
    return Report(work.local, memory=None)


def aggregate_models(state: AveragingState) -> Step:
    """x_s <- plain mean of the buffered models; a server step with an empty buffer changes nothing."""
    if state.buffer.size == 0:
        return Step(state)
    return Step(AveragingState(state.buffer.mean(), Buffer()))
