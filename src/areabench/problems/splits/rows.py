"""Splits: which training rows each client holds, drawn from the experiment's seed.

A split has one array of sorted row numbers per client; no row is in two of them and none is empty. Only
`dirichlet-equal` leaves rows unused, the remainder of N/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.streams import Purpose, stream

Rows = NDArray[np.int64]
Shares = NDArray[np.float64]

NOBODY = -1  # owner of a row that is not assigned


@dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """The section [split]; each split's file has a record of its own."""

    own: ClassVar[bool] = False  # whether this is a part of the user's own
    words: ClassVar[str] = ""  # for it, as the paper has them

    name: str = ""

    @property
    def least(self) -> int:
        """Fewest samples of a client."""
        return int(getattr(self, "minimum", 1))

    def owners(self, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
        """The client that holds each row, or NOBODY."""
        raise NotImplementedError

    def rows(self, labels: Rows, clients: int, seed: int) -> Sequence[Rows]:
        """The sorted rows of each client."""
        check_enough(self.name, self.least, len(labels), clients)
        return client_rows(self.owners(labels, clients, stream(seed, Purpose.SPLIT)), clients)


class ClientRows(Sequence[Rows]):
    """The rows of each client, cut out of one array when they are asked for: a million arrays take 200 MB."""

    def __init__(self, rows: Rows, sizes: Rows) -> None:
        self._rows = rows
        self.sizes = sizes
        self._ends = np.cumsum(sizes)

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
    return parts.sizes if isinstance(parts, ClientRows) else np.array([len(part) for part in parts], dtype=np.int64)


def check_enough(name: str, least: int, samples: int, clients: int) -> None:
    """Refuse a split that would leave a client with fewer samples than the least."""
    if clients * least > samples:
        raise UserError(
            f"split `{name}`: {clients} clients with at least {least} samples each need {clients * least} "
            f"samples, but the training data has {samples}; lower clients.count or split.minimum, or take more data"
        )


def count_labels(labels: Rows, parts: Sequence[Rows], classes: int) -> Rows:
    """Samples of each class that each client holds, shape (clients, classes)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def client_rows(owners: Rows, clients: int) -> ClientRows:
    """Turn the owner of each row into the sorted rows of each owner."""
    # A stable order keeps the rows of each owner sorted; those of NOBODY, -1, come first.
    by_owner = row_order(owners).astype(np.int64, copy=False)
    unused = int(np.count_nonzero(owners == NOBODY))
    return ClientRows(by_owner[unused:], np.bincount(owners[owners != NOBODY], minlength=clients))


def row_order(numbers: Rows) -> NDArray[np.intp]:
    """The rows sorted by their numbers; of equal ones the first comes first."""
    if numbers.min() >= -(2**15) and numbers.max() < 2**15:
        return np.argsort(numbers.astype(np.int16), kind="stable")  # seven times as fast
    return np.argsort(numbers, kind="stable")


def shuffled_classes(labels: Rows, generator: np.random.Generator) -> list[Rows]:
    """The rows of each label that occurs, in random order."""
    _, counts = np.unique(labels, return_counts=True)
    by_label = np.split(row_order(labels), np.cumsum(counts)[:-1])
    return [generator.permutation(rows) for rows in by_label]


def draw_shares(concentration: float, draws: int, parts: int, generator: np.random.Generator) -> Shares:
    """`draws` vectors from Dirichlet(a·1), shape (draws, parts); where a draw overflows, the limit."""
    with np.errstate(all="ignore"):
        shares = generator.dirichlet(np.full(parts, concentration), size=draws)
    broken = ~(np.isfinite(shares).all(axis=1) & (np.abs(shares.sum(axis=1) - 1) < 1e-6))
    if not broken.any():
        return shares
    # The limits of the distribution: equal shares, or all of one part that is drawn.
    if concentration >= 1:
        shares[broken] = 1 / parts
    else:
        shares[broken] = 0.0
        shares[broken, generator.integers(parts, size=np.count_nonzero(broken))] = 1.0
    return shares
