"""Types of arrays, and their checksum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from zlib_ng.zlib_ng import crc32  # the same sum in a tenth of the time
except ImportError:
    from zlib import crc32

__all__ = ["FLOAT32", "FLOAT64", "Stack", "Vector", "crc32", "wrong_vector"]

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

Vector = NDArray[Any]  # one-dimensional, of the problem's dtype: float32 or float64
Stack = NDArray[Any]  # a vector per row, shape (lanes, dimension)


def wrong_vector(vector: Any, model: Vector) -> str:
    """How a vector differs from a model in type or shape; empty if it does not."""
    if not isinstance(vector, np.ndarray):
        return f"is {type(vector).__name__}, not an array"
    if vector.dtype != model.dtype:
        return f"is {vector.dtype}, where the problem has {model.dtype}"
    return "" if vector.shape == model.shape else f"has the shape {vector.shape}, not {model.shape}"
