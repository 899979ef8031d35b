"""MIFA: rounds in which clients that have not answered stand in with their last update.

X. Gu, K. Huang, J. Zhang, L. Huang: Fast Federated Learning in the Presence of Arbitrary Device Unavailability,
NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Report, Step, Work, without
from areabench.methods.gradient_tables import ClientMean
from areabench.settings.keys import Need, key


@dataclass(frozen=True, kw_only=True)
class Mifa(MethodSettings):
    """MIFA: rounds by the clock, in which clients that have not answered stand in with their last update."""

    label = "MIFA"
    colour = "#40B5AD"
    page = "methods-memory.md#mifa"
    paper = "Gu et al., NeurIPS 2021"
    chooses = "server: all that are free, in each round"
    client_driven = False
    limit = "exact"
    memory = "2 d"
    needs = (Need("aggregation.name", ("period", "poisson"), "whose rounds end by the clock"),)

    name: str = "mifa"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return mifa(inputs.clients, self.server_step_size)


class MifaState(NamedTuple):
    """The server's model, the clients' last updates, and who has answered in this round."""

    model: Vector
    updates: ClientMean
    answered: tuple[int, ...] = ()


def mifa(clients: int, server_step_size: float) -> Method:
    """MIFA with `clients` clients and the server step size eta; the first round ends when all have answered."""

    def report(memory: Vector, work: Work) -> Report:
        # send D_i - its last one
        update = work.model - work.local
        return Report(update - memory, update)

    def start(model: Vector) -> Step:
        return Step(MifaState(model, ClientMean.begin(model, clients)), tuple(range(clients)))

    def receive(state: MifaState, arrival: Arrival) -> Step:
        # the client is free until the next round
        updates = state.updates.add(arrival.client, arrival.payload)
        return Step(MifaState(state.model, updates, (*state.answered, arrival.client)))

    def aggregate(state: MifaState) -> Step:
        # x_s <- x_s - eta · sum/n; all free clients work from there
        if state.updates.awaited:
            # the first round waits for all, as nothing could stand in for a client that has not answered
            return Step(state, stepped=False)
        return Step(MifaState(state.model - server_step_size * state.updates.mean(), state.updates), state.answered)

    def lose(state: MifaState, client: int, _orders: int) -> Step:
        free = without(state.answered, client)
        return Step(MifaState(state.model, state.updates.lose(client), free))

    def recalled(state: MifaState) -> Vector:
        return state.updates.total.astype(np.float64)

    def remove(state: MifaState, count: int, memories: Vector) -> MifaState:
        return state._replace(updates=state.updates.remove(count, memories))

    return Method("mifa", np.zeros_like, report, start, receive, aggregate, lose=lose, recalled=recalled, remove=remove)
