"""FedFix: the server steps by the clock, and each client that has answered weighs inverse to its chance to do so.

Y. Fraboni, R. Vidal, L. Kameni, M. Lorenzi, A General Theory for Federated Optimization with Asynchronous and
Heterogeneous Clients Updates, JMLR 24, 2023. A client that has answered waits for the step, as in their model, so it
is in a step once at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.methods.base import (
    Arrival,
    Buffer,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    remember_nothing,
    without,
)
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients


@dataclass(frozen=True, kw_only=True)
class FedFix(MethodSettings):
    """FedFix: steps by the clock, for which clients wait; one that has answered weighs inverse to its chance to."""

    label = "FedFix"
    colour = "#8C6D00"
    page = "methods-buffered.md#fedfix"
    paper = "Fraboni et al., JMLR 2023"
    chooses = "server: who has answered"
    client_driven = False
    limit = "exact on average"
    memory = "2 d + n"
    needs = (
        Need("aggregation.name", ("period", "poisson"), "which steps by the clock"),
        Need("delays.name", ("exponential", "fixed"), "which must know how often a client answers"),
        Need("delays.per", ("round",), "which must know how often a client answers"),
    )

    name: str = "fedfix"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)

    def shares_pass(self, clients: Clients) -> bool:
        """Who works depends on no model."""
        return True

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        assert inputs.period_s is not None
        answers = chances(inputs.rates, inputs.period_s, inputs.delays, random_steps=inputs.random_steps)
        return fedfix(1 / (inputs.clients * answers), self.server_step_size)


_ROUNDING = 1e-9  # a delay that exceeds a whole number of periods by no more than this does not need another one


class FedFixState(NamedTuple):
    """The server's model, the weighted pseudo-gradients, and the clients that wait for the step."""

    model: Vector
    buffer: Buffer
    waiting: tuple[int, ...]


def chances(rates: NDArray[np.float64], period_s: float, delays: str, *, random_steps: bool) -> NDArray[np.float64]:
    """q_i: which share of the steps client i is in, if each of its rounds begins at a step.

    A round of duration T is in the ⌈T/period⌉-th step from its begin, so q_i = 1/E⌈T/period⌉. Steps of a Poisson
    process: there are rate·T in between on average, whatever the law of T.
    """
    if random_steps:
        return 1 / (1 + 1 / (rates * period_s))
    if delays == "fixed":
        return 1 / np.ceil((1 - _ROUNDING) / (rates * period_s))
    chance: NDArray[np.float64] = -np.expm1(-rates * period_s)
    return chance


def fedfix(weights: NDArray[np.float64], server_step_size: float) -> Method:
    """FedFix with the weight d_i of each client and the server step size eta."""

    def start(model: Vector) -> Step:
        return Step(FedFixState(model, Buffer(), ()), tuple(range(len(weights))))

    def receive(state: FedFixState, arrival: Arrival) -> Step:
        weighted = float(weights[arrival.client]) * arrival.payload
        return Step(FedFixState(state.model, state.buffer.add(weighted), (*state.waiting, arrival.client)))

    def aggregate(state: FedFixState) -> Step:
        # x_s <- x_s - eta · sum of d_i D_i, which goes to those that waited
        if state.buffer.total is None:
            return Step(state)
        model = state.model - server_step_size * state.buffer.total
        return Step(FedFixState(model, Buffer(), ()), state.waiting)

    def lose(state: FedFixState, client: int, _orders: int) -> Step:
        """What the client has sent stays; it is not called again."""
        return Step(state._replace(waiting=without(state.waiting, client)))

    return Method("fedfix", remember_nothing, send_pseudo_gradient, start, receive, aggregate, lose=lose)
