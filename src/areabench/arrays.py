"""Types of arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Vector = NDArray[Any]  # one-dimensional, of the problem's dtype: float32 or float64
