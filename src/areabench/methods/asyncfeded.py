"""AsyncFedED: an update's step shrinks with the distance that the server's model has moved since; local work adapts.

Q. Wang, Q. Yang, S. He, Z. Shi, J. Chen, AsyncFedED: Asynchronous Federated Learning with Euclidean Distance based
Adaptive Weight Aggregation, 2022. The distance is relative to the length of the update.
"""

from __future__ import annotations

from math import floor

import numpy as np

from areabench.arrays import Vector
from areabench.experiment.method_records import AsyncFedEd
from areabench.methods.base import Arrival, Call, Given, Method, Step, remember_nothing
from areabench.methods.fedasync import MixingState, has_mixed, step_to_mixed
from areabench.methods.fedbuff import send_pseudo_gradient


def asyncfeded(clients: int, settings: AsyncFedEd) -> Method:
    """AsyncFedED with `clients` clients; a client's number of local steps is that of its last round, adapted."""

    def start(model: Vector) -> Step:
        return Step(MixingState(model, None), tuple(range(clients)))

    def receive(state: MixingState, arrival: Arrival) -> Step:  # x_s <- x_s - lambda/(gamma + epsilon) · D_i
        length, steps = float(np.linalg.norm(arrival.payload)), arrival.local_steps
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


def build(settings: AsyncFedEd, given: Given) -> Method:
    """The method that an experiment names."""
    return asyncfeded(given.clients, settings)
