"""Run files that a test changes: with the right checksums afterwards, as a hostile file has, or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from areabench.arrays import crc32
from areabench.engine.events import State
from areabench.results.diagnosis import diagnosis_of
from areabench.runfile.checksums import CHECKSUMS, checksum_row
from areabench.runfile.layout import diagnosis_row
from areabench.runfile.open import stored_in_file
from areabench.runfile.read import open_run
from areabench.runfile.schema import DATASETS, STATUS


@contextmanager
def edited(path: Path | str) -> Iterator[h5py.File]:
    """The file, open for any change."""
    with h5py.File(path, "r+", locking=False) as file:
        yield file
        with suppress(KeyError, OSError, TypeError, ValueError):
            _sign(file)


def _sign(file: h5py.File) -> None:
    """Write the checksums of what the file holds now."""
    rows = []
    for part in DATASETS:
        with suppress(KeyError, OSError, TypeError, ValueError, AttributeError):
            dataset = stored_in_file(file, part)  # a link may lead to a pipe
            if len(dataset) and dataset.id.get_storage_size():
                rows.append(checksum_row(part, 0, dataset[()]))
    checksums = stored_in_file(file, CHECKSUMS)
    checksums.resize(len(rows), axis=0)
    checksums[:] = np.concatenate(rows)
    status = file["status"][()]
    status["checksum"] = crc32(status.tobytes()[: STATUS.itemsize - 4])
    file["status"][...] = status


def set_state(path: Path | str, state: State, reason: str = "so it was") -> None:
    """Give a run file another state."""
    with edited(path) as file:
        status = file["status"][()]
        status["state"] = state.text.encode()
        status["reason"] = reason.encode()
        file["status"][...] = status


def add_diagnosis(path: Path) -> None:
    """Write the diagnosis of a simulated run into its file, where a run on MPI has its own."""
    with open_run(path) as run:
        found = diagnosis_of(run)
    parts = {"clients": found.clients, "quantiles": found.quantiles, "summary": diagnosis_row(found)}
    with edited(path) as file:
        for name, rows in parts.items():
            file[f"diagnosis/{name}"].resize(len(rows), axis=0)
            file[f"diagnosis/{name}"][:] = rows


def flip(path: Path, name: str, row: int = 0, *, byte: int = 3, bit: int = 0) -> None:
    """Change one bit of a row, behind HDF5's back: the checksums stay as they were."""
    with h5py.File(path, "r") as file:
        dataset = file[name]
        size = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:]))
        if dataset.chunks is None:
            place = dataset.id.get_offset() + row * size
        else:
            chunk = dataset.id.get_chunk_info(row // dataset.chunks[0])
            place = chunk.byte_offset + row % dataset.chunks[0] * size
    content = bytearray(path.read_bytes())
    content[place + byte] ^= 1 << bit
    path.write_bytes(content)
