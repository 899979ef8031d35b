"""TODO."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Vector = NDArray[Any]  # one-dimensional, float32 or float64, the problem's dtype
