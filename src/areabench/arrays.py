"""Types of arrays, and their checksum."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

try:
    from zlib_ng.zlib_ng import crc32  # the same sum in a tenth of the time
except ImportError:
    from zlib import crc32

__all__ = ["Vector", "crc32"]

Vector = NDArray[Any]  # one-dimensional, of the problem's dtype: float32 or float64
