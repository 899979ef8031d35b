"""An even split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from areabench.problems.splits.rows import Rows, SplitSettings


@dataclass(frozen=True, kw_only=True)
class Iid(SplitSettings):
    """An even split of a shuffle."""

    words = "IID"

    name: str = "iid"

    def owners(self, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
        """An even split of a shuffle: sizes differ by one at most."""
        owners = np.empty(len(labels), dtype=np.int64)
        sizes = np.full(clients, len(labels) // clients)
        sizes[: len(labels) % clients] += 1
        owners[generator.permutation(len(labels))] = np.repeat(np.arange(clients), sizes)
        return owners
