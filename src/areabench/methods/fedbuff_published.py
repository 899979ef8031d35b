"""FedBuff as published: a given concurrency, clients drawn when a slot is free, updates scaled by their staleness.

J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022, Algorithm 1. With C = n and
no scaling it is the FedBuff of the AREA paper, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Buffer, Method, MethodInputs, MethodSettings, Step, remember_nothing
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


@dataclass(frozen=True, kw_only=True)
class FedBuffPublished(MethodSettings):
    """FedBuff as published: a given concurrency, clients drawn when a slot is free, updates scaled by staleness."""

    label = "FedBuff as published"
    colour = "#B07D2B"
    page = "methods-buffered.md#fedbuff-as-published"
    paper = "Nguyen et al., AISTATS 2022"
    chooses = "server, uniformly among idle ones"
    limit = "biased to fast clients, less where fewer work"
    memory = "2 d + n"

    name: str = "fedbuff-published"
    server_step_size: float = key("step size eta of the server", 1.0, above=0)
    concurrency: int | None = key("clients at work at any time; left out: n", None, minimum=1)
    staleness: Literal["constant", "inverse-root"] = key(
        "factor of an update that is tau versions old: 1, or 1/sqrt(1 + tau)", "inverse-root"
    )

    @property
    def client_driven(self) -> bool:
        """Whether every client works all the time: then the one that has answered is the only free one."""
        return self.concurrency is None

    def shares_pass(self, clients: Clients) -> bool:
        """Who works depends on no model."""
        return True

    def check(self, experiment: Experiment) -> None:
        """No more clients work than there are."""
        if (self.concurrency or 0) > experiment.clients.count:
            raise UserError(
                f"method.concurrency: {self.concurrency} is more than clients.count = {experiment.clients.count}; use "
                f"at most {experiment.clients.count}"
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        concurrency = self.concurrency or inputs.clients
        scaled = self.staleness == "inverse-root"
        return fedbuff_published(inputs.clients, concurrency, self.server_step_size, scaled, inputs.seed)


class PublishedState(NamedTuple):
    """The server's model, the scaled pseudo-gradients, the clients without an order, and the draws so far."""

    model: Vector
    buffer: Buffer
    idle: NDArray[np.int64]
    draws: int


def fedbuff_published(clients: int, concurrency: int, server_step_size: float, scaled: bool, seed: int) -> Method:
    """FedBuff with C = `concurrency` of `clients` clients at work, the server step size eta, and 1/sqrt(1 + tau)."""

    def start(model: Vector) -> Step:
        order = np.arange(clients)
        if concurrency < clients:
            order = stream(seed, Purpose.SELECTION).permutation(clients)
        state = PublishedState(model, Buffer(), np.sort(order[concurrency:]), draws=1)
        return Step(state, tuple(order[:concurrency].tolist()))

    def receive(state: PublishedState, arrival: Arrival) -> Step:
        scale = 1 / sqrt(1 + arrival.staleness) if scaled else 1.0
        payload = arrival.payload if scale == 1 else scale * arrival.payload
        drawn = draw(state, len(state.idle) + 1)
        state = state._replace(buffer=state.buffer.add(payload), draws=state.draws + 1)
        if drawn == len(state.idle):  # the one that has answered is free, too
            return Step(state, (arrival.client,))
        idle = state.idle.copy()
        called = int(idle[drawn])
        idle[drawn] = arrival.client
        return Step(state._replace(idle=idle), (called,))

    def draw(state: PublishedState, free: int) -> int:
        """A place among the free clients, all alike."""
        return int(stream(seed, Purpose.SELECTION, state.draws).integers(free)) if free > 1 else 0

    def aggregate(state: PublishedState) -> Step:
        # x_s <- x_s - eta · (sum of the scaled updates)/K
        if state.buffer.size == 0:
            return Step(state)
        model = state.model - server_step_size * state.buffer.mean()
        return Step(state._replace(model=model, buffer=Buffer()))

    def lose(state: PublishedState, client: int, orders: int) -> Step:
        """Give the slot of a lost client to another one, if one is free."""
        idle = state.idle[state.idle != client]
        if not orders or not len(idle):
            return Step(state._replace(idle=idle))
        drawn = draw(state, len(idle))
        state = state._replace(idle=np.delete(idle, drawn), draws=state.draws + 1)
        return Step(state, (int(idle[drawn]),))

    return Method("fedbuff-published", remember_nothing, send_pseudo_gradient, start, receive, aggregate, lose=lose)
