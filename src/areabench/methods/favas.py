"""FAVAS: drawn clients send what they have, divided by how many local steps a client has on average.

L. Leconte, V. M. Nguyen, E. Moulines: FAVAS: Federated AVeraging with ASynchronous clients, 2023 (later FAVANO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import (
    Arrival,
    Method,
    MethodInputs,
    MethodSettings,
    Report,
    Work,
    check_round,
    remember_nothing,
)
from areabench.methods.contacts import CONTACT_NEEDS, Contacts, contact_rounds
from areabench.settings.keys import key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Favas(MethodSettings):
    """FAVAS: drawn clients send what they have, weighed by how much a client has on average."""

    label = "FAVAS"
    colour = "#8F5B6A"
    page = "methods-local-work.md#favas"
    paper = "Leconte et al., 2023"
    chooses = "server, uniformly"
    client_driven = False
    limit = "exact for small steps"
    memory = "2 d"
    needs = CONTACT_NEEDS

    name: str = "favas"
    step_size: float = key("step size eta of the clients", above=0)
    clients_per_round: int = key("s: clients drawn per round", 4, minimum=1)
    period_s: float = key("time between two rounds", unit="s", above=0)
    expected_steps: tuple[float, ...] | None = key(
        "alpha_i: mean number of local steps that client i has made when it is contacted; left out: computed from "
        "rates and delays",
        None,
        above=0,
    )

    @property
    def contacts_per_second(self) -> float:
        """Clients that are contacted per second, each of which then sends an update."""
        return self.clients_per_round / self.period_s

    def check(self, experiment: Experiment) -> None:
        """A round has no more clients than there are."""
        check_round(self.clients_per_round, experiment.clients.count)
        if self.expected_steps is None:
            if not experiment.delays.follows_rates:
                raise UserError(
                    f'method.expected_steps: is needed with delays.name = "{experiment.delays.name}", of which no mean '
                    "is known; give one number per client"
                )
        elif len(self.expected_steps) != experiment.clients.count:
            raise UserError(
                f"method.expected_steps: {len(self.expected_steps)} numbers for clients.count = "
                f"{experiment.clients.count}; give one per client"
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        contacts = Contacts(inputs.clients, self.clients_per_round, self.period_s, inputs.seed)
        expected = self.expected_steps or mean_steps(
            contacts, inputs.local_steps, np.asarray(inputs.rates), inputs.delays, inputs.per
        )
        return favas(contacts, expected)


_TIE = 1e-9  # relative: a step that ends at the moment of a contact counts


def favas(contacts: Contacts, expected_steps: Sequence[float]) -> Method:
    """FAVAS with these contacts, and with alpha_i, the mean number of local steps between two contacts of client i."""

    def report(_memory: None, work: Work) -> Report:
        # w - w_init
        return Report(work.local - work.start, memory=None)

    def taken(arrival: Arrival) -> Vector:
        # w_init + (w - w_init)/alpha_i
        return arrival.model + arrival.payload / expected_steps[arrival.client]

    return contact_rounds("favas", contacts, remember_nothing, report, taken)


def mean_steps(contacts: Contacts, most: int, rates: NDArray[np.float64], delays: str, per: str) -> tuple[float, ...]:
    """alpha_i = E[min(E_i, K)]: the local steps, at most `most`, that each client has made when it is contacted.

    A client is drawn with probability p = s/n in each round, so that the number of rounds until then is geometric.
    """
    p = min(1.0, contacts.per_round / contacts.clients)
    numbers = np.arange(1, most + 1)
    steps_a_round = rates[:, None] * contacts.period_s * (1 if per == "step" else most)  # of fixed length
    if delays == "fixed":  # P(E >= k) = P(rounds >= k/steps_a_round)
        with np.errstate(under="ignore"):
            at_least = (1 - p) ** (np.ceil(numbers / steps_a_round * (1 - _TIE)) - 1)
    elif per == "round":  # the round takes Exp(rate), and step k of it k/K of that
        not_yet = np.exp(-steps_a_round / numbers)
        at_least = 1 - p * not_yet / (1 - (1 - p) * not_yet)
    else:
        at_least = _poisson_at_least(p, most, steps_a_round)
    expected = at_least.sum(axis=1)
    return tuple(np.where(expected > 0, expected, 1.0).tolist())  # who never ends a step sends 0 whatever it is


def _poisson_at_least(p: float, most: int, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(E >= k), k = 1 to `most`, where a round brings Poisson(mean) steps and is the last one with probability p.

    `visits` are the expected numbers of rounds that begin with j steps made; `found` is P(E = j).
    """
    counts = np.arange(most)
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(counts[1:], 1)))])
    new = np.exp(counts * np.log(mean) - mean - logarithms)  # P(Poisson(mean) = j), shape (clients, most)
    visits = np.zeros_like(new)
    found = np.zeros_like(new)
    for steps in range(most):
        earlier = (visits[:, :steps] * new[:, steps:0:-1]).sum(axis=1)
        visits[:, steps] = ((steps == 0) + (1 - p) * earlier) / (1 - (1 - p) * new[:, 0])
        found[:, steps] = p * (earlier + visits[:, steps] * new[:, 0])
    return np.asarray(1 - np.cumsum(found, axis=1))
