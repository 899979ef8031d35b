"""Ringmaster ASGD: asynchronous SGD that uses no update whose model is R or more versions old.

A. Maranjyan, A. Tyurin, P. Richtárik: Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity, ICML
2025: Algorithm 4 ignores late updates, Algorithm 5 stops the clients that work on them.
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.arrays import Vector
from areabench.experiment.method_records import Ringmaster
from areabench.methods.base import Arrival, Given, Method, Step, remember_nothing
from areabench.methods.fedbuff import send_pseudo_gradient

_NO_ORDER = 2**62  # in place of a version: never late


class RingmasterState(NamedTuple):
    """The server's model, the one that the next step leads to, and the version that each client works on.

    The versions are kept only where clients are stopped.
    """

    model: Vector
    following: Vector | None
    version: int
    orders: tuple[int, ...]


def ringmaster(clients: int, max_delay: int, stops: bool) -> Method:
    """Ringmaster ASGD with the delay threshold R."""

    def start(model: Vector) -> Step:
        return Step(RingmasterState(model, None, 0, (0,) * clients if stops else ()), tuple(range(clients)))

    def receive(state: RingmasterState, arrival: Arrival) -> Step:
        late = arrival.staleness >= max_delay
        following = None if late else state.model - arrival.payload
        version = state.version + (not late)  # that the reply carries
        return Step(state._replace(following=following, orders=put(state, arrival.client, version)), (arrival.client,))

    def aggregate(state: RingmasterState) -> Step:  # x <- x - gamma g; those who became late start again from it
        version = state.version + 1
        late = tuple(client for client, order in enumerate(state.orders) if version - order >= max_delay)
        orders = tuple(version if version - order >= max_delay else order for order in state.orders)
        assert state.following is not None
        return Step(RingmasterState(state.following, None, version, orders), late, cancels=late)

    def due(state: RingmasterState) -> bool:
        return state.following is not None

    def again(state: RingmasterState, client: int, version: int) -> RingmasterState:
        return state._replace(orders=put(state, client, version))

    def lose(state: RingmasterState, client: int, _orders: int) -> Step:
        return Step(state._replace(orders=put(state, client, _NO_ORDER)))

    def put(state: RingmasterState, client: int, version: int) -> tuple[int, ...]:
        return (*state.orders[:client], version, *state.orders[client + 1 :]) if stops else ()

    return Method(
        "ringmaster", remember_nothing, send_pseudo_gradient, start, receive, aggregate,
        reply="after", due=due, again=again, lose=lose, interrupts=stops,
    )  # fmt: skip


def build(settings: Ringmaster, given: Given) -> Method:
    """The method that an experiment names."""
    return ringmaster(given.clients, settings.max_delay, settings.stops)
