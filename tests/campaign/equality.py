"""Whether two run files hold the same, to the bit: all datasets and the status; where and when they ran may differ."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

ALLOWED_TO_DIFFER = ("provenance",)


def difference(one: Path, other: Path) -> str:
    """The first thing that differs between two run files; empty where nothing does."""
    with h5py.File(one, "r") as first, h5py.File(other, "r") as second:
        if first.attrs["experiment"] != second.attrs["experiment"]:
            return "the experiment differs"
        for name in _names(first) | _names(second):
            if found := _item_difference(first, second, name):
                return found
    return ""


def _names(file: h5py.File) -> set[str]:
    names: list[str] = []
    file.visit(names.append)
    return {name for name in names if name.partition("/")[0] not in ALLOWED_TO_DIFFER}


def _item_difference(first: h5py.File, second: h5py.File, name: str) -> str:
    if name not in first or name not in second:
        return f"/{name} is in one file only"
    one, other = first[name], second[name]
    if isinstance(one, h5py.Dataset):
        return "" if _same_rows(one, other) else f"/{name} differs"
    old, new = dict(one.attrs), dict(other.attrs)
    differing = [key for key in old.keys() | new.keys() if not _same(old.get(key), new.get(key))]
    return f"/{name}: {differing[0]} is {old.get(differing[0])!r} and {new.get(differing[0])!r}" if differing else ""


def _same_rows(one: h5py.Dataset, other: h5py.Dataset) -> bool:
    """Compared by bytes, so that NaN equals NaN."""
    return bool(one.dtype == other.dtype and one.shape == other.shape and one[()].tobytes() == other[()].tobytes())


def _same(one: object, other: object) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes() if isinstance(one, np.generic) else one == other
