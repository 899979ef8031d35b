"""Event probabilities: that the next event is an update of client i (p_i) or a server step (p_s), Section 4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.theory.constants import positive_rates, require_positive

_SUM_TOLERANCE = 1e-9  # for the rounding of at most a million summands


@dataclass(frozen=True)
class EventProbabilities:
    """p_i, shape (clients,), and p_s; all positive, together 1."""

    clients: NDArray[np.float64]
    server: float

    def __post_init__(self) -> None:
        """Refuse what is not a distribution over all n + 1 events."""
        for client, probability in enumerate(self.clients):
            require_positive(f"the probability of client {client}", float(probability))
        require_positive("the probability of a server step", self.server)
        total = float(self.clients.sum()) + self.server
        if abs(total - 1) > _SUM_TOLERANCE:
            raise UserError(f"the probabilities add up to {total}, the limit is 1; divide each of them by their sum")

    @property
    def count(self) -> int:
        """n, the number of clients."""
        return len(self.clients)

    @property
    def minimum(self) -> float:
        """p_min = min(min_i p_i, p_s), Theorem 1."""
        return min(float(self.clients.min()), self.server)

    @property
    def mean_inverse(self) -> float:
        """q_bar = (1/n) sum_i 1/p_i, eq. (eigenvector_products)."""
        return float(np.mean(1 / self.clients))

    @property
    def server_ratio(self) -> float:
        """r_p = p_s/p_min, Theorem 1."""
        return self.server / self.minimum


def poisson_probabilities(rates: NDArray[np.float64], server_rate: float) -> EventProbabilities:
    """Example 1: p_i = lambda_i/(lambda_s + sum lambda), p_s = lambda_s/(lambda_s + sum lambda); rates in 1/s."""
    require_positive("the server's rate", server_rate)
    total = float(positive_rates(rates).sum()) + server_rate
    return EventProbabilities(rates / total, server_rate / total)


def measured_probabilities(updates_per_client: NDArray[np.int64], server_steps: int) -> EventProbabilities:
    """The shares of a run's events: updates of each client, shape (clients,), and steps of the server."""
    idle = np.flatnonzero(updates_per_client < 1)
    if len(idle):
        raise UserError(
            f"client {idle[0]} sent {updates_per_client[idle[0]]} updates, the least is 1 for each client (its p_i "
            "would be 0, and no bound exists); measure a longer run, or leave the client out"
        )
    if server_steps < 1:
        raise UserError(f"the server made {server_steps} steps, the least is 1; measure a longer run")
    total = int(updates_per_client.sum()) + server_steps
    return EventProbabilities(updates_per_client / total, server_steps / total)
