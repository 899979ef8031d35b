"""AFA-CD: anarchic federated averaging without a table.

H. Yang, X. Zhang, P. Khanduri, J. Liu: Anarchic Federated Learning, ICML 2022.
"""

from __future__ import annotations

from typing import Any

from areabench.arrays import Vector
from areabench.experiment.method_records import AfaCd
from areabench.methods.base import Arrival, Buffer, Given, Method, Report, Step, Work, add_to_buffer, remember_nothing
from areabench.methods.fedbuff import FedBuffState
from areabench.methods.gradient_tables import mean_gradient


def afa_cd(clients: int, server_step_size: Any) -> Method:
    """AFA-CD with `clients` clients and the server step size eta."""

    def report(_memory: None, work: Work) -> Report:
        return Report(mean_gradient(work), memory=None)

    def start(model: Vector) -> Step:
        return Step(FedBuffState(model, Buffer()), tuple(range(clients)))

    def receive(state: FedBuffState, arrival: Arrival) -> Step:
        return Step(FedBuffState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: FedBuffState) -> Step:  # x_s <- x_s - eta · mean of the buffered mean gradients
        if state.buffer.size == 0:
            return Step(state)
        return Step(FedBuffState(state.model - server_step_size * state.buffer.mean(), Buffer()))

    return Method("afa-cd", remember_nothing, report, start, receive, aggregate, reply="after", add=add_to_buffer)


def build(settings: AfaCd, given: Given) -> Method:
    """The method that an experiment names."""
    return afa_cd(given.clients, settings.server_step_size or given.step_size * given.local_steps)
