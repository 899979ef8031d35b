"""AsyncCommSGD: clients step by one clock, and add 1/n of their progress when they communicate.

D. Avdiukhin, S. P. Kasiviswanathan: Federated Learning under Arbitrary Communication Patterns, ICML 2021. A client
makes as many local steps as its delay has ticks (`clients.work = "ticks"`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Report, Step, Work, remember_nothing
from areabench.settings.keys import Need, key


@dataclass(frozen=True, kw_only=True)
class AsyncCommSgd(MethodSettings):
    """AsyncCommSGD: clients step by one clock; one that reports adds 1/n of its progress and continues."""

    label = "AsyncCommSGD"
    colour = "#A05195"
    page = "methods-local-work.md#asynccommsgd"
    paper = "Avdiukhin and Kasiviswanathan, ICML 2021"
    chooses = "clients"
    limit = "exact as steps fall"
    memory = "2 d"
    needs = (
        Need("aggregation.name", ("updates",), "which itself decides when to step"),
        Need("clients.work", ("ticks",), "whose clients step by one clock"),
    )

    name: str = "asynccomm-sgd"
    step_size: float = key("step size eta", above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return asynccomm_sgd(inputs.clients)


class CommState(NamedTuple):
    """The server's model, and the progress that has arrived but is not added yet."""

    model: Vector
    progress: Vector | None = None


def asynccomm_sgd(clients: int) -> Method:
    """AsyncCommSGD with `clients` clients."""

    def report(_memory: None, work: Work) -> Report:
        # x_i - x^b
        return Report(work.local - work.model, memory=None)

    def start(model: Vector) -> Step:
        return Step(CommState(model), tuple(range(clients)))

    def receive(state: CommState, arrival: Arrival) -> Step:
        return Step(CommState(state.model, arrival.payload.copy()), (arrival.client,))

    def aggregate(state: CommState) -> Step:
        # x <- x + (x_i - x^b)/n, from which the client continues
        assert state.progress is not None
        return Step(CommState(state.model + state.progress / clients))

    def due(state: CommState) -> bool:
        return state.progress is not None

    return Method("asynccomm-sgd", remember_nothing, report, start, receive, aggregate, reply="after", due=due)
