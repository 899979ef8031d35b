"""Answers as JSON, the same way for every command: full precision, stable keys, null where there is no number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np


def to_json(value: Any, *, in_one_line: bool = False) -> str:
    """A record, table, list or mapping as JSON; ends with a line break, and has no control character elsewhere."""
    return json.dumps(plain(value), indent=None if in_one_line else 2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The same as what JSON knows; it has neither NaN nor infinity."""
    if isinstance(value, Enum):
        return value.value if isinstance(value, str) else getattr(value, "text", value.name.lower())
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _table(value) if value.dtype.names else plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _table(table: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Rows with named columns."""
    names = table.dtype.names or ()
    return [dict(zip(names, map(plain, row), strict=True)) for row in table.tolist()]


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
