"""ACED: ACE with a bound on the age of the gradients that count.

X. Chang et al., Mitigating Participation Imbalance Bias in Asynchronous Federated Learning, arXiv:2511.19066, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Report, Step, Work, remember_nothing
from areabench.methods.gradient_tables import mean_gradient
from areabench.settings.keys import Need, key


@dataclass(frozen=True, kw_only=True)
class Aced(MethodSettings):
    """ACED: a gradient table at the server, of which only entries that are not too old count."""

    label = "ACED"
    colour = "#6B8E73"
    page = "methods-memory.md#aced"
    paper = "Chang et al., arXiv:2511.19066, 2025"
    chooses = "clients"
    limit = "biased to fast clients where entries expire"
    memory = "(n + 2) d"
    needs = (
        Need("aggregation.name", ("updates",), "which steps for every update"),
        Need("schedule.name", ("constant",), "whose server's gamma no schedule changes"),
        Need(
            "clients.work",
            ("fixed", "uniform"),
            "whose rounds need local steps",
        ),
    )

    name: str = "aced"
    step_size: float = key("step size gamma", above=0)
    max_delay: int = key("tau_algo: greatest age of an entry that counts, in server steps", 100, minimum=1)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return aced(inputs.clients, inputs.step_size, self.max_delay)


_NO_ENTRY = -1


class AcedState(NamedTuple):
    """The server's model, the table, and the sum and number of its entries that count."""

    model: Vector
    table: Vector  # the clients' last gradients, shape (n, d); one row changes in place
    since: NDArray[np.int64]  # server steps before each entry came, shape (n,); -1 where it does not count
    total: Vector
    size: int
    steps: int  # server steps so far
    awaited: int  # clients that have not reported, lost ones aside
    pending: int = 0  # updates since the last server step


def aced(clients: int, step_size: Any, max_delay: int) -> Method:
    """ACED: entries count that are at most `max_delay` server steps old; the first step comes when all have reported.

    A running sum makes a step cost O(n + d), and O(d) more for each entry that has become too old.
    """

    def report(_memory: None, work: Work) -> Report:
        return Report(mean_gradient(work), memory=None)

    def start(model: Vector) -> Step:
        table = np.zeros((clients, *model.shape), model.dtype)
        since = np.full(clients, _NO_ENTRY, np.int64)
        return Step(AcedState(model, table, since, np.zeros_like(model), 0, 0, clients), tuple(range(clients)))

    def receive(state: AcedState, arrival: Arrival) -> Step:
        client = arrival.client
        gradient = arrival.payload
        counted = state.since[arrival.client] != _NO_ENTRY
        change = gradient - state.table[client] if counted else gradient
        state.table[client] = gradient
        state.since[client] = state.steps
        state = state._replace(
            total=state.total + change,
            size=state.size + (not counted),
            awaited=state.awaited - (not counted and state.awaited > 0),  # no entry is too old before the first step
            pending=state.pending + 1,
        )
        return Step(state, (client,))

    def drop(state: AcedState, entries: NDArray[np.int64]) -> AcedState:
        """Let these entries count no more."""
        state.since[entries] = _NO_ENTRY
        total = state.total - state.table[entries].sum(axis=0)
        return state._replace(total=total, size=state.size - len(entries))

    def aggregate(state: AcedState) -> Step:
        # x_s <- x_s - gamma · mean of the entries that count
        old = np.flatnonzero((state.since != _NO_ENTRY) & (state.since < state.steps - max_delay))
        if len(old):
            state = drop(state, old)
        model = state.model - step_size * (state.total / state.size)
        return Step(state._replace(model=model, steps=state.steps + 1, pending=0))

    def due(state: AcedState) -> bool:
        return state.pending > 0 and not state.awaited

    def lose(state: AcedState, client: int, _orders: int) -> Step:
        """A lost client's entry counts no more; a client without one is not awaited."""
        if state.since[client] != _NO_ENTRY:
            return Step(drop(state, np.array([client])))
        return Step(state._replace(awaited=state.awaited - (state.awaited > 0)))

    return Method("aced", remember_nothing, report, start, receive, aggregate, reply="after", due=due, lose=lose)
