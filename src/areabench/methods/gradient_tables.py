"""Gradient tables: the server steps along the mean of all clients' last gradients. The table is kept by the clients.

A client sends how its mean gradient differs from its last one, so that the server needs a running sum only.

- AFA-CS: H. Yang, X. Zhang, P. Khanduri, J. Liu: Anarchic Federated Learning, ICML 2022.
- IA²SGD: submission m3x4kDbYAK to ICLR 2025; one step for each arrival.
- DuDe-ASGD: X. Wang, Y. Sun, H.-T. Wai, J. Zhang: Dual-Delayed Asynchronous SGD for Arbitrarily Heterogeneous Data,
  arXiv:2405.16966, 2024; a step after c arrivals.
- ACE: X. Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, arXiv:2511.19066,
  2025; one step for each arrival.

Invariant, after every event: the sum at the server is the sum of what the clients remember.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.experiment.method_records import Ace, AfaCs, Dude, Ia2Sgd
from areabench.methods.base import Arrival, Given, Method, Report, Step, Work


def mean_gradient(work: Work) -> Vector:
    """G = (x - x_i)/(alpha K): the mean of the K gradients of a round."""
    return (work.start - work.local) / (work.steps * work.step_size)


class ClientMean(NamedTuple):
    """The mean of what the clients remember, without what each remembers, and who has not reported yet."""

    total: Vector
    clients: int  # n
    awaited: int  # clients that have not reported, lost ones aside
    heard: NDArray[np.bool_]  # who has reported, shape (n,); changed in place
    silent: int = 0  # lost clients that have never reported: they are in n, and not in the mean

    @classmethod
    def begin(cls, model: Vector, clients: int) -> ClientMean:
        """All remember zero, and nobody has reported."""
        return cls(np.zeros_like(model), clients, clients, np.zeros(clients, np.bool_))

    def add(self, client: int, change: Vector) -> ClientMean:
        """A client reports how its memory has changed."""
        first = not self.heard[client]
        self.heard[client] = True
        return self._replace(total=self.total + change, awaited=self.awaited - first)

    def plus(self, total: Vector) -> ClientMean:
        """With a sum of changes whose clients are noted already."""
        return self._replace(total=self.total + total)

    def mean(self) -> Vector:
        """The mean over all clients that have reported."""
        return self.total / (self.clients - self.silent)

    def lose(self, client: int) -> ClientMean:
        """A client is lost: its memory stays; if it has none, it is not awaited, and not in the mean."""
        if self.heard[client]:
            return self
        return self._replace(awaited=self.awaited - 1, silent=self.silent + 1)

    def remove(self, count: int, memories: Vector) -> ClientMean:
        """Remove all lost clients, `count` of them, whose memories add up to `memories`."""
        return self._replace(total=self.total - memories, clients=self.clients - count, silent=0)


class TableState(NamedTuple):
    """The server's model, the clients' gradients, and the updates since the last server step."""

    model: Vector
    gradients: ClientMean
    pending: int = 0


def gradient_table(name: str, clients: int, server_step_size: Any, *, every_arrival: bool = False) -> Method:
    """A gradient table that steps when the criterion says so, or for every arrival; first when all have reported."""

    def start(model: Vector) -> Step:
        return Step(TableState(model, ClientMean.begin(model, clients)), tuple(range(clients)))

    def receive(state: TableState, arrival: Arrival) -> Step:  # sum <- sum + (G - G_old)
        gradients = state.gradients.add(arrival.client, arrival.payload)
        return Step(TableState(state.model, gradients, state.pending + 1), (arrival.client,))

    def aggregate(state: TableState) -> Step:  # x_s <- x_s - eta · sum/n
        if state.gradients.awaited:
            return Step(state, stepped=False)
        return Step(TableState(state.model - server_step_size * state.gradients.mean(), state.gradients))

    def due(state: TableState) -> bool:
        return state.pending > 0 and not state.gradients.awaited

    def lose(state: TableState, client: int, _orders: int) -> Step:
        return Step(state._replace(gradients=state.gradients.lose(client)))

    def recalled(state: TableState) -> Vector:
        return state.gradients.total.astype(np.float64)

    def remove(state: TableState, count: int, memories: Vector) -> TableState:
        return state._replace(gradients=state.gradients.remove(count, memories))

    def add(state: TableState, total: Vector) -> TableState:
        return state._replace(gradients=state.gradients.plus(total))

    return Method(
        name, np.zeros_like, send_change, start, receive, aggregate, reply="after", due=due if every_arrival else None,
        lose=lose, recalled=recalled, remove=remove, add=None if every_arrival else add,
    )  # fmt: skip


def send_change(memory: Vector, work: Work) -> Report:
    """A client sends G - G_old, and remembers G."""
    gradient = mean_gradient(work)
    return Report(gradient - memory, gradient)


def build(settings: AfaCs | Ia2Sgd | Dude | Ace, given: Given) -> Method:
    """The method that an experiment names."""
    if isinstance(settings, AfaCs):
        return gradient_table("afa-cs", given.clients, settings.server_step_size or given.step_size * given.local_steps)
    every_arrival = not isinstance(settings, Dude)
    return gradient_table(settings.name, given.clients, given.step_size, every_arrival=every_arrival)
