"""The first bytes of a run file, files as if they had been closed, and how many of their rows may be read."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from areabench.engine.events import CLIENT
from areabench.errors import RunFileError
from areabench.runfile.open import (
    SIZE,
    Closed,
    _checksum,
    closed,
    is_marked,
    is_sound,
    left_open,
    open_closed,
    open_file,
    open_for_reading,
    own_link,
    ranks_exist,
    read_rows,
    stored_in_file,
)

NOWHERE = 2**64 - 1
LOOKUP3 = {
    1: 0x04EC883B, 11: 0x1894F68C, 12: 0x2471B813, 13: 0xE7D7A0E5, 24: 0xA1188176, 25: 0x7D6FB9A4, 37: 0x353EC2E1,
}  # fmt: skip


def head(*, version: int = 3, flags: int = 0, base: int = 0, end: int = 500, root: int = 48) -> bytes:
    """The first bytes of an HDF5 file."""
    content = struct.pack("<8sBBBBQQQQ", b"\x89HDF\r\n\x1a\n", version, 8, 8, flags, base, NOWHERE, end, root)
    return content + struct.pack("<I", _checksum(content))


# ------------------------------------------------------------------------------------------------ first bytes


def test_the_checksum_is_lookup3() -> None:
    """The first is Bob Jenkins' own example; the others end within, at and behind a block of twelve bytes."""
    assert _checksum(b"Four score and seven years ago") == 0x17770551
    found = {count: _checksum(bytes(range(1, count + 1))) for count in (1, 11, 12, 13, 24, 25, 37)}
    assert found == LOOKUP3


@pytest.mark.parametrize(("flags", "marked"), [(0, False), (1, False), (4, True), (5, True)])
def test_a_file_that_was_not_closed_is_marked(flags: int, marked: bool, tmp_path: Path) -> None:
    (tmp_path / "run.h5").write_bytes(head(flags=flags) + bytes(100))
    assert is_marked(tmp_path / "run.h5") is marked


def test_only_our_format_is_sound() -> None:
    assert is_sound(head()) is True
    assert is_sound(head(version=2)) is False
    assert is_sound(head()[:-1]) is False
    assert is_sound(b"\x88" + head()[1:]) is False
    for byte in (9, 20, 30, 47):
        assert not is_sound(head()[:byte] + bytes([head()[byte] ^ 1]) + head()[byte + 1 :])


def test_an_unsound_file_is_not_marked(tmp_path: Path) -> None:
    (tmp_path / "run.h5").write_bytes(head(flags=4)[:-1] + b"?")
    assert not is_marked(tmp_path / "run.h5")


def test_a_closed_file_is_as_long_as_its_header_or_its_content() -> None:
    assert closed(head(flags=5, base=0, end=500, root=96), 400) == head(end=500, root=96)
    assert closed(head(flags=5, base=8, end=500, root=96), 600) == head(base=8, end=600, root=96)
    assert closed(b"", 700) == head(end=700)


def test_a_closed_file_reads_like_a_file_of_that_length(tmp_path: Path) -> None:
    """Its own bytes behind the first ones, and zeros for what was cut off."""
    path, content = tmp_path / "run.h5", bytes(range(1, 201))
    path.write_bytes(head(flags=4, end=300) + content)
    whole = head(end=300) + content + bytes(52)
    with Closed(path) as file:
        assert (file.readable(), file.seekable(), file.tell()) == (True, True, 0)
        assert file.read() == whole
        assert file.tell() == 300
        assert file.read(1) == b""
        assert (file.seek(40), file.read(20), file.tell()) == (40, whole[40:60], 60)
        assert (file.seek(-10, os.SEEK_CUR), file.read(7)) == (50, whole[50:57])
        assert (file.seek(-60, os.SEEK_END), file.read(100)) == (240, whole[240:])
        assert (file.seek(47), file.read(2)) == (47, whole[47:49])
        assert (file.seek(SIZE), file.read(2)) == (48, whole[48:50])
        assert (file.seek(310), file.read(2)) == (310, b"")
    assert file.closed
    assert file._file.closed


