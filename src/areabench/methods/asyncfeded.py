"""AsyncFedED: an update's step shrinks with the distance that the server's model has moved since; local work adapts.

Q. Wang, Q. Yang, S. He, Z. Shi, J. Chen, AsyncFedED: Asynchronous Federated Learning with Euclidean Distance based
Adaptive Weight Aggregation, 2022. The distance is relative to the length of the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Call, Method, MethodInputs, MethodSettings, Step, remember_nothing
from areabench.methods.fedasync import MixingState, has_mixed, step_to_mixed
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


@dataclass(frozen=True, kw_only=True)
class AsyncFedEd(MethodSettings):
    """AsyncFedED: the step of an update shrinks with the distance that the server's model has moved since."""

    label = "AsyncFedED"
    colour = "#9E2B25"
    page = "methods-mixing.md#asyncfeded"
    paper = "Wang et al., 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"
    needs = (
        Need("aggregation.name", ("updates",), "which steps at each arrival"),
        Need("clients.work", ("fixed",), "which sets the number of local steps"),
    )

    name: str = "asyncfeded"
    scale: float = key("lambda of the step lambda/(gamma + epsilon)", 1.0, above=0)
    epsilon: float = key("epsilon", 1.0, above=0)
    target: float = key("gamma that the number of local steps is steered to", 3.0, minimum=0)
    gain: float = key("kappa: how many local steps a unit of gamma adds or removes", 1.0, minimum=0)
    most_steps: int = key("greatest number of local steps", 50, minimum=1)

    def shares_pass(self, clients: Clients) -> bool:
        """Local steps depend on the model."""
        return False

    def check(self, experiment: Experiment) -> None:
        """Each client begins with M local steps."""
        steps = experiment.clients.local_steps
        if self.most_steps < steps:
            raise UserError(
                f"method.most_steps: {self.most_steps} is less than clients.local_steps = {steps}, which each client "
                f"begins with; use at least {steps}"
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return asyncfeded(inputs.clients, self)


def asyncfeded(clients: int, settings: AsyncFedEd) -> Method:
    """AsyncFedED with `clients` clients; a client's number of local steps is that of its last round, adapted."""

    def start(model: Vector) -> Step:
        return Step(MixingState(model, None), tuple(range(clients)))

    def receive(state: MixingState, arrival: Arrival) -> Step:
        # x_s <- x_s - lambda/(gamma + epsilon) · D_i
        length = float(np.linalg.norm(arrival.payload))
        steps = arrival.local_steps
        if not length:  # the update is nothing, and gamma not defined
            return Step(MixingState(state.model, state.model), (Call(arrival.client, local_steps=steps),))
        gamma = float(np.linalg.norm(state.model - arrival.model)) / length
        mixed = state.model - settings.scale / (gamma + settings.epsilon) * arrival.payload
        call = Call(arrival.client, local_steps=adapted(settings, steps, gamma))
        return Step(MixingState(state.model, mixed), (call,))

    return Method(
        "asyncfeded", remember_nothing, send_pseudo_gradient, start, receive, step_to_mixed, reply="after",
        due=has_mixed,
    )  # fmt: skip


def adapted(settings: AsyncFedEd, steps: int, gamma: float) -> int:
    """K_i <- K_i + ⌊(target - gamma)·kappa⌋, between 1 and the greatest number of local steps."""
    change = (settings.target - gamma) * settings.gain
    most = settings.most_steps
    return min(most, max(1, steps + floor(max(-most, min(most, change)))))  # gamma may be huge
