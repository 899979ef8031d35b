"""QuAFL: drawn clients send at once what they have, and average with the server; without its quantiser.

H. Zakerinia, S. Talaei, G. Nadiradze, D. Alistarh: Communication-Efficient Federated Learning With Data and Client
Heterogeneity (QuAFL), Algorithm 1.

Invariant: a round leaves X plus the sum of the contacted clients' models as it was; these are Y_i before it, and X_i,
from where each continues, after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Report, Work, check_round
from areabench.methods.contacts import CONTACT_NEEDS, Contacts, contact_rounds
from areabench.settings.keys import key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class QuAfl(MethodSettings):
    """QuAFL without its quantiser: drawn clients send at once what they have, and average with the server."""

    label = "QuAFL"
    colour = "#665191"
    page = "methods-local-work.md#quafl"
    paper = "Zakerinia et al., AISTATS 2024"
    chooses = "server, uniformly"
    client_driven = False
    limit = "biased to fast clients"
    memory = "2 d"
    needs = CONTACT_NEEDS

    name: str = "quafl"
    step_size: float = key("step size eta of the clients", above=0)
    clients_per_round: int = key("s: clients drawn per round", 4, minimum=1)
    period_s: float = key("time between two rounds", unit="s", above=0)

    @property
    def contacts_per_second(self) -> float:
        """Clients that are contacted per second, each of which then sends an update."""
        return self.clients_per_round / self.period_s

    def check(self, experiment: Experiment) -> None:
        """A round has no more clients than there are."""
        check_round(self.clients_per_round, experiment.clients.count)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return quafl(Contacts(inputs.clients, self.clients_per_round, self.period_s, inputs.seed))


def quafl(contacts: Contacts) -> Method:
    """QuAFL with these contacts; s is `contacts.per_round`."""
    shares = contacts.per_round + 1

    def begin(memory: Vector, model: Vector, _attached: Any) -> Vector:
        # X_i = X/(s+1) + s/(s+1) Y_i
        return memory + (model - memory) / shares

    def report(_memory: Vector, work: Work) -> Report:
        # Y_i, which is also remembered
        return Report(work.local, work.local)

    def taken(arrival: Arrival) -> Vector:
        return arrival.payload

    return contact_rounds("quafl", contacts, lambda start: start, report, taken, begin)
