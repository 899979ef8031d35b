"""AFA-CD: anarchic federated averaging without a table.

H. Yang, X. Zhang, P. Khanduri, J. Liu: Anarchic Federated Learning, ICML 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from areabench.methods.fedbuff import FedBuffState
from areabench.methods.gradient_tables import mean_gradient
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class AfaCd(MethodSettings):
    """AFA-CD: no table; the mean of the buffered mean gradients is applied."""

    label = "AFA-CD"
    colour = "#A0612B"
    page = "methods-memory.md#afa-cd"
    paper = "Yang et al., ICML 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"
    needs = (
        Need(
            "clients.work",
            ("fixed", "uniform"),
            "whose rounds need local steps",
        ),
    )

    name: str = "afa-cd"
    server_step_size: float | None = key("step size eta of the server; left out: alpha·M", None, above=0)

    def remarks(self) -> Mapping[str, str]:
        """What the step size sets besides."""
        return {} if self.server_step_size is not None else {"step_size": sets_eta("alpha·M")}

    def check(self, experiment: Experiment) -> None:
        """One alpha is needed where eta is left out."""
        if self.server_step_size is None:
            check_one_alpha("alpha·M", experiment.schedule.name)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return afa_cd(inputs.clients, self.server_step_size or inputs.step_size * inputs.local_steps)


def afa_cd(clients: int, server_step_size: Any) -> Method:
    """AFA-CD with `clients` clients and the server step size eta."""

    def report(_memory: None, work: Work) -> Report:
        return Report(mean_gradient(work), memory=None)

    def start(model: Vector) -> Step:
        return Step(FedBuffState(model, Buffer()), tuple(range(clients)))

    def receive(state: FedBuffState, arrival: Arrival) -> Step:
        return Step(FedBuffState(state.model, state.buffer.add(arrival.payload)), (arrival.client,))

    def aggregate(state: FedBuffState) -> Step:  # x_s <- x_s - eta · mean of the buffered mean gradients
        if state.buffer.size == 0:
            return Step(state)
        return Step(FedBuffState(state.model - server_step_size * state.buffer.mean(), Buffer()))

    return Method("afa-cd", remember_nothing, report, start, receive, aggregate, reply="after", add=add_to_buffer)
