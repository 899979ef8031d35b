"""FAVAS: drawn clients send what they have, divided by how many local steps a client has on average.

L. Leconte, V. M. Nguyen, E. Moulines: FAVAS: Federated AVeraging with ASynchronous clients, 2023 (later FAVANO).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.experiment.method_records import Favas
from areabench.methods.base import Arrival, Given, Method, Report, Work, remember_nothing
from areabench.methods.contacts import Contacts, contact_rounds

_TIE = 1e-9  # relative: a step that ends at the moment of a contact counts


def favas(contacts: Contacts, expected_steps: Sequence[float]) -> Method:
    """FAVAS with these contacts, and with alpha_i, the mean number of local steps between two contacts of client i."""

    def report(_memory: None, work: Work) -> Report:  # w - w_init
        return Report(work.local - work.start, memory=None)

    def taken(arrival: Arrival) -> Vector:  # w_init + (w - w_init)/alpha_i
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
    visits, found = np.zeros_like(new), np.zeros_like(new)
    for steps in range(most):
        earlier = (visits[:, :steps] * new[:, steps:0:-1]).sum(axis=1)
        visits[:, steps] = ((steps == 0) + (1 - p) * earlier) / (1 - (1 - p) * new[:, 0])
        found[:, steps] = p * (earlier + visits[:, steps] * new[:, 0])
    return np.asarray(1 - np.cumsum(found, axis=1))


def build(settings: Favas, given: Given) -> Method:
    """The method that an experiment names."""
    contacts = Contacts(given.clients, settings.clients_per_round, settings.period_s, given.seed)
    expected = settings.expected_steps or mean_steps(
        contacts, given.local_steps, np.asarray(given.rates), given.delays, given.per
    )
    return favas(contacts, expected)
