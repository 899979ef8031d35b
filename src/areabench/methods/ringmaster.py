"""Ringmaster ASGD: asynchronous SGD that uses no update whose model is R or more versions old.

A. Maranjyan, A. Tyurin, P. Richtárik: Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity, ICML
2025: Algorithm 4 ignores late updates, Algorithm 5 stops the clients that work on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import (
    Arrival,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    noise_step,
    remember_nothing,
    with_entry,
)
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Ringmaster(MethodSettings):
    """Ringmaster ASGD: updates that are too old are ignored, or their computation is stopped."""

    label = "Ringmaster"
    colour = "#4A6FE3"
    page = "methods-optimal-time.md#ringmaster"
    paper = "Maranjyan et al., ICML 2025"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"
    advice_from = "noise"

    name: str = "ringmaster"
    step_size: float = key("step size gamma", above=0)
    max_delay: int = key("R: an update that is R or more versions old is not used", minimum=1)
    stops: bool = key("whether a client whose model has become R versions old is stopped and starts again", False)

    @property
    def client_driven(self) -> bool:
        """Whether no round is stopped."""
        return not self.stops

    def check(self, experiment: Experiment) -> None:
        """A round that is stopped has its number of local steps from the server."""
        work = experiment.clients.work
        if self.stops and work != "fixed":
            raise UserError(
                f'method.stops: true makes no sense with clients.work = "{work}", where clients choose their local '
                'steps themselves; use clients.work = "fixed"'
            )

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """The step for the least epsilon, the squared norm of the gradient that is wanted, that R is for."""
        R = self.max_delay
        epsilon = sigma**2 / R
        step = min(1 / (2 * R * L), noise_step(epsilon, 4 * L, sigma))
        yield f"R = {R} = max(1, ceil(sigma²/epsilon)) fits epsilon = {epsilon:.4g}"
        yield f"gamma = min(1/(2·R·L), epsilon/(4·L·sigma²)) = {step:.4g}"

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return ringmaster(inputs.clients, self.max_delay, self.stops)


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

    def aggregate(state: RingmasterState) -> Step:
        # x <- x - gamma g; those who became late start again from it
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
        return with_entry(state.orders, client, version) if stops else ()

    return Method(
        "ringmaster", remember_nothing, send_pseudo_gradient, start, receive, aggregate,
        reply="after", due=due, again=again, lose=lose, interrupts=stops,
    )  # fmt: skip
