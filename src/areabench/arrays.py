"""Types of arrays, and their checksum."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from zlib_ng.zlib_ng import crc32  # the same sum in a tenth of the time
except ImportError:
    from zlib import crc32

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "Columns",
    "Stack",
    "Vector",
    "crc32",
    "each_times",
    "row_type",
    "times_each",
    "wrong_vector",
]

# What models and messages are made of.
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

Vector = NDArray[Any]  # one-dimensional, of the problem's dtype: float32 or float64
Stack = NDArray[Any]  # a vector per row, shape (lanes, dimension)

Columns = Mapping[str, tuple[str, str]]  # of a table in a run file: type and meaning by name; docs/run-file.md has both


def row_type(columns: Columns) -> np.dtype[Any]:
    """The type of a row of a table."""
    return np.dtype([(name, kind) for name, (kind, _) in columns.items()])


_CODES = {"f8": "d", "i8": "q", "i4": "i", "u8": "Q", "u1": "B"}


def row_struct(row: np.dtype[Any]) -> struct.Struct:
    """What packs a row of numbers, in a quarter of the time that numpy takes to fill it."""
    return struct.Struct("<" + "".join(_CODES[row[name].str[1:]] for name in row.names or ()))


def times_each(matrix: NDArray[np.float64], models: NDArray[Any]) -> NDArray[Any]:
    """A matrix of shape (n, d) times a vector, or times each row of a stack: as each row alone, to the bit."""
    if models.ndim == 1:
        product: NDArray[Any] = matrix @ models
        return product
    return np.asarray((matrix @ models[..., None])[..., 0])


def each_times(rows: NDArray[Any], matrix: NDArray[np.float64]) -> NDArray[Any]:
    """A vector of shape (n,), or each row of a stack, times a matrix of shape (n, d): as each row alone, to the bit."""
    if rows.ndim == 1:
        product: NDArray[Any] = rows @ matrix
        return product
    return np.asarray((rows[:, None, :] @ matrix)[:, 0])


def wrong_vector(vector: Any, model: Vector) -> str:
    """How a vector differs from a model in type or shape; empty if it does not."""
    if not isinstance(vector, np.ndarray):
        return f"is {type(vector).__name__}, not an array"
    if vector.dtype != model.dtype:
        return f"is {vector.dtype}, where the problem has {model.dtype}"
    return "" if vector.shape == model.shape else f"has the shape {vector.shape}, not {model.shape}"
