"""Splits: which training rows each client holds, drawn from the experiment's seed.

A split has one array of sorted row numbers per client; no row is in two of them and none is empty.
`dirichlet`, `iid` and `nearly-iid` assign all rows; `dirichlet-equal` leaves the remainder of N/n unused.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.experiment.checks import check_enough
from areabench.experiment.problem_records import (
    Dirichlet,
    DirichletEqual,
    Iid,
    NearlyIid,
)
from areabench.streams import Purpose, stream

PackageSplit = Dirichlet | DirichletEqual | Iid | NearlyIid
Rows = NDArray[np.int64]
Shares = NDArray[np.float64]

_REDRAWS = 100  # draws of the shares before rows are moved one by one; the records document both numbers
_REDRAWS_MANY = 20  # the same beyond `_MANY_CLIENTS`: a draw costs more, and one that failed 20 times rarely succeeds
_MANY_CLIENTS = 1000
_NOBODY = -1  # owner of a row that is not assigned


class Parts(Sequence[Rows]):
    """The rows of each client, cut out of one array when they are asked for: a million arrays take 200 MB."""

    def __init__(self, rows: Rows, sizes: Rows) -> None:
        self._rows, self.sizes, self._ends = rows, sizes, np.cumsum(sizes)

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self.sizes)

    @overload
    def __getitem__(self, client: int) -> Rows: ...
    @overload
    def __getitem__(self, client: slice) -> list[Rows]: ...
    def __getitem__(self, client: int | slice) -> Rows | list[Rows]:
        """One client's rows, or those of several."""
        if isinstance(client, slice):
            return [self[each] for each in range(len(self))[client]]
        end = int(self._ends[client])
        return self._rows[end - int(self.sizes[client]) : end]


def part_sizes(parts: Sequence[Rows]) -> Rows:
    """How many rows each client holds."""
    return parts.sizes if isinstance(parts, Parts) else np.array([len(part) for part in parts], dtype=np.int64)


def split(settings: PackageSplit, labels: Rows, clients: int, seed: int) -> Parts:
    """Sorted row numbers of each client."""
    check_enough(settings, len(labels), clients)
    generator = stream(seed, Purpose.SPLIT)
    match settings:
        case Dirichlet():
            owners = _dirichlet(settings, labels, clients, generator)
        case DirichletEqual():
            owners = _dirichlet_equal(settings.concentration, labels, clients, generator)
        case Iid():
            owners = _iid(len(labels), clients, generator)
        case NearlyIid():
            owners = _nearly_iid(labels, clients, generator)
    return _parts(owners, clients)


