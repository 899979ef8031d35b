"""AS-FedAvg: asynchronous federated averaging, the paper's baseline (section 5).

The averaging is that of B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
Data (FedAvg); the buffering that of J. Nguyen et al. (FedBuff).
"""

from __future__ import annotations

from dataclasses import dataclass

from areabench.methods.base import Method, MethodInputs, MethodSettings, Report, Work, buffered
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class AsFedAvg(MethodSettings):
    """Asynchronous FedAvg: the server takes the plain mean of the buffered models."""

    label = "AS-FedAvg"
    colour = "#009E73"
    page = "methods.md#as-fedavg"
    paper = "McMahan et al., AISTATS 2017"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "2 d"

    name: str = "as-fedavg"
    step_size: float = key("step size alpha", above=0)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return as_fedavg(inputs.clients)


def as_fedavg(clients: int) -> Method:
    """AS-FedAvg with `clients` clients: x_s <- mean of the models."""
    return buffered("as-fedavg", clients, send_model, lambda _model, mean: mean)


def send_model(_memory: None, work: Work) -> Report:
    """A client of plain averaging sends its model x_i^M and remembers nothing."""
    return Report(work.local, memory=None)
