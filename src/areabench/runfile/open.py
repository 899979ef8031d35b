"""Opening run files for reading, also those that a killed run has left.

The first 48 bytes say how long the file is and whether it is being written. A killed run leaves that mark. HDF5 then
waits, for minutes if something is wrong, for the writer to complete the file. So such a file is shown to HDF5 as if it
had been closed; the file itself is not changed.
"""

from __future__ import annotations

import io
import math
import os
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.errors import RunFileError
from areabench.files import irregular
from areabench.runfile.lock import is_locked

SIZE = 48
_LAYOUT = struct.Struct("<8sBBBBQQQQ")  # signature, version, sizes of addresses and lengths, flags, four addresses
_CHECKSUM = struct.Struct("<I")
_SIGNATURE, _VERSION, _NOWHERE = b"\x89HDF\r\n\x1a\n", 3, 2**64 - 1
_BEING_WRITTEN = 4  # of the flags
_ROOT = 48  # where the root group of our files is


def is_marked(path: Path) -> bool:
    """Whether the file was not closed, or is being written."""
    with path.open("rb") as file:
        head = file.read(SIZE)
    return is_sound(head) and bool(head[11] & _BEING_WRITTEN)


def is_sound(head: bytes) -> bool:
    """Whether this is the beginning of an HDF5 file in the format that we write."""
    if len(head) < SIZE or not head.startswith(_SIGNATURE) or head[8] != _VERSION:
        return False
    return _CHECKSUM.pack(_checksum(head[: _LAYOUT.size])) == head[_LAYOUT.size : SIZE]


def closed(head: bytes, size: int) -> bytes:
    """The beginning of the same file as if it had been closed, and at least as long as it is."""
    base, extension, end, root = _LAYOUT.unpack_from(head)[5:] if is_sound(head) else (0, _NOWHERE, 0, _ROOT)
    content = _LAYOUT.pack(_SIGNATURE, _VERSION, 8, 8, 0, base, extension, max(end, size), root)
    return content + _CHECKSUM.pack(_checksum(content))


class Closed(io.RawIOBase):
    """A file for HDF5 to read, as if it had been closed; what was cut off is zeros."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb")
        size = path.stat().st_size
        self._head = closed(self._file.read(SIZE), size)
        self._size, self._position = int(max(size, _LAYOUT.unpack_from(self._head)[7])), 0

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
        if self._position < SIZE:
            head = self._head[self._position : self._position + count]
            buffer[: len(head)] = head
        self._position += count
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


# ---------------------------------------------------------------------------------------------------- checksum


def _checksum(content: bytes) -> int:
    """The checksum of HDF5's metadata: Bob Jenkins' lookup3 (hashlittle), of at least one byte."""
    a = b = c = (0xDEADBEEF + len(content)) & 0xFFFFFFFF
    words = struct.unpack(f"<{-(-len(content) // 12) * 3}I", content.ljust(-(-len(content) // 12) * 12, b"\0"))
    for first in range(0, len(words) - 3, 3):
        a, b, c = _mixed(a + words[first], b + words[first + 1], c + words[first + 2])
    return _final(a + words[-3], b + words[-2], c + words[-1])


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for turn in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & 0xFFFFFFFF) ^ _rotated(c, turn)
        a, b, c = b, (c + b) & 0xFFFFFFFF, a
    return a & 0xFFFFFFFF, b, c


def _final(a: int, b: int, c: int) -> int:
    for turn in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, turn)) & 0xFFFFFFFF
        a, b, c = b, c, a
    return b


def _rotated(word: int, bits: int) -> int:
    word &= 0xFFFFFFFF
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF


# what h5py raises in damaged files
DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, IndexError, OverflowError)


_MOST_UNFILLED = 2**26  # bytes of a dataset that a killed run has allocated and not filled


def open_file(path: Path) -> h5py.File:
    """The file, open for reading; an OSError or the like if that fails."""
    if is_marked(path):
        return h5py.File(path, "r", locking=False, swmr=True) if is_locked(path) else open_closed(path)
    return h5py.File(path, "r", locking=False)


def open_closed(path: Path) -> h5py.File:
    """A file that is no longer written, read as if it had been closed and were as long as its header says."""
    return h5py.File(Closed(path), "r", locking=False)


def open_for_reading(path: Path) -> h5py.File:
    """The file, open for reading; a RunFileError if that fails."""
    if not path.is_file():
        reason = irregular(path) or "no such file; give the path of a run file (.h5)"
        raise RunFileError(f"{path}: {reason}")
    try:
        return open_file(path)
    except DAMAGE as error:
        raise RunFileError(
            f"{path}: is not a readable HDF5 file ({error}); give the path of a run file, or try `areabench recover`"
        ) from error


def damaged(path: Path, what: str) -> RunFileError:
    """The error about a damaged file."""
    return RunFileError(f"{path}: is damaged ({what}); save what can be saved with `areabench recover`")


def read_rows(file: h5py.File, name: str, chosen: slice | int) -> NDArray[Any]:
    """Some rows of a dataset; an error of DAMAGE where they cannot be read.

    Only rows that the file itself stores are read: a link or a virtual dataset may lead to any other file, also to one
    that never answers, and a dataset may declare more rows than fit into memory without storing any.
    """
    dataset = stored_in_file(file, name)
    count = 1 if isinstance(chosen, int) else len(range(*chosen.indices(len(dataset))))
    wanted, stored = count * dataset.dtype.itemsize * math.prod(dataset.shape[1:]), dataset.id.get_storage_size()
    if wanted > stored + _MOST_UNFILLED:
        raise ValueError(f"/{name} declares {wanted:,} bytes and stores {stored:,}")
    rows: NDArray[Any] = dataset[chosen]
    return rows


def stored_in_file(file: h5py.File, name: str) -> Any:
    """A dataset or group that lies in the file itself."""
    part = file
    for step in name.split("/"):
        if not own_link(part, step):
            raise KeyError(f"/{name} is not in this file")
        part = part[step]
    if isinstance(part, h5py.Dataset) and (part.is_virtual or part.external):
        raise KeyError(f"/{name} is not in this file")
    return part


def own_link(group: h5py.Group, name: str) -> bool:
    """Whether a group has a member of this name that lies in the same file; nothing else is opened."""
    return isinstance(group.get(name, getlink=True), h5py.HardLink)


def left_open(file: h5py.File) -> bool:
    """Whether the run has not closed the file."""
    return bool(file.swmr_mode) or file.driver == "fileobj"


def ranks_exist(clients: NDArray[Any]) -> bool:
    """Whether the clients' ranks can be true: none, or one of at most as many as there are clients."""
    ranks = clients["rank"]
    return bool(((ranks >= -1) & (ranks <= len(clients))).all())


def first_false(good: NDArray[np.bool_]) -> int:
    """The number of entries before the first that is false."""
    return len(good) if good.all() else int(good.argmin())
