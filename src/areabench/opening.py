"""How a run file is opened for reading: one that was closed, is being written, or was left by a run that was killed.

While a run writes its file HDF5 puts everything in such an order that the file can be read at any moment (HDF5 calls it
SWMR, single writer and multiple readers). So it can be read when the run was killed too, with three things to know:
the file is marked as being written until the run closes it, its last rows may be there without their content, and
events, snapshots and models may reach different moments. Reading locks nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.claim import is_locked
from areabench.errors import RunFileError
from areabench.messages import digest
from areabench.problems.base import Vector
from areabench.schema import Kind
from areabench.superblock import Closed, is_marked

# what h5py raises in damaged files
DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, IndexError, OverflowError)


def open_file(path: Path) -> h5py.File:
    """The file, open for reading; an OSError and the like where that cannot be."""
    if is_marked(path):
        return h5py.File(path, "r", locking=False, swmr=True) if is_locked(path) else open_closed(path)
    return h5py.File(path, "r", locking=False)


def open_closed(path: Path) -> h5py.File:
    """A file that nobody writes any more, as if it had been closed and were as long as it says."""
    return h5py.File(Closed(path), "r", locking=False)


def open_for_reading(path: Path) -> h5py.File:
    """The same with a RunFileError."""
    if not path.is_file():
        raise RunFileError(f"{path}: no such file; give the path of a run file (.h5)")
    try:
        return open_file(path)
    except DAMAGE as error:
        raise RunFileError(
            f"{path}: is not a readable HDF5 file ({error}); give the path of a run file, or try `areabench recover`"
        ) from error


def damaged(path: Path, what: str) -> RunFileError:
    """What is said of a file that cannot be read as it should."""
    return RunFileError(f"{path}: is damaged ({what}); save what can be saved with `areabench recover`")


def left_open(file: h5py.File) -> bool:
    """Whether the run has not closed the file."""
    return bool(file.swmr_mode) or file.driver == "fileobj"


def ranks_exist(clients: NDArray[Any]) -> bool:
    """Whether the clients' ranks can be true: none, or one of at most as many as there are clients."""
    ranks = clients["rank"]
    return bool(((ranks >= -1) & (ranks <= len(clients))).all())


# -------------------------------------------------------------------------------------------------- last rows


def whole_events(rows: NDArray[Any]) -> int:
    """How many events were written: rows of zeros only are room that was made and not filled; no event looks so.

    The row before them may be cut off. Then its checksum, which comes last, is missing.
    """
    empty = ~np.ascontiguousarray(rows).view((np.uint8, rows.dtype.itemsize)).any(axis=1)
    if not empty.any():
        return len(rows)
    count = int(empty.argmax())
    cut_off = count > 0 and rows["digest"][count - 1] == 0 and rows["kind"][count - 1] <= Kind.DISCARDED
    return count - cut_off


def whole_snapshots(index: NDArray[Any], events: int | None, model: Callable[[int], Vector], checked: int) -> int:
    """How many snapshots can be used: their events are there, and the last `checked` models have their checksums."""
    count = len(index)
    if events is not None:
        later = index["event"] > events
        count = int(later.argmax()) if later.any() else count
    for number in range(max(0, count - checked), count):
        if digest(model(number)) != index["digest"][number]:
            return number
    return count
