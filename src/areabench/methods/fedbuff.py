"""FedBuff: buffered asynchronous aggregation.

J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. The paper's runs use the
client's step size alpha for the server's eta as well (recovered from its tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from areabench.methods.base import Method, MethodInputs, Report, ServerStepSettings, Work, buffered


@dataclass(frozen=True, kw_only=True)
class FedBuff(ServerStepSettings):
    """FedBuff as the AREA paper runs it: buffered pseudo-gradients, applied with a server step size."""

    label = "FedBuff"
    colour = "#E69F00"
    page = "methods.md#fedbuff"
    paper = "Nguyen et al., AISTATS 2022"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"

    name: str = "fedbuff"

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return fedbuff(inputs.clients, self.server_step(inputs))


def fedbuff(clients: int, server_step_size: Any) -> Method:
    """FedBuff with `clients` clients and the server step size eta: x_s <- x_s - eta · mean of the buffer."""
    return buffered("fedbuff", clients, send_pseudo_gradient, lambda model, mean: model - server_step_size * mean)


def send_pseudo_gradient(_memory: None, work: Work) -> Report:
    """A client without a memory sends its pseudo-gradient D_i = x^b - x_i."""
    return Report(work.model - work.local, memory=None)
