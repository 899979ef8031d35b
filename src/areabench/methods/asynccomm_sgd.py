"""AsyncCommSGD: clients step by one clock, and add 1/n of their progress when they communicate.

D. Avdiukhin, S. P. Kasiviswanathan: Federated Learning under Arbitrary Communication Patterns, ICML 2021. A client
makes as many local steps as its delay has ticks (`clients.work = "ticks"`).
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.arrays import Vector
from areabench.experiment.method_records import AsyncCommSgd
from areabench.methods.base import Arrival, Given, Method, Report, Step, Work, remember_nothing


class CommState(NamedTuple):
    """The server's model, and the progress that has arrived but is not added yet."""

    model: Vector
    progress: Vector | None = None


def asynccomm_sgd(clients: int) -> Method:
    """AsyncCommSGD with `clients` clients."""

    def report(_memory: None, work: Work) -> Report:  # x_i - x^b
        return Report(work.local - work.model, memory=None)

    def start(model: Vector) -> Step:
        return Step(CommState(model), tuple(range(clients)))

    def receive(state: CommState, arrival: Arrival) -> Step:
        return Step(CommState(state.model, arrival.payload.copy()), (arrival.client,))

    def aggregate(state: CommState) -> Step:  # x <- x + (x_i - x^b)/n, from which the client continues
        assert state.progress is not None
        return Step(CommState(state.model + state.progress / clients))

    def due(state: CommState) -> bool:
        return state.progress is not None

    return Method("asynccomm-sgd", remember_nothing, report, start, receive, aggregate, reply="after", due=due)


def build(_settings: AsyncCommSgd, given: Given) -> Method:
    """The method that an experiment names."""
    return asynccomm_sgd(given.clients)
