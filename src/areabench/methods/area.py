"""AREA: asynchronous exact averaging.

C. Iakovidou, K. Kim: Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under
Arbitrary Delays, Algorithm 1 (server) and Algorithm 2 (client).

Invariant, after every event: x_s + u equals the mean of the clients' memories as the server knows them. A lost client
stays in that mean with its last known memory, unless it is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import (
    Arrival,
    Buffer,
    Method,
    MethodInputs,
    MethodSettings,
    Report,
    Step,
    Work,
    add_to_buffer,
    remember_start,
)
from areabench.settings.keys import key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Area(MethodSettings):
    """AREA, the paper's Algorithms 1 and 2: residuals against a client-side memory."""

    label = "AREA"
    colour = "#0072B2"
    page = "methods.md#area"
    paper = "Iakovidou and Kim, Asynchronous Federated Stochastic Optimization"
    chooses = "clients"
    limit = "exact"
    memory = "2 d"
    has_theorems = True

    name: str = "area"
    step_size: float = key(
        "step size alpha; of iteration 0 with a schedule, a factor with a theorem's schedule", above=0
    )
    first_message: Literal["trained", "zero"] = key(
        "a client's first message: from M local steps on x_s0, as in Algorithm 2, or zero, as in the paper's appendix, "
        "where x_i0 = x_s0 and a client first trains on the reply to it",
        "trained",
        written=False,
    )

    @property
    def trains_first(self) -> bool:
        """Whether a client's first message is that of M local steps."""
        return self.first_message == "trained"

    def check(self, experiment: Experiment) -> None:
        """A first message of zero is made of M local steps in name alone."""
        if self.first_message == "zero" and experiment.clients.work != "fixed":
            raise UserError(
                f'method.first_message: "zero" has no number of local steps that clients.work = '
                f'"{experiment.clients.work}" could choose; use "trained"'
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return area(inputs.clients, trains_first=self.first_message == "trained")


class AreaState(NamedTuple):
    """The server's model x_s, and the residuals m_i it has received since it last stepped: u is their sum over n."""

    model: Vector
    buffer: Buffer
    clients: int  # n, those in the average

    @property
    def aggregator(self) -> Vector:
        """The aggregator u."""
        total = self.buffer.total
        return np.zeros_like(self.model) if total is None else total / self.clients


def area(clients: int, trains_first: bool = True) -> Method:
    """AREA of n clients; without `trains_first` first messages are zero, as in the appendix (x_{i,0} = x_{s,0})."""

    def report(memory: Vector, work: Work) -> Report:
        return Report(work.local - memory, work.local)  # send m_i = x_i^M - y_i, then y_i <- x_i^M

    def start(model: Vector) -> Step:
        # Algorithm 1, initialization: u = 0, broadcast x_{s,0}
        return Step(AreaState(model, Buffer(), clients), tuple(range(clients)))

    def receive(state: AreaState, arrival: Arrival) -> Step:
        # u <- u + m_i/n; x_s goes back to client i
        return Step(AreaState(state.model, state.buffer.add(arrival.payload), state.clients), (arrival.client,))

    def aggregate(state: AreaState) -> Step:
        # x_s <- x_s + u, u <- 0
        u = state.aggregator
        return Step(AreaState(np.add(state.model, u, out=u), Buffer(), state.clients))

    def recalled(state: AreaState) -> Vector:
        """The sum of all memories: n (x_s + u), in double precision."""
        return state.buffer.added_to(state.clients * state.model.astype(np.float64))

    def remove(state: AreaState, count: int, memories: Vector) -> AreaState:
        """Remove `count` clients, whose memories add up to `memories`, from the average.

        x_s stays; the sum of the residuals changes so that the next server step leads to the mean of the others:
        (n - count) (x_s + u') = n (x_s + u) - memories.
        """
        shift = count * state.model - memories
        return AreaState(state.model, state.buffer.plus(shift), state.clients - count)

    rule = (remember_start, report, start, receive, aggregate)  # Algorithm 2, initialization: y_i = x_{s,0}
    return Method("area", *rule, trains_first=trains_first, recalled=recalled, remove=remove, add=add_to_buffer)
