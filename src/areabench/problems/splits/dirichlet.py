"""Per class, Dirichlet shares over the clients."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from areabench.errors import UserError
from areabench.problems.splits.rows import Rows, SplitSettings, client_rows, draw_shares, shuffled_classes
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST

_REDRAWS = 100  # draws of the shares before rows are moved one by one; the records document both numbers
_REDRAWS_MANY = 20  # the same beyond `_MANY_CLIENTS`: a draw costs more, and one that failed 20 times rarely succeeds
_MANY_CLIENTS = 1000


@dataclass(frozen=True, kw_only=True)
class Dirichlet(SplitSettings):
    """Per class, Dirichlet shares over the clients (the paper's non-IID split)."""

    words = "non-IID"

    name: str = "dirichlet"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0, maximum=LARGEST)
    minimum: int = key(
        "least number of samples per client; `draws` says how it is reached", 1, unit="samples", minimum=1
    )
    draws: int | None = key(
        "draw all shares up to so many times, until every client has `minimum` samples, or refuse the split; left out: "
        "after 100 draws (20 beyond 1,000 clients) single samples move from the largest clients to those below it",
        None,
        minimum=1,
        maximum=1_000_000,
    )

    def owners(self, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
        """Drawn again until every client has the minimum, then repaired.

        Where the settings say how often to draw, nothing is repaired: the split has the distribution of a draw that
        satisfies the minimum.
        """
        classes = shuffled_classes(labels, generator)
        lengths = np.array([len(rows) for rows in classes])
        draws = self.draws
        if draws is None:
            draws = _REDRAWS if clients <= _MANY_CLIENTS else _REDRAWS_MANY
        least = 0
        for _ in range(draws):
            shares = draw_shares(self.concentration, len(classes), clients, generator)
            # Rows of each class per client from rounded cumulative shares, shape (classes, clients). Each class rounds
            # at a random offset: always rounding at one half would, with nearly equal shares and more clients than
            # rows of a class, leave the same clients without a row in every class.
            offsets = generator.random((len(classes), 1))
            cuts = np.floor(np.cumsum(shares, axis=1) * lengths[:, None] + offsets).astype(np.int64)
            cuts = np.minimum(cuts, lengths[:, None])
            cuts[:, -1] = lengths
            sizes = np.diff(cuts, axis=1, prepend=0)
            smallest = int(sizes.sum(axis=0).min())
            if smallest >= self.minimum:
                break
            least = max(least, smallest)
        else:
            if self.draws is not None:
                raise UserError(
                    f"split.draws: in the best of {self.draws:,} draws a client has {least} samples, split.minimum is "
                    f"{self.minimum}; allow more draws, lower split.minimum or clients.count, or leave split.draws out"
                )
        owners = np.empty(len(labels), dtype=np.int64)
        for rows, row_sizes in zip(classes, sizes, strict=True):
            owners[rows] = np.repeat(np.arange(clients), row_sizes)
        repair(owners, clients, self.minimum, generator)
        return owners


def repair(owners: Rows, clients: int, minimum: int, generator: np.random.Generator) -> None:
    """While a client is below the minimum: move a random row of the largest client to the smallest; changes `owners`.

    Givers start above the minimum and never fall below it, takers start below and never rise above it, so the two
    heaps stay disjoint and every move reduces the number of missing rows by one.
    """
    if np.bincount(owners, minlength=clients).min() >= minimum:
        return
    parts = client_rows(owners, clients)
    sizes = parts.sizes.tolist()
    takers = [(size, client) for client, size in enumerate(sizes) if size < minimum]
    givers = [(-size, client) for client, size in enumerate(sizes) if size > minimum]
    heapq.heapify(takers)
    heapq.heapify(givers)
    piles: dict[int, list[int]] = {}  # rows of the givers in use, shuffled, so that the last one is a random one
    while takers:
        size, taker = heapq.heappop(takers)
        giver = heapq.heappop(givers)[1]
        if giver not in piles:
            piles[giver] = generator.permutation(parts[giver]).tolist()
        owners[piles[giver].pop()] = taker
        if size + 1 < minimum:
            heapq.heappush(takers, (size + 1, taker))
        if len(piles[giver]) > minimum:
            heapq.heappush(givers, (-len(piles[giver]), giver))
