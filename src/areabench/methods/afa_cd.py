"""AFA-CD: anarchic federated averaging without a table.

H. Yang, X. Zhang, P. Khanduri, J. Liu: Anarchic Federated Learning, ICML 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from areabench.methods.base import Method, MethodInputs, Report, ServerStepSettings, Work, buffered
from areabench.methods.gradient_tables import mean_gradient
from areabench.settings.keys import Need, key


@dataclass(frozen=True, kw_only=True)
class AfaCd(ServerStepSettings):
    """AFA-CD: no table; the mean of the buffered mean gradients is applied."""

    label = "AFA-CD"
    colour = "#A0612B"
    page = "methods-memory.md#afa-cd"
    paper = "Yang et al., ICML 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"
    needs = (Need("clients.work", ("fixed", "uniform"), "whose rounds need local steps"),)

    name: str = "afa-cd"
    server_step_size: float | None = key("step size eta of the server; left out: alpha·M", None, above=0)

    @property
    def eta_left_out(self) -> Literal["alpha", "alpha·M"]:
        """As long as a round."""
        return "alpha·M"

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return afa_cd(inputs.clients, self.server_step(inputs))


def afa_cd(clients: int, server_step_size: Any) -> Method:
    """AFA-CD with `clients` clients and the server step size eta: x_s <- x_s - eta · mean of the mean gradients."""

    def report(_memory: None, work: Work) -> Report:
        return Report(mean_gradient(work), memory=None)

    return buffered("afa-cd", clients, report, lambda model, mean: model - server_step_size * mean, reply="after")
