"""FedBuff: buffered asynchronous aggregation.

J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. The paper's runs use the
client's step size alpha for the server's eta as well (recovered from its tables).
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import Buffer, Method, Report, Step


class FedBuffState(NamedTuple):
    """The server's model and the pseudo-gradients it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def fedbuff(clients: int, server_step_size: float) -> Method:
    """FedBuff with `clients` clients and the server step size eta."""

    def remember(_start: Vector) -> None:
        return None

    def report(_memory: Vector | None, base: Vector, local: Vector) -> Report:
        return Report(payload=base - local, memory=None)  # the pseudo-gradient

    def start(model: Vector) -> Step:
        return Step(FedBuffState(model, Buffer()), tuple(range(clients)))

    def receive(state: FedBuffState, client: int, payload: Vector) -> Step:
        return Step(FedBuffState(state.model, state.buffer.add(payload)), (client,))

    def aggregate(state: FedBuffState) -> Step:  # x_s <- x_s - eta · mean of the buffer
        if state.buffer.size == 0:
            return Step(state)
        model = state.model - server_step_size * state.buffer.mean()
        return Step(FedBuffState(model, Buffer()))

    return Method("fedbuff", remember, report, start, receive, aggregate)
