"""Run files whose content is changed by a test and has the right checksums again, as a hostile file would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from areabench.arrays import crc32
from areabench.runfile.checksums import CHECKSUMS, PARTS, checksum_row
from areabench.runfile.open import own_part
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
            dataset = own_part(file, part)  # a link may lead to a pipe
            if len(dataset) and dataset.id.get_storage_size():
                rows.append(checksum_row(part, 0, dataset[()]))
    checksums = own_part(file, CHECKSUMS)
    checksums.resize(len(rows), axis=0)
    checksums[:] = np.concatenate(rows)
    status = file["status"][()]
    status["checksum"] = crc32(status.tobytes()[: STATUS.itemsize - 4])
    file["status"][...] = status
