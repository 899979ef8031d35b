"""AREA: asynchronous exact averaging.

C. Iakovidou, K. Kim: Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under
Arbitrary Delays, Algorithm 1 (server) and Algorithm 2 (client).

Invariant, after every event: x_s + u equals the mean of the clients' memories as the server has heard of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from areabench.algorithms.base import Method, Report, Step
from areabench.algorithms.buffered import Buffer
from areabench.problems.base import Vector


class AreaState(NamedTuple):
    """The server's model x_s, and the residuals m_i it has received since it last stepped: u is their sum over n."""

    model: Vector
    residuals: Buffer
    clients: int  # n

    @property
    def aggregator(self) -> Vector:
        """The aggregator u."""
        total = self.residuals.total
        return np.zeros_like(self.model) if total is None else total / self.clients


def area(clients: int) -> Method:
    """AREA with `clients` clients."""

    def remember(start: Vector) -> Vector:  # Algorithm 2, initialization: y_i = x_{s,0}
        return start

    def report(memory: Vector | None, _base: Vector, local: Vector) -> Report:
        return Report(local - memory, local)  # send m_i = x_i^M - y_i, then y_i <- x_i^M

    def start(model: Vector) -> Step:  # Algorithm 1, initialization: u = 0, broadcast x_{s,0}
        return Step(AreaState(model, Buffer(), clients), tuple(range(clients)))

    def receive(state: AreaState, client: int, payload: Vector) -> Step:  # u <- u + m_i/n; x_s goes back to client i
        return Step(AreaState(state.model, state.residuals.add(payload), clients), (client,))

    def aggregate(state: AreaState) -> Step:  # x_s <- x_s + u, u <- 0
        return Step(AreaState(state.model + state.aggregator, Buffer(), clients))

    return Method("area", remember, report, start, receive, aggregate)
