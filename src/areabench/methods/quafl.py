"""QuAFL: drawn clients send at once what they have, and average with the server; without its quantiser.

H. Zakerinia, S. Talaei, G. Nadiradze, D. Alistarh: Communication-Efficient Federated Learning With Data and Client
Heterogeneity (QuAFL), Algorithm 1.

Invariant: a round leaves X plus the sum of the contacted clients' models as it was; these are Y_i before it, and X_i,
from where each continues, after it.
"""

from __future__ import annotations

from typing import Any

from areabench.arrays import Vector
from areabench.experiment.method_records import QuAfl
from areabench.methods.base import Arrival, Given, Method, Report, Work
from areabench.methods.contacts import Contacts, contact_rounds


def quafl(contacts: Contacts) -> Method:
    """QuAFL with these contacts; s is `contacts.per_round`."""
    shares = contacts.per_round + 1

    def begin(memory: Vector, model: Vector, _attached: Any) -> Vector:  # X_i = X/(s+1) + s/(s+1) Y_i
        return memory + (model - memory) / shares

    def report(_memory: Vector, work: Work) -> Report:  # Y_i, which is also remembered
        return Report(work.local, work.local)

    def taken(arrival: Arrival) -> Vector:
        return arrival.payload

    return contact_rounds("quafl", contacts, lambda start: start, report, taken, begin)


def build(settings: QuAfl, given: Given) -> Method:
    """The method that an experiment names."""
    return quafl(Contacts(given.clients, settings.clients_per_round, settings.period_s, given.seed))
