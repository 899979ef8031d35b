"""Ringleader ASGD: a table of every client's gradients, then one step per client, then the next table.

A. Maranjyan, P. Richtárik: Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under Data
Heterogeneity, ICLR 2026.

A round has two phases. Phase 1 waits until every client is in the table. Phase 2 makes exactly n steps, each with the
mean of the table: the first for the client that came last, then one for each other client at its next update, which
goes into the table too. A client gets a new model at its own step only, so that all its updates in a table began at the
same model. What comes from a client whose step is over is for the next table.

A client's row is needed until its own step, and belongs to the next table from then on: one row per client is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import (
    Arrival,
    Call,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    noise_step,
    remember_nothing,
    with_entry,
    without,
)
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class Ringleader(MethodSettings):
    """Ringleader ASGD: a table of every client's gradients, then one step per client, then the next table."""

    label = "Ringleader"
    colour = "#56B4E9"
    page = "methods-optimal-time.md#ringleader"
    paper = "Maranjyan and Richtárik, ICLR 2026"
    chooses = "clients"
    limit = "exact"
    memory = "(n + 3) d"
    advice_from = "noise"

    name: str = "ringleader"
    step_size: float = key("step size gamma", above=0)

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """The step down to the least epsilon, the squared norm of the gradient, that a table is for."""
        clients = len(rates)
        times = 1 / rates
        B = max(1.0, float(times.max() / (2 * times.mean())))
        epsilon = 10 * sigma**2 / (8 * clients * B)
        step = min(1 / (8 * clients * L), noise_step(epsilon * B, 10 * L, sigma))
        yield f"gamma = min(1/(8·n·L), epsilon·B/(10·L·sigma²)) = {step:.4g} down to epsilon = {epsilon:.4g}"
        yield f"B = max(1, t_max/(2·mean t)) = {B:.4g} gradients of each client in a table, from the rates"

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return ringleader(inputs.clients)


class RingleaderState(NamedTuple):
    """The server's model, and the table: a row is the mean of `counts` updates, and changes in place."""

    model: Vector
    rows: Vector  # (clients, *shape of the model)
    counts: tuple[int, ...]
    total: Vector  # the sum of the rows of this round's table
    entries: int  # how many these are
    following: Vector  # the sum of the rows that are for the next table
    awaited: tuple[int, ...] = ()  # clients whose step of phase 2 is to come; none in phase 1
    due: bool = False
    lost: tuple[int, ...] = ()


def ringleader(clients: int) -> Method:
    """Ringleader ASGD with `clients` clients."""

    def start(model: Vector) -> Step:
        nothing = np.zeros_like(model)
        rows = np.zeros((clients, *model.shape), model.dtype)
        return Step(RingleaderState(model, rows, (0,) * clients, nothing, clients, nothing), tuple(range(clients)))

    def receive(state: RingleaderState, arrival: Arrival) -> Step:
        client = arrival.client
        phase_1 = not state.awaited
        count = state.counts[client]
        row = state.rows[client]
        change = (arrival.payload - row) / (count + 1) if count else arrival.payload
        np.add(row if count else 0, change, out=row)
        if phase_1 or client in state.awaited:
            state = state._replace(total=state.total + change)
        else:
            state = state._replace(following=state.following + change)
        state = state._replace(counts=with_entry(state.counts, client, count + 1))
        if phase_1 and complete(state):
            state = state._replace(awaited=left(state))
        if client not in state.awaited:
            # the client works on the same model again, so that all its updates in a table began there
            return Step(state, (Call(client, arrival.model, version=arrival.version),))
        awaited = without(state.awaited, client)
        return Step(state._replace(awaited=awaited, counts=with_entry(state.counts, client, 0), due=True), (client,))

    def aggregate(state: RingleaderState) -> Step:
        # x <- x - gamma · (1/n) Σ mean of client i's gradients
        state = state._replace(model=state.model - state.total / state.entries, due=False)
        return Step(state if state.awaited else next_round(state))

    def next_round(state: RingleaderState) -> RingleaderState:
        entries = len(left(state))
        nothing = np.zeros_like(state.model)
        return state._replace(total=state.following, following=nothing, entries=entries)

    def lose(state: RingleaderState, client: int, _orders: int) -> Step:
        """Take its row out; what it has given to the steps of this round stays until the round is over."""
        count = state.counts[client]
        in_round = not state.awaited or client in state.awaited
        row = state.rows[client]
        phase_2 = bool(state.awaited)
        state = state._replace(lost=(*state.lost, client), counts=with_entry(state.counts, client, 0))
        if count and in_round:
            state = state._replace(total=state.total - row)
        elif count:
            state = state._replace(following=state.following - row)
        if in_round:
            state = state._replace(entries=state.entries - 1)
        awaited = without(state.awaited, client)
        state = state._replace(awaited=awaited)
        if phase_2 and not awaited:
            state = next_round(state)
        if not awaited and complete(state):  # nobody came last: every client has its step at its next update
            state = state._replace(awaited=left(state))
        return Step(state)

    def left(state: RingleaderState) -> tuple[int, ...]:
        return tuple(client for client in range(clients) if client not in state.lost)

    def complete(state: RingleaderState) -> bool:
        return all(state.counts[client] for client in left(state)) if state.lost else all(state.counts)

    return Method(
        "ringleader", remember_nothing, send_pseudo_gradient, start, receive, aggregate,
        reply="after", due=lambda state: state.due, lose=lose,
    )  # fmt: skip
