"""The objects of a run file: attributes, status, datasets of rows and of models, and the rows of metrics and diagnosis.

All objects are made at once, because only rows can be added once HDF5 writes so that others can read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector, crc32
from areabench.engine.diagnosis import Diagnosis
from areabench.engine.events import Provenance, Status
from areabench.experiment.experiment import Record
from areabench.problems.base import Metrics
from areabench.runfile.checksums import CHECKSUMS, ChecksumLog
from areabench.runfile.open import VERSIONS
from areabench.runfile.reader import AVERAGES, CHECKSUM_SUFFIX, RunReader
from areabench.runfile.schema import (
    CHECKSUM,
    DATASETS,
    DIAGNOSIS,
    METRIC,
    STATUS,
    STATUS_COLUMNS,
    STATUS_CONTENT,
)

_LONGEST = 60_000  # bytes; HDF5 has room for 64 kB beside a checksum, longer experiments go to the heap


def write_attributes(attributes: h5py.AttributeManager, values: Mapping[str, str | int]) -> None:
    """Write texts and whole numbers; a text that HDF5 puts where it keeps no checksum gets one of ours."""
    for name, value in values.items():
        if isinstance(value, int):
            attributes[name] = value
            continue
        content = value.encode(errors="backslashreplace")
        if len(content) <= _LONGEST:
            attributes[name] = np.bytes_(content or b"\0")  # HDF5 knows no text of no bytes
        else:
            attributes[name] = value
            attributes[name + CHECKSUM_SUFFIX] = crc32(value.encode())


# ---------------------------------------------------------------------------------------------------- models


_ROWS_A_BLOCK = 16
_BYTES_A_BLOCK = 2**20


class ModelRows:
    """A growing dataset of models; if only the last is kept, the others stay in memory until they are evaluated."""

    def __init__(self, dataset: h5py.Dataset, log: ChecksumLog, *, last_only: bool) -> None:
        self.rows_a_block = _rows_a_block(dataset.shape[1], dataset.dtype)
        self._dataset = dataset
        self._log = log
        self._last_only = last_only
        self.held: list[Vector] = []  # models that stay in memory

    def extend(self, models: Sequence[Vector]) -> None:
        """Add models; the arrays are held and must not change."""
        if self._last_only:
            self.held += models
        else:
            self._log.append(self._dataset, np.stack(models))

    def take(self, run: RunReader, name: str, count: int, held: Sequence[Vector]) -> None:
        """Start with the first rows of an earlier run, or with those `held` if its file has the last one only."""
        if self._last_only:
            self.held += held
            return
        for first in range(0, count, self.rows_a_block):
            self._log.append(self._dataset, run.rows(name, first, min(first + self.rows_a_block, count)))

    def blocks(self) -> Iterator[list[Vector]]:
        """The models so far, as many at a time as are evaluated together."""
        models = self.held if self._last_only else self._dataset
        step = evaluated_at_once(self._dataset.shape[1], self._dataset.dtype)
        for first in range(0, len(models), step):
            yield list(models[first : first + step])

    def close(self) -> None:
        """Write the last model, once, if it is the only one that is kept."""
        if self.held and not len(self._dataset):
            self._log.append(self._dataset, self.held[-1][None])


def create_models(file: h5py.File, name: str, size: tuple[int, np.dtype[Any]], *, last_only: bool) -> None:
    """A dataset for models, without rows."""
    dimension, dtype = size
    chunks = (1 if last_only else _rows_a_block(dimension, dtype), dimension)
    file.create_dataset(name, (0, dimension), dtype, maxshape=(None, dimension), chunks=chunks)


def _rows_a_block(dimension: int, dtype: np.dtype[Any]) -> int:
    return max(1, min(_ROWS_A_BLOCK, _BYTES_A_BLOCK // (dimension * dtype.itemsize)))


def evaluated_at_once(dimension: int, dtype: np.dtype[Any]) -> int:
    """How many snapshots are evaluated together; another number would round their metrics in another way."""
    return 16 * _rows_a_block(dimension, dtype)


# ---------------------------------------------------------------------------------------------------- status


def pack_status(status: Status) -> bytes:
    """A status as the bytes of a record of STATUS."""
    texts = {"state": status.state.text.encode(), "reason": cut(status.reason, STATUS["reason"].itemsize)}
    values = {**asdict(status), **texts, "checksum": 0}
    row = np.array(tuple(values[name] for name in STATUS_COLUMNS), STATUS)
    content = row.tobytes()[:STATUS_CONTENT]
    return content + crc32(content).to_bytes(4, "little")


def cut(text: str, size: int) -> bytes:
    """A text in at most `size` bytes of UTF-8, cut between characters."""
    return text.encode(errors="replace")[:size].decode(errors="ignore").encode()


# ---------------------------------------------------------------------------------------------------- the whole file


EVENTS_A_BLOCK = 256
_CACHE_BYTES = 2**20  # a dataset: rows are written once and not read again, so that a larger cache only fills memory


def first_content(
    about: Mapping[str, str | int],
    size: tuple[int, np.dtype[Any]],
    record: Record,
    provenance: Provenance,
    clients: NDArray[Any],
) -> tuple[bytes, int]:
    """A whole run file without rows, and the offset of its status.

    `about` are the attributes of the file, `size` is the number of parameters and their type. The content is made in
    memory, because HDF5 crashes if the disk is full.
    """
    with h5py.File("content", "w", driver="core", backing_store=False, libver=VERSIONS) as file:
        write_attributes(file.attrs, about)
        write_attributes(file.create_group("provenance").attrs, asdict(provenance))
        growing = {name: (dataset.row, dataset.chunk) for name, dataset in DATASETS.items() if dataset.chunk}
        for name, (row, chunk) in {**growing, CHECKSUMS: (CHECKSUM, 64)}.items():
            file.create_dataset(name, (0,), row, maxshape=(None,), chunks=(chunk,))
        create_models(file, "snapshots/model", size, last_only=record.models == "last")
        if record.average:
            create_models(file, AVERAGES, size, last_only=record.models == "last")
        log = ChecksumLog(file[CHECKSUMS])
        log.note(file.create_dataset("clients", data=clients), 0, clients)
        log.flush()
        # the status is allocated in one piece, so that it can be written when HDF5 cannot write any more
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        kind = h5py.h5t.py_create(STATUS)
        status = h5py.h5d.create(file.id, b"status", kind, h5py.h5s.create_simple((1,)), settings)
        file.flush()
        return file.id.get_file_image(), int(status.get_offset())


def open_to_append(path: Path) -> h5py.File:
    """The file, open in such a way that others can read it at any moment; the lock is that of lock.py."""
    file = h5py.File(path, "r+", libver=VERSIONS, locking=False, rdcc_nbytes=_CACHE_BYTES)
    file.swmr_mode = True
    return file


def close_after_write_error(file: h5py.File) -> None:
    """Close a file that cannot be written: HDF5 keeps trying and crashes in the end unless its writes go nowhere."""
    if file.id.valid:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), file.id.get_vfd_handle())
        with suppress(OSError, RuntimeError):
            file.close()


def cause_of(error: OSError | RuntimeError) -> str:
    """Why a file cannot be written, in the words of the operating system if HDF5 quotes them."""
    if said := re.search(r"error message = '([^']*)'", str(error)):
        return said[1]
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told.partition("\n")[0]


def metric_rows(blocks: Sequence[Metrics], averages: Sequence[Metrics]) -> NDArray[Any]:
    """Rows of METRIC, one per snapshot."""
    table = np.full(sum(len(block.train_loss) for block in blocks), np.nan, METRIC)
    for item in fields(Metrics):
        table[item.name] = np.concatenate([getattr(block, item.name) for block in blocks])
    if averages:
        table["average_loss"] = np.concatenate([block.train_loss for block in averages])
        table["average_accuracy"] = np.concatenate([block.test_accuracy for block in averages])
    return table


def diagnosis_row(diagnosis: Diagnosis) -> NDArray[Any]:
    """A diagnosis as one row of DIAGNOSIS; its tables have datasets of their own."""
    row = np.zeros(1, DIAGNOSIS)
    for name in DIAGNOSIS.names or ():
        value = getattr(diagnosis, name)
        row[name] = cut(value, DIAGNOSIS[name].itemsize) if isinstance(value, str) else value
    return row


@dataclass(frozen=True)
class ModelsInMemory:
    """Models and averages of snapshots that wait in memory because the run file keeps the last one only."""

    models: Sequence[Vector] = ()
    averages: Sequence[Vector] = ()


def checkpoint_path(run_file: Path) -> Path:
    """The checkpoint that belongs to a run file."""
    return run_file.with_name(run_file.name + ".checkpoint")
