"""Malenia SGD: gradients at one model until every client has given enough; their means are averaged.

A. Tyurin, P. Richtárik: Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed
Computation Model, NeurIPS 2023: Method 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Step, remember_nothing, with_entry
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.methods.rennala import batch_advice
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Malenia(MethodSettings):
    """Malenia SGD: gradients at one model until every client has given enough; their means are averaged."""

    label = "Malenia"
    colour = "#2F4B7C"
    page = "methods-optimal-time.md#malenia"
    paper = "Tyurin and Richtárik, NeurIPS 2023"
    chooses = "clients"
    limit = "exact"
    memory = "(n + 1) d"
    advice_from = "noise"

    name: str = "malenia"
    step_size: float = key("step size gamma", above=0)
    batch: float = key("S: the server steps when the harmonic mean of the clients' counts is at least S/n", above=0)

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """As Rennala's."""
        return batch_advice(self.batch, "n", L, sigma)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return malenia(inputs.clients, self.batch)


class MaleniaState(NamedTuple):
    """The server's model, and of each client the sum and the number B_i of the updates that began at it.

    A row of `sums` changes in place; it means nothing where the number is 0.
    """

    model: Vector
    sums: Vector  # (clients, *shape of the model)
    counts: tuple[int, ...]
    lost: tuple[int, ...] = ()


def malenia(clients: int, batch: float) -> Method:
    """Malenia SGD with `clients` clients and S = `batch`."""

    def start(model: Vector) -> Step:
        sums = np.zeros((clients, *model.shape), model.dtype)
        return Step(MaleniaState(model, sums, (0,) * clients), tuple(range(clients)))

    def receive(state: MaleniaState, arrival: Arrival) -> Step:
        client = arrival.client
        if arrival.staleness:
            return Step(state, (client,))
        count = state.counts[client]
        row = state.sums[client]
        np.add(row if count else 0, arrival.payload, out=row)
        return Step(state._replace(counts=with_entry(state.counts, client, count + 1)), (client,))

    def left(state: MaleniaState) -> list[int]:
        return [client for client in range(clients) if client not in state.lost]

    def aggregate(state: MaleniaState) -> Step:
        # x <- x - gamma · (1/n) Σ (1/B_i) Σ_j g_ij
        numbers = left(state)
        total = np.zeros_like(state.model)
        for client in numbers:
            total += state.sums[client] / state.counts[client]
        return Step(state._replace(model=state.model - total / len(numbers), counts=(0,) * clients))

    def due(state: MaleniaState) -> bool:
        counts = [state.counts[client] for client in left(state)] if state.lost else state.counts
        return min(counts, default=0) > 0 and harmonic_mean(counts) >= batch / len(counts)

    def lose(state: MaleniaState, client: int, _orders: int) -> Step:
        return Step(state._replace(lost=(*state.lost, client)))

    return Method(
        "malenia", remember_nothing, send_pseudo_gradient, start, receive, aggregate, reply="after", due=due, lose=lose
    )


def harmonic_mean(counts: list[int] | tuple[int, ...]) -> float:
    """((1/n) Σ 1/B_i)^-1."""
    return len(counts) / sum(1 / count for count in counts)