def test_a_marked_file_that_nobody_writes_is_read_as_if_closed(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file["rows"] = [1, 2, 3]
    with open_file(path) as file:
        assert not left_open(file)
    content = path.read_bytes()
    end = int.from_bytes(content[28:36], "little")
    path.write_bytes(head(flags=5, end=end) + content[SIZE:])
    assert is_marked(path)
    with open_file(path) as file:
        assert left_open(file)
        assert file["rows"][:].tolist() == [1, 2, 3]


def test_what_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"none.h5: no such file; give the path of a run file"):
        open_for_reading(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(RunFileError, match=r"text.h5: is not a readable HDF5 file .*try `areabench recover`"):
        open_for_reading(tmp_path / "text.h5")


# ------------------------------------------------------------------------------------------------------- rows


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """An HDF5 file to be filled."""
    with h5py.File(tmp_path / "rows.h5", "w") as opened:
        yield opened


MOST = 2**26  # bytes that may be missing


@pytest.mark.parametrize(("dtype", "width"), [(np.uint8, 1), (np.float64, 1), (np.float32, 2**10)])
def test_a_dataset_may_lack_64_mib_of_what_it_declares(dtype: Any, width: int, file: h5py.File) -> None:
    rows = MOST // (np.dtype(dtype).itemsize * width)
    file.create_dataset("rows", (rows + 1, width), dtype, chunks=(1024, width))
    assert len(read_rows(file, "rows", slice(rows))) == rows
    assert len(read_rows(file, "rows", slice(1, None))) == rows
    with pytest.raises(ValueError, match=r"/rows declares [\d,]+ bytes and stores 0"):
        read_rows(file, "rows", slice(None))
    assert len(read_rows(file, "rows", -1)) == width


def test_a_single_row_may_declare_too_much(file: h5py.File) -> None:
    file.create_dataset("rows", (1, MOST + 1), np.uint8, chunks=(1, 1024))
    with pytest.raises(ValueError, match=r"/rows declares 67,108,865 bytes and stores 0"):
        read_rows(file, "rows", 0)


def test_what_a_dataset_stores_counts(file: h5py.File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.open._MOST_UNFILLED", 7)
    file.create_dataset("rows", (2,), np.float64, chunks=(1,))[0] = 5.0
    assert read_rows(file, "rows", slice(1)).tolist() == [5.0]
    with pytest.raises(ValueError, match="/rows declares 16 bytes and stores 8"):
        read_rows(file, "rows", slice(None))


def test_a_link_is_no_part_of_the_file(file: h5py.File, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["group/rows"] = [1]
    file["group/rows"] = [2]
    file["soft"], file["outer"] = h5py.SoftLink("/group"), h5py.ExternalLink("other.h5", "/group")
    assert stored_in_file(file, "group/rows")[:].tolist() == [2]
    assert [own_link(file, name) for name in ("group", "soft", "outer", "none")] == [True, False, False, False]
    for name in ("soft/rows", "outer/rows", "soft", "none", "group/none"):
        with pytest.raises(KeyError, match=f"/{name} is not in this file"):
            stored_in_file(file, name)


@pytest.mark.parametrize(
    ("ranks", "exist"), [([-1, -1], True), ([0, 2], True), ([1, -1], True), ([0, 3], False), ([-2, 1], False)]
)
def test_a_rank_is_none_or_at_most_the_number_of_clients(ranks: list[int], exist: bool) -> None:
    clients = np.zeros(2, CLIENT)
    clients["rank"] = ranks
    assert ranks_exist(clients) is exist


def test_a_file_that_was_cut_off_has_zeros_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.create_dataset("rows", data=np.arange(1, 1001))
    path.write_bytes(path.read_bytes()[:-800])
    with open_closed(path) as file:
        rows = file["rows"][:]
    assert rows[:900].tolist() == list(range(1, 901))
    assert not rows[900:].any()
