"""Checksums of the rows in a run file: every block of rows that is written has one, in the dataset /checksums.

HDF5 has checksums of its own for everything but rows: names, shapes, attributes, and where the rows are. It could
have them for rows too (the filter fletcher32), but ours are better in three ways. Fletcher-32 cannot tell a word of
zeros from one of ones, so that a client -1 may silently become 0. It belongs to a whole chunk, which is written again
with every row that is added, so that a write that is cut short takes rows with it that were complete before. And
models take three times as long to write.

The rows of /checksums are written after those that they are about. So in a file whose run was killed they also say
which rows are complete. Each has a checksum of itself: a damaged one is not taken for one that was not written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.arrays import crc32
from areabench.runfile.open import read_rows, stored_in_file
from areabench.runfile.schema import CHECKSUM

CHECKSUMS = "checksums"
_BYTES_A_BLOCK = 2**15  # as a damaged block is lost as a whole; a longer row is a block of its own
_OWN = CHECKSUM.fields["own"][1]  # type: ignore[index]  # the bytes of a row before its own checksum


class ChecksumLog:
    """Adds rows to datasets and notes their checksums, which wait until the rows themselves are in the file."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self._waiting: list[NDArray[Any]] = []

    def append(self, dataset: h5py.Dataset, rows: NDArray[Any]) -> None:
        """Add rows to a dataset that can grow."""
        if len(rows):
            first = len(dataset)
            dataset.resize(first + len(rows), axis=0)
            dataset[first:] = rows
            self.note(dataset, first, rows)

    def note(self, dataset: h5py.Dataset, first: int, rows: NDArray[Any]) -> None:
        """Note the checksums of rows that were written."""
        rows = np.ascontiguousarray(rows, dataset.dtype)
        step = max(1, _BYTES_A_BLOCK * len(rows) // max(1, rows.nbytes))
        for start in range(0, len(rows), step):
            self._waiting.append(checksum_row(dataset.name[1:], first + start, rows[start : start + step]))

    def flush(self) -> None:
        """Write what waits and hand it to the operating system."""
        if self._waiting:
            first = len(self._dataset)
            self._dataset.resize(first + len(self._waiting), axis=0)
            self._dataset[first:] = np.concatenate(self._waiting)
            self._waiting.clear()
        self._dataset.flush()


def checksum_row(part: str, first: int, rows: NDArray[Any]) -> NDArray[Any]:
    """One row of CHECKSUM."""
    row = np.array([(part.encode(), first, len(rows), checksum_of(rows), 0)], CHECKSUM)
    row["own"] = crc32(row.tobytes()[:_OWN])
    return row


def checksum_of(rows: NDArray[Any]) -> int:
    """The CRC-32 of the bytes of some rows, at least one."""
    return int(crc32(np.ascontiguousarray(rows).view(np.uint8).data.cast("B")))


class Block(NamedTuple):
    """Rows `first` to `last` - 1 of a dataset, and their checksum."""

    first: int
    last: int
    checksum: int


def read_blocks(file: h5py.File, *, strict: bool) -> dict[str, list[Block]]:
    """The blocks of each dataset, as far as one follows the other.

    A run adds one block after the other. A damaged row of /checksums, or a block elsewhere, is a ValueError: the rows
    behind it would not be counted. Without `strict` they are left out.
    """
    rows = read_rows(stored_in_file(file, CHECKSUMS), slice(None))
    if rows.dtype != CHECKSUM:
        raise ValueError(f"/{CHECKSUMS} has columns {rows.dtype.names}, expected {CHECKSUM.names}")
    blocks: dict[str, list[Block]] = {}
    content = memoryview(rows.tobytes())
    for number, (name, first, count, checksum, own) in enumerate(rows.tolist()):
        start = number * CHECKSUM.itemsize
        if crc32(content[start : start + _OWN]) != own:
            if strict:
                raise ValueError(f"row {number} of /{CHECKSUMS} does not have its checksum")
            continue
        part = name.decode(errors="replace")
        earlier = blocks.setdefault(part, [])
        if count >= 1 and first == (earlier[-1].last if earlier else 0):
            earlier.append(Block(first, first + count, checksum))
        elif strict:
            raise ValueError(f"block {len(earlier)} of /{part} is not where /{CHECKSUMS} has it")
    return blocks
