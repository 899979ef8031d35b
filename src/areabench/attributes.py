"""Attributes in a run file: texts of fixed length, which lie where HDF5 keeps a checksum.

Texts of any length would lie in a heap without one, and damage there goes unnoticed or makes HDF5 search for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

_LONGEST = 60_000  # bytes; HDF5 has room for 64 kB beside a checksum, longer experiments go to the heap


def write_attributes(attributes: h5py.AttributeManager, values: Mapping[str, str | int]) -> None:
    """Add texts and whole numbers."""
    for name, value in values.items():
        attributes[name] = _inline(value) if isinstance(value, str) else value


def read_attributes(attributes: h5py.AttributeManager) -> dict[str, Any]:
    """All attributes, texts as such."""
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}


def _inline(text: str) -> np.bytes_ | str:
    content = text.encode(errors="backslashreplace")
    return np.bytes_(content or b"\0") if len(content) <= _LONGEST else text  # HDF5 knows no text of no bytes
