"""Rennala SGD: asynchronous mini-batches, S gradients at one model, from whoever is fast.

A. Tyurin, P. Richtárik: Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed
Computation Model, NeurIPS 2023: Method 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Buffer, Given, Method, MethodSettings, Step, remember_nothing
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Rennala(MethodSettings):
    """Rennala SGD: S gradients at one model, from whoever is fast; older ones are ignored."""

    label = "Rennala"
    colour = "#6C8EBF"
    page = "methods-optimal-time.md#rennala"
    paper = "Tyurin and Richtárik, NeurIPS 2023"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"

    name: str = "rennala"
    step_size: float = key("step size gamma", above=0)
    batch: int = key("S: gradients per server step", minimum=1)

    def build(self, given: Given) -> Method:
        """The rule with these settings."""
        return rennala(given.clients, self.batch)


class RennalaState(NamedTuple):
    """The server's model and the updates that began at it."""

    model: Vector
    buffer: Buffer


def rennala(clients: int, batch: int) -> Method:
    """Rennala SGD with `clients` clients and S = `batch`."""

    def start(model: Vector) -> Step:
        return Step(RennalaState(model, Buffer()), tuple(range(clients)))

    def receive(state: RennalaState, arrival: Arrival) -> Step:
        fresh = arrival.staleness == 0
        return Step(state._replace(buffer=state.buffer.add(arrival.payload)) if fresh else state, (arrival.client,))

    def aggregate(state: RennalaState) -> Step:  # x <- x - gamma · mean of the S gradients
        return Step(RennalaState(state.model - state.buffer.mean(), Buffer()))

    def due(state: RennalaState) -> bool:
        return state.buffer.size >= batch

    return Method("rennala", remember_nothing, send_pseudo_gradient, start, receive, aggregate, reply="after", due=due)
