"""Checksums of the rows in a run file: every block of rows that is written has one, in the dataset /checksums.

HDF5 has checksums of its own for everything but rows: names, shapes, attributes, and where the rows are. The rows of
/checksums are written after those that they are about. So in a file whose run was killed they also say which rows are
complete. Each has a checksum of itself: a damaged one is not taken for one that was not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.arrays import crc32
from areabench.runfile.open import DAMAGE, read_rows, stored_in_file

CHECKSUMS = "checksums"
CHECKSUM = np.dtype([("part", "S32"), ("first", "<i8"), ("count", "<i8"), ("content", "<u4"), ("own", "<u4")])
DATASETS = (
    "clients", "events", "snapshots/index", "snapshots/model", "snapshots/average", "metrics", "tally/staleness",
    "tally/served", "diagnosis/summary", "diagnosis/clients", "diagnosis/quantiles",
)  # fmt: skip
_BYTES_A_BLOCK = 2**15  # as a damaged block is lost as a whole; a longer row is a block of its own
_BLOCKS_AT_ONCE = 256  # that are read and verified together
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
        part, rows = dataset.name[1:], np.ascontiguousarray(rows, dataset.dtype)
        step = max(1, _BYTES_A_BLOCK * len(rows) // max(1, rows.nbytes))
        for start in range(0, len(rows), step):
            self._waiting.append(checksum_row(part, first + start, rows[start : start + step]))

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
    row = np.array([(part.encode(), first, len(rows), crc32(_bytes_of(rows)), 0)], CHECKSUM)
    row["own"] = crc32(row.tobytes()[:_OWN])
    return row


class Checksums:
    """The checksums that a file has, read once; a ValueError says which rows are damaged."""

    def __init__(self, file: h5py.File, *, strict: bool = True) -> None:
        """Read /checksums; without `strict` its damaged rows are left out, as if they had not been written."""
        self._file = file
        rows = read_rows(file, CHECKSUMS, slice(None))
        if rows.dtype != CHECKSUM:
            raise ValueError(f"/{CHECKSUMS} has columns {rows.dtype.names}, expected {CHECKSUM.names}")
        size, content = CHECKSUM.itemsize, rows.tobytes()
        each = [content[start : start + size] for start in range(0, len(content), size)]
        good = np.array([crc32(row[:_OWN]) for row in each], np.uint32) == rows["own"]
        if strict and not good.all():
            raise ValueError(f"row {good.argmin()} of /{CHECKSUMS} does not have its checksum")
        self._rows = rows[good]
        if strict:
            self._check_order()

    def covered(self, part: str) -> int:
        """How many rows of a dataset have checksums, from the first on."""
        return max((last for _, last, _ in self._blocks(part)), default=0)

    def verified(self, part: str, after: int = 0) -> tuple[int, str]:
        """How many rows from the first on have the right checksum, and what is wrong with those that follow.

        Blocks that end at row `after` or before are taken for right.
        """
        blocks = [block for block in self._blocks(part) if block[1] > after]
        count, at_once = min(after, self.covered(part)), _BLOCKS_AT_ONCE
        while blocks:
            some = blocks[:at_once]
            try:
                rows = read_rows(self._file, part, slice(some[0][0], some[-1][1]))
            except DAMAGE as error:
                if at_once > 1:
                    at_once = 1
                    continue
                return count, f"rows {some[0][0]:,} to {some[0][1] - 1:,} of /{part} cannot be read: {error}"
            for first, last, content in some:
                if crc32(_bytes_of(rows[first - some[0][0] : last - some[0][0]])) != content:
                    return count, f"rows {first:,} to {last - 1:,} of /{part} do not have their checksum"
                count = last
            blocks = blocks[at_once:]
        return count, ""

    def _check_order(self) -> None:
        """A run adds one block after the other: where one is elsewhere, the rows behind it would not be counted."""
        for part in sorted(set(self._rows["part"].tolist())):  # np.unique loads 20 ms of masked arrays
            rows = self._rows[self._rows["part"] == part]
            wrong = (rows["count"] < 1) | (rows["first"] != np.cumsum(rows["count"]) - rows["count"])
            if wrong.any():
                raise ValueError(f"block {wrong.argmax()} of /{part.decode()} is not where /{CHECKSUMS} has it")

    def _blocks(self, part: str) -> Iterator[tuple[int, int, int]]:
        """First row, row after the last, and checksum of each block, as far as one follows the other."""
        expected = 0
        for _, first, count, content, _ in self._rows[self._rows["part"] == part.encode()].tolist():
            if first != expected or count < 1:
                return
            expected += count
            yield first, expected, content


class VerifiedRows:
    """The rows of an open file that count: those with the right checksum."""

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self._checksums = Checksums(file)

    def count(self, part: str, after: int = 0) -> int:
        """How many rows of a dataset count; a ValueError if one after the first `after` is damaged."""
        count, wrong = self._checksums.verified(part, after)
        if wrong:
            raise ValueError(wrong)
        return count

    def rows(self, part: str) -> NDArray[Any]:
        """All rows of a dataset that count."""
        return read_rows(self._file, part, slice(self.count(part)))


def check_rows(file: h5py.File, *, complete: bool) -> tuple[dict[str, int], dict[str, str]]:
    """How many rows of each dataset count, and what is wrong in those that are damaged.

    In a `complete` file all rows have checksums. Where a run was killed, or is still writing, rows without one are not
    counted.
    """
    checksums, counts, damage = Checksums(file), dict[str, int](), dict[str, str]()
    for part in DATASETS:
        counts[part], wrong = checksums.verified(part)
        if complete and not wrong:
            wrong = _uncovered(file, part, counts[part])
        if wrong:
            damage[part] = wrong
    return counts, damage


def _uncovered(file: h5py.File, part: str, count: int) -> str:
    """What is wrong with a dataset of which the first `count` rows have checksums; empty if that is all of it."""
    try:
        rows = len(stored_in_file(file, part))
    except DAMAGE as error:
        return "" if part == "snapshots/average" else f"/{part} cannot be read: {error}"  # only where asked for
    return "" if count == rows else f"rows from {count:,} on of /{part} have no checksum"


def _bytes_of(rows: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(rows).view(np.uint8).data.cast("B") if rows.size else memoryview(b"")
