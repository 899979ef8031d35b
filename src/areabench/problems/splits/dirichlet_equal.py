"""Per client, Dirichlet shares over the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from areabench.problems.splits.rows import NOBODY, Rows, Shares, SplitSettings, draw_shares, shuffled_classes
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST


@dataclass(frozen=True, kw_only=True)
class DirichletEqual(SplitSettings):
    """Per client, Dirichlet shares over the classes; all clients hold equally many samples."""

    words = "non-IID (equal-sized)"

    name: str = "dirichlet-equal"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0, maximum=LARGEST)

    def owners(self, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
        """Clients take their floor(N/n) rows in turn, client 0 first."""
        classes = shuffled_classes(labels, generator)
        left = np.array([len(rows) for rows in classes])
        owners = np.full(len(labels), NOBODY, dtype=np.int64)
        shares = draw_shares(self.concentration, clients, len(classes), generator)
        for client in range(clients):
            wanted = _draw_classes(shares[client], left, len(labels) // clients, generator)
            # Rows were shuffled, so those at the end of a class are as random as any.
            for index in np.flatnonzero(wanted):
                owners[classes[index][left[index] - wanted[index] : left[index]]] = client
            left -= wanted
        return owners


def _draw_classes(shares: Shares, left: Rows, count: int, generator: np.random.Generator) -> Rows:
    """How many rows of each class a client takes: `count` in all, at most `left` of each.

    Where a class runs out, the missing rows are drawn again from the classes that still have rows; each pass completes
    the count or empties a class. Shares that are zero on all of these are replaced by what is left of each.
    """
    taken = np.zeros_like(left)
    while (missing := count - int(taken.sum())) > 0:
        room = left - taken
        weights = np.where(room > 0, shares, 0.0)
        if weights.sum() == 0:
            weights = room.astype(np.float64)
        taken += np.minimum(generator.multinomial(missing, weights / weights.sum()), room)
    return taken
