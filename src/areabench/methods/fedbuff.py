"""FedBuff: buffered asynchronous aggregation.

J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. The paper's runs use the
client's step size alpha for the server's eta as well (recovered from its tables).
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.arrays import Vector
from areabench.experiment.method_records import FedBuff
from areabench.methods.base import Arrival, Buffer, Given, Method, Report, Step, Work, add_to_buffer, remember_nothing


class FedBuffState(NamedTuple):
    """The server's model and the pseudo-gradients it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def fedbuff(clients: int, server_step_size: float) -> Method:
    """FedBuff with `clients` clients and the server step size eta."""

    def start(model: Vector) -> Step:
        return Step(FedBuffState(model, Buffer()), tuple(range(clients)))

    def receive(state: FedBuffState, arrival: Arrival) -> Step:
        return Step(FedBuffState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: FedBuffState) -> Step:  # x_s <- x_s - eta · mean of the buffer
        if state.buffer.size == 0:
            return Step(state)
        model = state.model - server_step_size * state.buffer.mean()
        return Step(FedBuffState(model, Buffer()))

    rule = (remember_nothing, send_pseudo_gradient, start, receive, aggregate)
    return Method("fedbuff", *rule, add=add_to_buffer)


def send_pseudo_gradient(_memory: None, work: Work) -> Report:
    """A client without a memory sends its pseudo-gradient D_i = x^b - x_i."""
    return Report(work.model - work.local, memory=None)


def build(settings: FedBuff, given: Given) -> Method:
    """The method that an experiment names."""
    return fedbuff(given.clients, settings.server_step_size or given.step_size)
