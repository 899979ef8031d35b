"""A method that cancels: asynchronous SGD whose server stops rounds that are `age` versions old and orders new ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from areabench.extend import Arrival, Method, Report, Step, Vector, Work, remember_nothing


class StopperState(NamedTuple):
    """The model and its version, what has arrived and from whom, and the version that each client works from."""

    model: Vector
    version: int
    sender: int
    update: Vector
    bases: Vector


def stopper(clients: int, age: int = 4) -> Method:
    """The method."""

    def report(_memory: None, work: Work) -> Report:
        return Report(work.local - work.model, None)

    def start(model: Vector) -> Step:
        state = StopperState(model, 0, -1, np.zeros_like(model), np.zeros(clients, np.int64))
        return Step(state, tuple(range(clients)))

    def receive(state: StopperState, arrival: Arrival) -> Step:
        return Step(state._replace(sender=arrival.client, update=arrival.payload.copy()), (arrival.client,))

    def aggregate(state: StopperState) -> Step:
        version, bases = state.version + 1, state.bases.copy()
        bases[state.sender] = version
        old = tuple(np.flatnonzero(version - bases >= age).tolist())
        bases[list(old)] = version
        model = state.model + state.update
        return Step(StopperState(model, version, -1, state.update, bases), calls=old, cancels=old)

    def due(state: StopperState) -> bool:
        return state.sender >= 0

    return Method(
        "stopper", remember_nothing, report, start, receive, aggregate, reply="after", due=due, interrupts=True
    )
