"""Opening run files for reading, also those that a killed run has left.

A run under way marks its file as being written, and a killed run leaves the mark. HDF5 then waits, for minutes if
something is wrong, for the writer to complete the file. So such a file is shown to HDF5 behind the first bytes of one
that was closed; the file itself is not changed.
"""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from areabench.errors import RunFileError
from areabench.files import irregular
from areabench.runfile.lock import is_locked

VERSIONS = ("v110", "v110")  # the oldest HDF5 format that can be read while it is written
_SIGNATURE = b"\x89HDF\r\n\x1a\n\x03"  # with the version that such files have
_FLAGS_AT, _BEING_WRITTEN = 11, 4
_HEAD_BYTES = 48  # before the root group: signature, version, mark, end of the file, HDF5's own checksum
_MOST_UNFILLED = 2**26  # bytes that a killed run has allocated and not filled, or that a copy has lost

# what h5py raises in damaged files
DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, IndexError, OverflowError)


class DamagedFileError(RunFileError):
    """A run file that is damaged; `what` says where."""

    def __init__(self, path: Path, what: Exception | str) -> None:
        self.what = what.args[0] if isinstance(what, KeyError) else str(what)  # as text a KeyError has quotes
        super().__init__(f"{path}: is damaged ({self.what}); save what can be saved with `areabench recover`")


def is_marked(path: Path) -> bool:
    """Whether the file was not closed, or is being written."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return len(head) == _HEAD_BYTES and head.startswith(_SIGNATURE) and bool(head[_FLAGS_AT] & _BEING_WRITTEN)


def closed_head(size: int) -> bytes:
    """The first bytes of a file that was closed and has at least this many bytes, as HDF5 writes them."""
    written = io.BytesIO()
    with h5py.File(written, "w", libver=VERSIONS) as file:
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)  # the bytes are counted, and never written
        h5py.h5d.create(file.id, b"room", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple((size,)), settings)
    return written.getvalue()[:_HEAD_BYTES]


class ClosedFile(io.RawIOBase):
    """A file for HDF5 to read, as if it had been closed; zeros stand for what was cut off or never filled."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb")
        self._head = closed_head(path.stat().st_size + _MOST_UNFILLED)
        self._size = int.from_bytes(self._head[28:36], "little")  # the end of the file, as the head has it
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as many bytes as there is room for, or up to the end."""
        count = max(0, min(len(buffer), self._size - self._position))
        found = os.pread(self._file.fileno(), count, self._position)
        buffer[:count] = found + bytes(count - len(found))
        head = self._head[self._position : self._position + count]
        buffer[: len(head)] = head
        self._position += count
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def open_file(path: Path) -> h5py.File:
    """The file, open for reading; a RunFileError if that fails."""
    if not path.is_file():
        reason = irregular(path) or "no such file; give the path of a run file (.h5)"
        raise RunFileError(f"{path}: {reason}")
    try:
        if not is_marked(path):
            return h5py.File(path, "r", locking=False)
        return h5py.File(path, "r", locking=False, swmr=True) if is_locked(path) else open_closed(path)
    except DAMAGE as error:
        raise RunFileError(
            f"{path}: is not a readable HDF5 file ({error}); give the path of a run file, or try `areabench recover`"
        ) from error


def open_closed(path: Path) -> h5py.File:
    """A file that is no longer written, read as if it had been closed."""
    return h5py.File(ClosedFile(path), "r", locking=False)


def was_left_open(file: h5py.File) -> bool:
    """Whether the run has not closed the file."""
    return bool(file.swmr_mode) or file.driver == "fileobj"


def read_rows(dataset: h5py.Dataset, chosen: slice) -> NDArray[Any]:
    """Some rows of a dataset; an error of DAMAGE where they cannot be read.

    Only rows that the file stores are read: a dataset may declare more than fit into memory without storing any.
    """
    count = len(range(*chosen.indices(len(dataset))))
    wanted = count * dataset.dtype.itemsize * math.prod(dataset.shape[1:])
    stored = dataset.id.get_storage_size()
    if wanted > stored + _MOST_UNFILLED:
        raise ValueError(f"{dataset.name} declares {wanted:,} bytes and stores {stored:,}")
    rows: NDArray[Any] = dataset[chosen]
    return rows


def stored_in_file(file: h5py.File, name: str) -> Any:
    """A dataset or group that lies in the file itself.

    Nothing else is opened: a link or a virtual dataset may lead to any other file, also to one that never answers.
    """
    part = file
    for step in name.split("/"):
        if not isinstance(part.get(step, getlink=True), h5py.HardLink):
            raise KeyError(f"/{name} is not in this file")
        part = part[step]
    if isinstance(part, h5py.Dataset) and (part.is_virtual or part.external):
        raise KeyError(f"/{name} is not in this file")
    return part