def count_labels(labels: Rows, parts: Sequence[Rows], classes: int) -> Rows:
    """Samples of each class that each client holds, shape (clients, classes)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def _parts(owners: Rows, clients: int) -> Parts:
    """Turn the owner of each row into the sorted rows of each owner."""
    by_owner = _order(owners).astype(np.int64, copy=False)
    unused = int(np.count_nonzero(owners == _NOBODY))
    return Parts(by_owner[unused:], np.bincount(owners[owners != _NOBODY], minlength=clients))


def _order(numbers: Rows) -> NDArray[np.intp]:
    """The rows sorted by their numbers; of equal ones the first comes first."""
    if numbers.min() >= -(2**15) and numbers.max() < 2**15:
        return np.argsort(numbers.astype(np.int16), kind="stable")  # seven times as fast
    return np.argsort(numbers, kind="stable")


def _shuffled_classes(labels: Rows, generator: np.random.Generator) -> list[Rows]:
    """The rows of each label that occurs, in random order."""
    _, counts = np.unique(labels, return_counts=True)
    by_label = np.split(_order(labels), np.cumsum(counts)[:-1])
    return [generator.permutation(rows) for rows in by_label]


def _draw_shares(concentration: float, draws: int, parts: int, generator: np.random.Generator) -> Shares:
    """`draws` vectors from Dirichlet(a·1), shape (draws, parts); where a draw overflows, the limit."""
    with np.errstate(all="ignore"):
        shares = generator.dirichlet(np.full(parts, concentration), size=draws)
    broken = ~(np.isfinite(shares).all(axis=1) & (np.abs(shares.sum(axis=1) - 1) < 1e-6))
    if broken.any():
        shares[broken] = 1 / parts if concentration >= 1 else 0.0
    if broken.any() and concentration < 1:
        shares[broken, generator.integers(parts, size=np.count_nonzero(broken))] = 1.0
    return shares


# ---------------------------------------------------------------------------------------------------- dirichlet


def _dirichlet(settings: Dirichlet, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
    """Per class, Dirichlet shares over the clients; drawn again until every client has the minimum, then repaired.

    Where the settings say how often to draw, nothing is repaired: the split has the distribution of a draw that
    satisfies the minimum.
    """
    classes = _shuffled_classes(labels, generator)
    lengths = np.array([len(rows) for rows in classes])
    least = 0
    for _ in range(settings.draws or (_REDRAWS if clients <= _MANY_CLIENTS else _REDRAWS_MANY)):
        shares = _draw_shares(settings.concentration, len(classes), clients, generator)
        sizes = _cut(shares, lengths, generator)
        if (smallest := int(sizes.sum(axis=0).min())) >= settings.minimum:
            break
        least = max(least, smallest)
    else:
        if settings.draws is not None:
            raise UserError(
                f"split.draws: in the best of {settings.draws:,} draws a client has {least} samples, split.minimum is "
                f"{settings.minimum}; allow more draws, lower split.minimum or clients.count, or leave split.draws out"
            )
    owners = np.empty(len(labels), dtype=np.int64)
    for rows, row_sizes in zip(classes, sizes, strict=True):
        owners[rows] = np.repeat(np.arange(clients), row_sizes)
    _repair(owners, clients, settings.minimum, generator)
    return owners


def _cut(shares: Shares, lengths: Rows, generator: np.random.Generator) -> Rows:
    """Number of rows of each class per client, shape (classes, clients), from rounded cumulative shares.

    Each class rounds at a random offset: always rounding at one half would, with nearly equal shares and more clients
    than rows of a class, leave the same clients without a row in every class.
    """
    offsets = generator.random((len(lengths), 1))
    cuts = np.floor(np.cumsum(shares, axis=1) * lengths[:, None] + offsets).astype(np.int64)
    cuts = np.minimum(cuts, lengths[:, None])
    cuts[:, -1] = lengths
    return np.diff(cuts, axis=1, prepend=0)


def _repair(owners: Rows, clients: int, minimum: int, generator: np.random.Generator) -> None:
    """While a client is below the minimum: move a random row of the largest client to the smallest; changes `owners`.

    Givers start above the minimum and never fall below it, takers start below and never rise above it, so the two
    heaps stay disjoint and every move reduces the number of missing rows by one.
    """
    if np.bincount(owners, minlength=clients).min() >= minimum:
        return
    parts = _parts(owners, clients)
    sizes = parts.sizes.tolist()
    takers = [(size, client) for client, size in enumerate(sizes) if size < minimum]
    givers = [(-size, client) for client, size in enumerate(sizes) if size > minimum]
    heapq.heapify(takers)
    heapq.heapify(givers)
    piles: dict[int, list[int]] = {}  # rows of the givers in use, shuffled, so that the last one is a random one
    while takers:
        size, taker = takers[0]
        giver = givers[0][1]
        if giver not in piles:
            piles[giver] = generator.permutation(parts[giver]).tolist()
        owners[piles[giver].pop()] = taker
        _replace_or_drop(takers, size + 1, taker, size + 1 < minimum)
        left = len(piles[giver])
        _replace_or_drop(givers, -left, giver, left > minimum)


def _replace_or_drop(heap: list[tuple[int, int]], weight: int, client: int, keep: bool) -> None:
    """Return the first client to the heap with its new weight, or remove it."""
    if keep:
        heapq.heapreplace(heap, (weight, client))
    else:
        heapq.heappop(heap)


# ---------------------------------------------------------------------------------------------------- dirichlet-equal


def _dirichlet_equal(concentration: float, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
    """Per client, Dirichlet shares over the classes; clients take their floor(N/n) rows in turn, client 0 first."""
    classes = _shuffled_classes(labels, generator)
    left = np.array([len(rows) for rows in classes])
    owners = np.full(len(labels), _NOBODY, dtype=np.int64)
    shares = _draw_shares(concentration, clients, len(classes), generator)
    for client in range(clients):
        wanted = _draw_classes(shares[client], left, len(labels) // clients, generator)
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


# ---------------------------------------------------------------------------------------------------- even splits


def _iid(samples: int, clients: int, generator: np.random.Generator) -> Rows:
    """An even split of a shuffle: sizes differ by one at most."""
    owners = np.empty(samples, dtype=np.int64)
    sizes = np.full(clients, samples // clients)
    sizes[: samples % clients] += 1
    owners[generator.permutation(samples)] = np.repeat(np.arange(clients), sizes)
    return owners


def _nearly_iid(labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
    """Of a label with c rows each client except the last gets floor(c/n), and the last one the rest."""
    owners = np.full(len(labels), clients - 1, dtype=np.int64)
    classes = _shuffled_classes(labels, generator)
    most = max(len(rows) for rows in classes)
    if clients > most:
        raise UserError(
            f"split `nearly-iid`: {clients} clients, but the most frequent label has {most} samples, so all "
            f"but the last would be empty; lower clients.count to {most} or take split `iid`"
        )
    for rows in classes:
        each = len(rows) // clients
        owners[rows[: each * (clients - 1)]] = np.repeat(np.arange(clients - 1), each)
    return owners
