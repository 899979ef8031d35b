"""AS-FedAvg: asynchronous federated averaging, the paper's baseline (section 5).

The averaging is that of B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
Data (FedAvg); the buffering that of J. Nguyen et al. (FedBuff).
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import Buffer, Method, Report, Step


class AveragingState(NamedTuple):
    """The server's model and the models it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def as_fedavg(clients: int) -> Method:
    """AS-FedAvg with `clients` clients."""

    def remember(_start: Vector) -> None:
        return None

    def start(model: Vector) -> Step:
        return Step(AveragingState(model, Buffer()), tuple(range(clients)))

    def receive(state: AveragingState, client: int, payload: Vector) -> Step:
        return Step(AveragingState(state.model, state.buffer.add(payload)), (client,))

    return Method("as-fedavg", remember, send_model, start, receive, aggregate_models)


def send_model(_memory: Vector | None, _base: Vector, local: Vector) -> Report:
    """A client of plain averaging sends its model x_i^M and remembers nothing."""
    return Report(payload=local, memory=None)


def aggregate_models(state: AveragingState) -> Step:
    """x_s <- plain mean of the buffered models; a server step with an empty buffer changes nothing."""
    if state.buffer.size == 0:
        return Step(state)
    return Step(AveragingState(state.buffer.mean(), Buffer()))
