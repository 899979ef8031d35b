"""Run files whose content is changed by a test and has the right checksums again, as a hostile file would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from areabench.arrays import crc32
from areabench.runfile.checksums import CHECKSUMS, PARTS, checksum_row
from areabench.runfile.schema import STATUS


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
    for part in PARTS:
        with suppress(KeyError, OSError, TypeError, ValueError, AttributeError):
            if file.get(part, getlink=True) is not None and len(file[part]) and file[part].id.get_storage_size():
                rows.append(checksum_row(part, 0, file[part][()]))
    file[CHECKSUMS].resize(len(rows), axis=0)
    file[CHECKSUMS][:] = np.concatenate(rows)
    status = file["status"][()]
    status["checksum"] = crc32(status.tobytes()[: STATUS.itemsize - 4])
    file["status"][...] = status
