"""The one reader of run files: which blocks of rows count, and what is told of the others."""

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
from areabench.engine.events import EVENT
from areabench.errors import RunFileError
from areabench.runfile.checksums import ChecksumLog, checksum_row, read_blocks
from areabench.runfile.open import VERSIONS, DamagedFileError, read_rows
from areabench.runfile.reader import RunReader
from areabench.runfile.schema import CHECKSUM, FORMAT, SCHEMA_VERSION

EXPERIMENT = quadratic("iterations = 60")
ROWS = "tally/served"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file to be written."""
    return tmp_path / "run.h5"


def written(path: Path, blocks: Sequence[int]) -> Path:
    """A file whose only dataset was written in blocks of so many rows, 0, 1, 2, ... each."""
    with h5py.File(path, "w", libver=VERSIONS) as file:
        rows = file.create_dataset(ROWS, (0,), "<i8", maxshape=(None,))
        log = ChecksumLog(file.create_dataset("checksums", (0,), CHECKSUM, maxshape=(None,)))
        for count in blocks:
            log.append(rows, np.arange(count))
        log.flush()
        log.flush()  # what is written does not wait any more
    return path


def counted(path: Path, first: int = 0, *, salvage: bool = False) -> int | str:
    """How many rows count, or what is wrong."""
    with RunReader(path, salvage=salvage) as reader:
        try:
            return reader.count(ROWS, first)
        except DamagedFileError as error:
            return error.what


def test_blocks_have_checksums_of_their_own(path: Path) -> None:
    written(path, [3, 4, 4096, 4097])
    with h5py.File(path, "r+") as file:
        assert file["checksums"]["first"].tolist() == [0, 3, 7, 4103, 8199]
        assert file["checksums"]["count"].tolist() == [3, 4, 4096, 4096, 1]  # 32 KiB at most
    assert [counted(path, first) for first in (0, 3, 5, 8200, 9000)] == [8200] * 5
    with h5py.File(path, "r+") as file:
        file[ROWS][5] = 77
    wrong = f"rows 3 to 6 of /{ROWS} do not have their checksum"
    assert [counted(path, first) for first in (0, 3, 6, 7)] == [wrong, wrong, wrong, 8200]
    assert counted(path, salvage=True) == 3


def test_rows_are_given_from_any_row_to_any_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.reader._BLOCKS_AT_ONCE", 2)
    with RunReader(written(path, [2] * 5)) as reader:
        assert [rows.tolist() for rows in reader.blocks(ROWS)] == [[0, 1, 0, 1], [0, 1, 0, 1], [0, 1]]
        assert [rows.tolist() for rows in reader.blocks(ROWS, 5)] == [[1, 0, 1], [0, 1]]
        assert reader.rows(ROWS).tolist() == [0, 1] * 5
        assert (reader.rows(ROWS, 7).tolist(), reader.rows(ROWS, 1, 3).tolist()) == ([1, 0, 1], [1, 0])
        assert reader.rows(ROWS, 9, 99).tolist() == [1]
        assert (len(reader.rows("events")), reader.rows("events").dtype) == (0, EVENT)


def test_rows_that_cannot_be_read_are_reported_block_by_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path, [2] * 5)

    def broken(dataset: h5py.Dataset, chosen: slice) -> Any:
        if chosen.stop > 6:
            raise OSError("no sector")
        return read_rows(dataset, chosen)

    monkeypatch.setattr("areabench.runfile.reader.read_rows", broken)
    assert counted(path) == f"rows 6 to 7 of /{ROWS} cannot be read: no sector"
    assert counted(path, salvage=True) == 6


@pytest.mark.parametrize(("column", "value"), [("first", 3), ("first", 1), ("count", 0), ("count", -1)])
def test_blocks_count_as_far_as_one_follows_the_other(column: str, value: int, path: Path) -> None:
    with h5py.File(written(path, [2, 2, 2]), "r+") as file:
        rows = file["checksums"][()]
        rows[column][1] = value
        rows["own"][1] = crc32(rows[1:2].tobytes()[: CHECKSUM.itemsize - 4])
        file["checksums"][...] = rows
    assert counted(path) == f"block 1 of /{ROWS} is not where /checksums has it"
    assert counted(path, salvage=True) == 2


def test_blocks_of_several_datasets_may_alternate(path: Path) -> None:
    rows = [checksum_row(part, first, np.arange(2)) for first in (0, 2, 4) for part in ("events", "metrics")]
    with h5py.File(path, "w") as file:
        file["checksums"] = np.concatenate(rows)
        found = read_blocks(file, strict=True)
    assert {name: blocks[-1].last for name, blocks in found.items()} == {"events": 6, "metrics": 6}


@pytest.mark.parametrize("what", ["columns", "row"])
def test_checksums_that_are_damaged_are_damage(what: str, path: Path) -> None:
    with h5py.File(written(path, [2, 2]), "r+") as file:
        if what == "columns":
            del file["checksums"]
            file["checksums"] = np.zeros(2, [("other", "f8")])
        else:
            rows = file["checksums"][()]
            rows["content"][1] += 1
            file["checksums"][...] = rows
    words = {"columns": "/checksums has columns ('other',), expected", "row": "row 1 of /checksums does not have its"}
    assert str(counted(path)).startswith(words[what])


# ------------------------------------------------------------------------------------------------ whole files


@pytest.fixture
def run(path: Path) -> Path:
    """A run of 60 events."""
    return simulated(path, EXPERIMENT)


def test_a_file_that_was_closed_has_a_checksum_of_every_row(run: Path) -> None:
    with RunReader(run) as reader:
        assert reader.find_damage() == {}
        count = reader.count("metrics")
    with h5py.File(run, "r+") as file:
        file["metrics"].resize(count + 1, axis=0)
    with RunReader(run) as reader:
        assert reader.find_damage() == {"metrics": f"rows from {count} on of /metrics have no checksum"}
    with RunReader(run, as_closed=True) as reader:  # a killed run may have left such rows, which do not count
        assert (reader.find_damage(), reader.count("metrics"), reader.length("metrics")) == ({}, count, count + 1)
        assert len(reader.rows("metrics")) == count


def test_only_what_is_new_is_verified(run: Path) -> None:
    flip(run, "events", 3)
    with RunReader(run) as reader:
        assert reader.count("events", first=60) == 60
    with RunReader(run) as reader, pytest.raises(RunFileError, match="of /events do not have their checksum"):
        reader.rows("events")


def test_a_table_of_other_columns_is_damage(run: Path) -> None:
    with h5py.File(run, "r+") as file:
        del file["events"]
        file["events"] = np.zeros(60, [("other", "f8")])
    with RunReader(run) as reader, pytest.raises(RunFileError, match=r"/events .* has columns \('other',\), expected"):
        reader.rows("events")
    with RunReader(run, salvage=True) as reader:
        assert (reader.count("events"), reader.length("events")) == (0, 60)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "another"}, "is not a run file of areabench; give the path of one"),
        ({"format": None}, "is not a run file of areabench; give the path of one"),
        ({"schema_version": SCHEMA_VERSION + 1}, f"has schema version {SCHEMA_VERSION + 1}, this areabench reads"),
        ({"format": FORMAT, "schema_version": None}, "is damaged"),
    ],
)
def test_other_formats_are_refused(changes: dict[str, object], words: str, run: Path) -> None:
    with h5py.File(run, "r+") as file:
        for name, value in changes.items():
            if value is None:
                file.attrs.pop(name)
            else:
                file.attrs[name] = value
        file.attrs.pop("format_checksum", None)
    with RunReader(run) as reader, pytest.raises(RunFileError, match=f"run.h5: {words}"):
        reader.check_format()


def other_columns(file: h5py.File) -> None:
    del file["status"]
    file["status"] = np.zeros(1, [("other", "f8")])


def no_status(file: h5py.File) -> None:
    del file["status"]


def unknown_state(file: h5py.File) -> None:
    status = file["status"][()]
    status["state"] = b"asleep"
    status["checksum"] = crc32(status.tobytes()[:-4])
    file["status"][...] = status


def changed(file: h5py.File) -> None:
    status = file["status"][()]
    status["lost"] += 1
    file["status"][...] = status


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (other_columns, r"/status has columns \('other',\), expected \('state', "),
        (no_status, "/status is not in this file"),
        (unknown_state, "asleep"),
        (changed, "/status does not have its checksum"),
    ],
)
def test_a_damaged_status_is_not_read(damage: Any, words: str, run: Path) -> None:
    with h5py.File(run, "r+") as file:
        damage(file)
    with RunReader(run) as reader, pytest.raises(RunFileError, match=words):
        _ = reader.stored_status
