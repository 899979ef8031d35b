"""Models in a run file, one row each: all of them, or the last one only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.problems.base import Vector

_ROWS_A_BLOCK = 16
_BYTES_A_BLOCK = 2**20


class RowSource(Protocol):
    """A run file that rows are copied from."""

    @property
    def snapshot_index(self) -> NDArray[Any]:
        """Rows of SNAPSHOT."""
        ...

    def rows(self, name: str, chosen: slice | int) -> NDArray[Any]:
        """Some rows of a dataset."""
        ...


class ModelRows:
    """A growing dataset of models; where only the last is kept, the others stay in memory until they are evaluated."""

    def __init__(self, dataset: h5py.Dataset, *, last_only: bool) -> None:
        self.rows_a_block = _rows_a_block(dataset.shape[1], dataset.dtype)
        self._dataset = dataset
        self._held: list[Vector] | None = [] if last_only else None

    def extend(self, models: Sequence[Vector]) -> None:
        """Add models; the arrays are held and must not change."""
        if self._held is None:
            append(self._dataset, np.stack(models))
        else:
            self._held += models

    def take(self, run: RowSource, name: str, count: int, held: Sequence[Vector]) -> None:
        """Begin with the first rows of an earlier run, or where it has the last one only with those that it held."""
        if self._held is not None:
            self._held += held
            return
        for first in range(0, count, self.rows_a_block):
            append(self._dataset, run.rows(name, slice(first, min(first + self.rows_a_block, count))))

    @property
    def held(self) -> tuple[Vector, ...]:
        """Those that stay in memory."""
        return tuple(self._held or ())

    def __len__(self) -> int:
        """How many there have been."""
        return len(self._dataset if self._held is None else self._held)

    def __getitem__(self, chosen: slice) -> list[Vector]:
        """Some of them."""
        return list((self._dataset if self._held is None else self._held)[chosen])

    def flush(self) -> None:
        """Hand everything to the operating system, the rows before their number."""
        self._dataset.flush()

    def close(self) -> None:
        """Write the last one where it is the only one; once."""
        if self._held and not len(self._dataset):
            append(self._dataset, self._held[-1][None])


def create_models(file: h5py.File, name: str, size: tuple[int, np.dtype[Any]], *, last_only: bool) -> None:
    """A dataset for models, without rows."""
    dimension, dtype = size
    chunks = (1 if last_only else _rows_a_block(dimension, dtype), dimension)
    file.create_dataset(name, (0, dimension), dtype, maxshape=(None, dimension), chunks=chunks)


def _rows_a_block(dimension: int, dtype: np.dtype[Any]) -> int:
    return max(1, min(_ROWS_A_BLOCK, _BYTES_A_BLOCK // (dimension * dtype.itemsize)))


def append(dataset: h5py.Dataset, rows: NDArray[Any]) -> None:
    """Add rows to a dataset that can grow."""
    if len(rows):
        first = len(dataset)
        dataset.resize(first + len(rows), axis=0)
        dataset[first:] = rows
