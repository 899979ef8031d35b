"""Checksums of blocks of rows: which blocks there are, which count, and what is told of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.support.edited import flip
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.arrays import crc32
from areabench.runfile.checksums import CHECKSUM, ChecksumLog, Checksums, VerifiedRows, check_rows, checksum_row
from areabench.runfile.open import open_file, read_rows

EXPERIMENT = quadratic("iterations = 60")


def logged(file: h5py.File, blocks: Sequence[int]) -> Checksums:
    """A file whose dataset /events was written in blocks of so many rows."""
    rows = file.create_dataset("events", (0,), "<i8", maxshape=(None,))
    log = ChecksumLog(file.create_dataset("checksums", (0,), CHECKSUM, maxshape=(None,)))
    for count in blocks:
        log.append(rows, np.arange(count))
    log.flush()
    log.flush()  # what is written does not wait any more
    return Checksums(file)


def test_blocks_have_checksums_of_their_own(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        found = logged(file, [3, 4, 4096, 4097])
        assert file["checksums"]["first"].tolist() == [0, 3, 7, 4103, 8199]
        assert file["checksums"]["count"].tolist() == [3, 4, 4096, 4096, 1]  # 32 KiB at most
        assert (found.covered("events"), found.covered("none")) == (8200, 0)
        assert [found.verified("events", after) for after in (0, 3, 5, 8200, 9000)] == [(8200, "")] * 5
        file["events"][5] = 77
        wrong = "rows 3 to 6 of /events do not have their checksum"
        assert [found.verified("events", after) for after in (0, 3, 6)] == [(3, wrong), (3, wrong), (6, wrong)]
        assert found.verified("events", 7) == (8200, "")


def test_many_blocks_are_verified_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.checksums._BLOCKS_AT_ONCE", 2)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        found = logged(file, [2] * 5)
        assert found.verified("events") == (10, "")
        file["events"].resize(7, axis=0)
        assert found.verified("events")[0] == 6


def test_rows_that_cannot_be_read_are_reported_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        found = logged(file, [2] * 5)

        def broken(file: h5py.File, name: str, chosen: slice) -> Any:
            if chosen.stop > 6:
                raise OSError("no sector")
            return read_rows(file, name, chosen)

        monkeypatch.setattr("areabench.runfile.checksums.read_rows", broken)
        assert found.verified("events") == (6, "rows 6 to 7 of /events cannot be read: no sector")


@pytest.mark.parametrize(("column", "value"), [("first", 3), ("first", 1), ("count", 0), ("count", -1)])
def test_blocks_count_as_far_as_one_follows_the_other(column: str, value: int, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        logged(file, [2, 2, 2])
        rows = file["checksums"][()]
        rows[column][1] = value
        rows["own"][1] = crc32(rows[1:2].tobytes()[: CHECKSUM.itemsize - 4])
        file["checksums"][...] = rows
        with pytest.raises(ValueError, match="block 1 of /events is not where /checksums has it"):
            Checksums(file)
        assert Checksums(file, strict=False).covered("events") == 2


def test_blocks_of_several_datasets_may_alternate(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        logged(file, [2])
        rows = [checksum_row(part, first, np.arange(2)) for first in (0, 2, 4) for part in ("events", "metrics")]
        file["checksums"].resize(len(rows), axis=0)
        file["checksums"][:] = np.concatenate(rows)
        found = Checksums(file)
        assert (found.covered("events"), found.covered("metrics")) == (6, 6)


def test_checksums_of_other_columns_are_not_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["checksums"] = np.zeros(2, [("other", "f8")])
        with pytest.raises(ValueError, match=r"/checksums has columns \('other',\), expected \('part', 'first', "):
            Checksums(file)


def test_a_complete_file_has_a_checksum_of_every_row(tmp_path: Path) -> None:
    path = simulated(tmp_path / "run.h5", EXPERIMENT)
    with h5py.File(path, "r+") as file:
        count = len(file["metrics"])
        file["metrics"].resize(count + 1, axis=0)
        words = f"rows from {count} on of /metrics have no checksum"
        assert check_rows(file, complete=True)[1] == {"metrics": words}
        assert check_rows(file, complete=False)[1] == {}
        assert check_rows(file, complete=False)[0]["metrics"] == count


def test_rows_that_count_are_those_with_a_checksum(tmp_path: Path) -> None:
    path = simulated(tmp_path / "run.h5", EXPERIMENT)
    with h5py.File(path, "r+") as file:
        file["events"].resize(70, axis=0)
        rows = VerifiedRows(file)
        assert (rows.count("events"), len(rows.rows("events"))) == (60, 60)
    flip(path, "events", 3)
    with open_file(path) as file, pytest.raises(ValueError, match="of /events do not have their checksum"):
        VerifiedRows(file).rows("events")
    with open_file(path) as file:
        assert VerifiedRows(file).count("events", after=60) == 60
