"""CA2FL: buffered updates, calibrated by the clients' last ones, which the clients keep themselves.

Y. Wang, Y. Cao, J. Wu, R. Chen, J. Chen: Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached
Update Calibration, ICLR 2024.

Invariant, after every event: n h + (sum of the buffer) equals the sum of the clients' memories h_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
)
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Ca2fl(MethodSettings):
    """CA2FL: a client sends how its update differs from its last one; the server adds the mean of the last ones."""

    label = "CA2FL"
    colour = "#1B7F8C"
    page = "methods-memory.md#ca2fl"
    paper = "Wang et al., ICLR 2024"
    chooses = "clients"
    limit = "exact"
    memory = "3 d"

    name: str = "ca2fl"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return ca2fl(inputs.clients, self.server_step_size)


class CacheState(NamedTuple):
    """The server's model, h as of the last server step, and what clients have sent since."""

    model: Vector
    cached: Vector
    buffer: Buffer
    clients: int  # n


def ca2fl(clients: int, server_step_size: float) -> Method:
    """CA2FL with `clients` clients and the server step size eta."""

    def report(memory: Vector, work: Work) -> Report:
        # send d_i - h_i, then h_i <- d_i
        update = work.local - work.model
        return Report(update - memory, update)

    def start(model: Vector) -> Step:
        return Step(CacheState(model, np.zeros_like(model), Buffer(), clients), tuple(range(clients)))

    def receive(state: CacheState, arrival: Arrival) -> Step:
        return Step(state._replace(buffer=state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: CacheState) -> Step:
        # x_s <- x_s + eta (h + mean of the buffer), h <- h + sum/n
        model, cached, buffer, count = state
        if buffer.total is None:
            return Step(state)
        model = model + server_step_size * (cached + buffer.mean())
        return Step(CacheState(model, cached + buffer.total / count, Buffer(), count))

    def recalled(state: CacheState) -> Vector:
        """The sum of all memories: n h and the buffer, in double precision."""
        return state.buffer.added_to(state.clients * state.cached.astype(np.float64))

    def remove(state: CacheState, count: int, memories: Vector) -> CacheState:
        """Take clients whose memories add up to `memories` out of h; what they have sent stays in the buffer."""
        left = state.clients - count
        return state._replace(cached=(state.clients * state.cached - memories) / left, clients=left)

    rule = (np.zeros_like, report, start, receive, aggregate)
    return Method("ca2fl", *rule, recalled=recalled, remove=remove, add=add_to_buffer)
