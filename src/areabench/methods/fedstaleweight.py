"""FedStaleWeight: buffered updates weigh in proportion to their clients' mean staleness.

J. Ma, A. Tu, Y. Chen, V. J. Reddi, FedStaleWeight: Buffered Asynchronous Federated Learning with Fair Aggregation via
Staleness Reweighting, 2024. Where every reply leaves before the step, a client's mean staleness is the mean
number of steps between two of its updates, so that all clients weigh alike in the long run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Buffer, Method, MethodInputs, MethodSettings, Step, remember_nothing
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class FedStaleWeight(MethodSettings):
    """FedStaleWeight: the buffered updates weigh in proportion to their clients' mean staleness."""

    label = "FedStaleWeight"
    colour = "#C2A83E"
    page = "methods-buffered.md#fedstaleweight"
    paper = "Ma et al., 2024"
    chooses = "clients"
    limit = "biased to fast clients, less for a large Delta"
    memory = "2 d + 2 n"

    name: str = "fedstaleweight"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    added: float = key("what is added to the mean staleness, in server steps", 0.0, minimum=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return fedstaleweight(inputs.clients, self.server_step_size, self.added)


class StaleWeightState(NamedTuple):
    """The server's model, the weighted updates in the buffer, their weights' sum, and each client's history."""

    model: Vector
    buffer: Buffer
    weight: float
    staleness: NDArray[np.int64]  # sum over each client's updates, shape (clients,)
    updates: NDArray[np.int64]  # of each client, shape (clients,)


def fedstaleweight(clients: int, server_step_size: float, added: float = 0.0) -> Method:
    """FedStaleWeight with `clients` clients, the server step size eta, and what is added to the mean staleness."""

    def start(model: Vector) -> Step:
        nothing = np.zeros(clients, np.int64)
        return Step(StaleWeightState(model, Buffer(), 0.0, nothing, nothing), tuple(range(clients)))

    def receive(state: StaleWeightState, arrival: Arrival) -> Step:
        client = arrival.client
        staleness = state.staleness.copy()
        updates = state.updates.copy()
        staleness[client] += arrival.staleness
        updates[client] += 1
        weight = float(staleness[client] / updates[client]) + added
        buffer = state.buffer.add(weight * arrival.payload)
        return Step(StaleWeightState(state.model, buffer, state.weight + weight, staleness, updates), (client,))

    def aggregate(state: StaleWeightState) -> Step:
        # x_s <- x_s - eta · weighted mean of the buffer
        total = state.buffer.total
        if total is None or not state.weight:  # nothing arrived, or nothing that weighs anything
            return Step(state._replace(buffer=Buffer()))
        model = state.model - server_step_size * (total / state.weight)
        return Step(state._replace(model=model, buffer=Buffer(), weight=0.0))

    return Method("fedstaleweight", remember_nothing, send_pseudo_gradient, start, receive, aggregate)
