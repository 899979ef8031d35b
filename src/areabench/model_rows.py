"""Models in a run file, one row each: all of them, or the last one only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.problems.base import Vector

_ROWS_A_BLOCK = 16
_BYTES_A_BLOCK = 2**20


class ModelRows:
    """A growing dataset of models; where only the last is kept, the others stay in memory until they are evaluated."""

    def __init__(self, file: h5py.File, name: str, size: tuple[int, np.dtype[Any]], *, last_only: bool) -> None:
        dimension, dtype = size
        self.rows_a_block = max(1, min(_ROWS_A_BLOCK, _BYTES_A_BLOCK // (dimension * dtype.itemsize)))
        chunks = (1 if last_only else self.rows_a_block, dimension)
        self._dataset = file.create_dataset(name, (0, dimension), dtype, maxshape=(None, dimension), chunks=chunks)
        self._held: list[Vector] | None = [] if last_only else None

    def extend(self, models: Sequence[Vector]) -> None:
        """Add models; the arrays are held and must not change."""
        if self._held is None:
            append(self._dataset, np.stack(models))
        else:
            self._held += models

    def __len__(self) -> int:
        """How many there have been."""
        return len(self._dataset if self._held is None else self._held)

    def __getitem__(self, chosen: slice) -> list[Vector]:
        """Some of them."""
        return list((self._dataset if self._held is None else self._held)[chosen])

    def close(self) -> None:
        """Write the last one where it is the only one."""
        if self._held:
            append(self._dataset, self._held[-1][None])


def append(dataset: h5py.Dataset, rows: NDArray[Any]) -> None:
    """Add rows to a dataset that can grow."""
    if len(rows):
        first = len(dataset)
        dataset.resize(first + len(rows), axis=0)
        dataset[first:] = rows
