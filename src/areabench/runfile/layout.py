"""The objects of a run file: attributes, status, datasets of rows and of models, and the rows of metrics and diagnosis.

All objects are made at once, because only rows can be added once HDF5 writes so that others can read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
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
    FORMAT,
    METRIC,
    SCHEMA_VERSION,
    STATUS,
    STATUS_COLUMNS,
    STATUS_CONTENT,
)

_LONGEST = 60_000  # bytes; HDF5 has room for 64 kB beside a checksum, longer experiments go to the heap


def write_attributes(attributes: h5py.AttributeManager, values: Mapping[str, str | int]) -> None:
    """Write texts and whole numbers; a text that HDF5 puts where it keeps no checksum gets one of ours."""
    for name, value in values.items():
        attributes[name] = stored = _inline(value) if isinstance(value, str) else value
        if isinstance(stored, str):
            attributes[name + CHECKSUM_SUFFIX] = crc32(stored.encode())


def _inline(text: str) -> np.bytes_ | str:
    content = text.encode(errors="backslashreplace")
    return np.bytes_(content or b"\0") if len(content) <= _LONGEST else text  # HDF5 knows no text of no bytes


# ---------------------------------------------------------------------------------------------------- models


_ROWS_A_BLOCK = 16
_BYTES_A_BLOCK = 2**20


class ModelRows:
    """A growing dataset of models; if only the last is kept, the others stay in memory until they are evaluated."""

    def __init__(self, dataset: h5py.Dataset, log: ChecksumLog, *, last_only: bool) -> None:
        self.rows_a_block = _rows_a_block(dataset.shape[1], dataset.dtype)
        self.evaluated_at_once = evaluated_at_once(dataset.shape[1], dataset.dtype)
        self._dataset, self._log = dataset, log
        self._held: list[Vector] | None = [] if last_only else None

    def extend(self, models: Sequence[Vector]) -> None:
        """Add models; the arrays are held and must not change."""
        if self._held is None:
            self._log.append(self._dataset, np.stack(models))
        else:
            self._held += models

    def take(self, run: RunReader, name: str, count: int, held: Sequence[Vector]) -> None:
        """Start with the first rows of an earlier run, or with those `held` if its file has the last one only."""
        if self._held is not None:
            self._held += held
            return
        for first in range(0, count, self.rows_a_block):
            self._log.append(self._dataset, run.rows(name, first, min(first + self.rows_a_block, count)))

    @property
    def held(self) -> tuple[Vector, ...]:
        """The models that stay in memory."""
        return tuple(self._held or ())

    def __len__(self) -> int:
        """The number of models so far."""
        return len(self._dataset if self._held is None else self._held)

    def __getitem__(self, chosen: slice) -> list[Vector]:
        """Some of the models."""
        return list((self._dataset if self._held is None else self._held)[chosen])

    def flush(self) -> None:
        """Hand everything to the operating system, the rows before their number."""
        self._dataset.flush()

    def close(self) -> None:
        """Write the last model, once, if it is the only one that is kept."""
        if self._held and not len(self._dataset):
            self._log.append(self._dataset, self._held[-1][None])


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


def create_status(file: h5py.File) -> int:
    """Allocate the status in one piece; returns its offset in the file, in bytes."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple((1,))
    return int(h5py.h5d.create(file.id, b"status", h5py.h5t.py_create(STATUS), space, settings).get_offset())


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


@dataclass(frozen=True)
class Opening:
    """What is known of a run before it begins; `size` is the number of parameters and their type."""

    experiment: str  # TOML
    folder: str  # that its paths are relative to; empty where none is
    run_folder: Path  # of the run file
    size: tuple[int, np.dtype[Any]]
    record: Record


@dataclass(frozen=True)
class Layout:
    """The datasets that rows go to during a run."""

    events: h5py.Dataset
    index: h5py.Dataset
    models: ModelRows
    averages: ModelRows | None
    log: ChecksumLog


def first_content(opening: Opening, provenance: Provenance, clients: NDArray[Any]) -> tuple[bytes, int]:
    """A whole run file without rows, and the offset of its status.

    It is made in memory, because HDF5 crashes if the disk is full.
    """
    with h5py.File("content", "w", driver="core", backing_store=False, libver=VERSIONS) as file:
        _create(file, opening)
        write_attributes(file.create_group("provenance").attrs, asdict(provenance))
        log = ChecksumLog(file[CHECKSUMS])
        log.note(file.create_dataset("clients", data=clients), 0, clients)
        log.flush()
        status_at = create_status(file)
        file.flush()
        return file.id.get_file_image(), status_at


def _create(file: h5py.File, opening: Opening) -> None:
    """All objects that rows go to."""
    about: dict[str, str | int] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "experiment": opening.experiment,
        "folder": opening.folder,
        "folder_from_here": os.path.relpath(opening.folder, opening.run_folder) if opening.folder else "",
    }
    write_attributes(file.attrs, about)
    growing = {name: (dataset.row, dataset.chunk) for name, dataset in DATASETS.items() if dataset.chunk}
    for name, (row, chunk) in {**growing, CHECKSUMS: (CHECKSUM, 64)}.items():
        file.create_dataset(name, (0,), row, maxshape=(None,), chunks=(chunk,))
    last_only = opening.record.models == "last"
    create_models(file, "snapshots/model", opening.size, last_only=last_only)
    if opening.record.average:
        create_models(file, AVERAGES, opening.size, last_only=last_only)


def open_to_append(path: Path) -> h5py.File:
    """The file, open in such a way that others can read it at any moment; the lock is that of lock.py."""
    file = h5py.File(path, "r+", libver=VERSIONS, locking=False, rdcc_nbytes=_CACHE_BYTES)
    file.swmr_mode = True
    return file


def layout_of(file: h5py.File, record: Record) -> Layout:
    """The parts of a file that is open to append."""
    last_only, log = record.models == "last", ChecksumLog(file[CHECKSUMS])
    return Layout(
        events=file["events"],
        index=file["snapshots/index"],
        models=ModelRows(file["snapshots/model"], log, last_only=last_only),
        averages=ModelRows(file["snapshots/average"], log, last_only=last_only) if record.average else None,
        log=log,
    )


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
