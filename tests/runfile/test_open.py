"""Opening run files that were closed, that a killed run has left, and that hold what nobody should read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from areabench.errors import RunFileError
from areabench.runfile.open import (
    _MOST_UNFILLED,
    VERSIONS,
    ClosedFile,
    closed_head,
    is_marked,
    open_closed,
    open_file,
    read_rows,
    stored_in_file,
    was_left_open,
)

MOST = _MOST_UNFILLED


def left_open(path: Path) -> bytes:
    """A file of a thousand numbers as it is while it is written, which is what a killed run leaves."""
    with h5py.File(path, "w", libver=VERSIONS) as file:
        file["rows"] = np.arange(1, 1001)
    with h5py.File(path, "r+", libver=VERSIONS, locking=False) as file:
        file.swmr_mode = True
        return path.read_bytes()


# ------------------------------------------------------------------------------------------------ first bytes


def test_the_first_bytes_of_a_closed_file_are_those_that_hdf5_writes(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    marked = left_open(path)
    whole = path.read_bytes()  # closed by now
    assert not is_marked(path)
    head = closed_head(len(whole))
    assert (len(head), head[:28], head[36:44]) == (48, whole[:28], whole[36:44])  # all but the end and the checksum
    assert len(whole) <= int.from_bytes(head[28:36], "little") < len(whole) + 2000
    path.write_bytes(marked)
    assert is_marked(path)
    path.write_bytes(marked[:47])
    assert not is_marked(path)


@pytest.mark.parametrize("damage", [0, 8, 20, 30, 47])
def test_first_bytes_that_are_damaged_are_no_obstacle(damage: int, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    content = bytearray(left_open(path))
    content[damage] ^= 1
    path.write_bytes(content)
    with open_closed(path) as file:
        assert file["rows"][:].tolist() == list(range(1, 1001))


def test_a_marked_file_that_nobody_writes_is_read_as_if_closed(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    marked = left_open(path)
    with open_file(path) as file:
        assert not was_left_open(file)
    path.write_bytes(marked)
    with open_file(path) as file:
        assert was_left_open(file)
        assert file["rows"][:].tolist() == list(range(1, 1001))
    assert path.read_bytes() == marked


def test_a_file_that_was_cut_off_has_zeros_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.write_bytes(left_open(path)[:-800])
    with open_closed(path) as file:
        rows = file["rows"][:]
    assert rows[:900].tolist() == list(range(1, 901))
    assert not rows[900:].any()
    with ClosedFile(path) as raw:  # all ways to read it that there are
        end = raw.seek(0, 2)
        assert end > path.stat().st_size + MOST
        assert (raw.seek(end - 1), raw.read(5), raw.tell(), raw.read(1)) == (end - 1, b"\0", end, b"")
        assert (raw.seek(46), raw.read(4)) == (46, closed_head(path.stat().st_size + MOST)[46:] + b"OH")
        assert raw.seek(-40, 1) == 10


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file; give the path of a run file"),
        (b"no HDF5", r"is not a readable HDF5 file .*try `areabench recover`"),
    ],
)
def test_what_cannot_be_opened_is_reported(content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.h5").write_bytes(content)
    with pytest.raises(RunFileError, match=f"run.h5: {words}"):
        open_file(tmp_path / "run.h5")


# ------------------------------------------------------------------------------------------------------- rows


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """An HDF5 file to be filled."""
    with h5py.File(tmp_path / "rows.h5", "w") as opened:
        yield opened


@pytest.mark.parametrize(("dtype", "width"), [(np.uint8, 1), (np.float64, 1), (np.float32, 2**10)])
def test_a_dataset_may_lack_64_mib_of_what_it_declares(dtype: Any, width: int, file: h5py.File) -> None:
    rows = MOST // (np.dtype(dtype).itemsize * width)
    file.create_dataset("rows", (rows + 1, width), dtype, chunks=(1024, width))
    assert len(read_rows(file["rows"], slice(rows))) == rows
    assert len(read_rows(file["rows"], slice(1, None))) == rows
    with pytest.raises(ValueError, match=r"/rows declares [\d,]+ bytes and stores 0"):
        read_rows(file["rows"], slice(None))


def test_what_a_dataset_stores_counts(file: h5py.File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.open._MOST_UNFILLED", 7)
    file.create_dataset("rows", (2,), np.float64, chunks=(1,))[0] = 5.0
    assert read_rows(file["rows"], slice(1)).tolist() == [5.0]
    with pytest.raises(ValueError, match="/rows declares 16 bytes and stores 8"):
        read_rows(file["rows"], slice(None))


def test_only_what_lies_in_the_file_is_read(file: h5py.File, tmp_path: Path) -> None:
    """A link or a virtual dataset may lead to any other file, also to one that never answers."""
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["group/rows"] = np.zeros(2)
    file["group/rows"] = [2]
    file["soft"] = h5py.SoftLink("/group")
    file["outer"] = h5py.ExternalLink("other.h5", "/group")
    layout = h5py.VirtualLayout((2,), np.float64)
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "group/rows", (2,))
    file.create_virtual_dataset("virtual", layout)
    file.create_dataset("external", (2,), np.float64, external=[(str(tmp_path / "raw"), 0, 16)])
    assert stored_in_file(file, "group/rows")[:].tolist() == [2]
    for name in ("soft", "soft/rows", "outer/rows", "none", "group/none", "virtual", "external"):
        with pytest.raises(KeyError, match=f"/{name} is not in this file"):
            stored_in_file(file, name)
