"""FedBuff: buffered asynchronous aggregation.

J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. The paper's runs use the
client's step size alpha for the server's eta as well (recovered from its tables).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from areabench.arrays import Vector
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
    check_one_alpha,
    remember_nothing,
    sets_eta,
)
from areabench.settings.keys import key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class FedBuff(MethodSettings):
    """FedBuff as the AREA paper runs it: buffered pseudo-gradients, applied with a server step size."""

    label = "FedBuff"
    colour = "#E69F00"
    page = "methods.md#fedbuff"
    paper = "Nguyen et al., AISTATS 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"

    name: str = "fedbuff"
    server_step_size: float | None = key("step size eta of the server; left out: alpha", None, above=0)

    def remarks(self) -> Mapping[str, str]:
        """What the step size sets besides."""
        return {} if self.server_step_size is not None else {"step_size": sets_eta("alpha")}

    def check(self, experiment: Experiment) -> None:
        """One alpha is needed where eta is left out."""
        if self.server_step_size is None:
            check_one_alpha("alpha", experiment.schedule.name)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return fedbuff(inputs.clients, self.server_step_size or inputs.step_size)


class FedBuffState(NamedTuple):
    """The server's model and the pseudo-gradients it has received since it last stepped."""

    model: Vector
    buffer: Buffer


def fedbuff(clients: int, server_step_size: float) -> Method:
    """FedBuff with `clients` clients and the server step size eta."""

    def start(model: Vector) -> Step:
        return Step(FedBuffState(model, Buffer()), tuple(range(clients)))

    def receive(state: FedBuffState, arrival: Arrival) -> Step:
        return Step(FedBuffState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: FedBuffState) -> Step:  # x_s <- x_s - eta · mean of the buffer
        if state.buffer.size == 0:
            return Step(state)
        model = state.model - server_step_size * state.buffer.mean()
        return Step(FedBuffState(model, Buffer()))

    rule = (remember_nothing, send_pseudo_gradient, start, receive, aggregate)
    return Method("fedbuff", *rule, add=add_to_buffer)


def send_pseudo_gradient(_memory: None, work: Work) -> Report:
    """A client without a memory sends its pseudo-gradient D_i = x^b - x_i."""
    return Report(work.model - work.local, memory=None)
