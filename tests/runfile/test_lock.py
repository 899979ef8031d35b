"""The lock on a run file and the claim that holds it: who gets in, what is left behind, and what is told."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from areabench.errors import RunFileError
from areabench.runfile import lock as module
from areabench.runfile.lock import Claim, is_locked, lock, lock_seen, refuse_busy


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def refused(number: int | None) -> Callable[[int, int], None]:
    """A file system whose locks fail."""

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError("no number") if number is None else OSError(number, os.strerror(number))

    return flock


# ------------------------------------------------------------------------------------------------------- locks


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.touch()
    assert (lock_seen(path), is_locked(path)) == (False, False)
    descriptor = lock(path)
    assert (lock_seen(path), is_locked(path)) == (True, True)
    with pytest.raises(BlockingIOError, match=rf"is being written by another run \(PID {os.getpid()}\)"):
        lock(path)
    os.close(descriptor)
    before = open_files()
    assert (lock_seen(path), is_locked(path)) == (False, False)
    assert open_files() == before


@pytest.mark.parametrize(
    ("number", "locked"),
    [
        (errno.ENOLCK, False), (errno.EOPNOTSUPP, False), (errno.ENOSYS, False), (errno.EBADF, True), (errno.EIO, True),
        (None, True),
    ],
)  # fmt: skip
def test_where_locks_fail_nothing_is_seen(
    number: int | None, locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems report a lock only to those who may write: then the file may be locked."""
    (tmp_path / "run.h5").touch()
    monkeypatch.setattr(fcntl, "flock", refused(number))
    assert lock_seen(tmp_path / "run.h5") is None
    assert is_locked(tmp_path / "run.h5") is locked


def test_a_lock_that_is_held_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.touch()
    held = lock(path)
    threading.Timer(0.05, os.close, [held]).start()
    begun_s = time.monotonic()
    os.close(lock(path))
    assert 0.04 < time.monotonic() - begun_s < 5


def test_a_lock_is_waited_for_a_fifth_of_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, now_s = list[float](), [100.0]

    def sleep(time_s: float) -> None:
        slept.append(time_s)
        now_s[0] += time_s

    path = tmp_path / "run.h5"
    path.touch()
    held, before = lock(path), open_files()
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with pytest.raises(BlockingIOError):
        lock(path)
    assert set(slept) == {0.02}
    assert sum(slept) == pytest.approx(0.2, abs=0.021)
    assert open_files() == before
    os.close(held)


def test_a_file_that_was_replaced_before_it_was_locked_is_locked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, calls = tmp_path / "run.h5", module._flock, [0]
    path.write_text("first")

    def replaced(descriptor: int, name: Path) -> None:
        calls[0] += 1
        if calls[0] == 1:
            name.unlink()
        if calls[0] <= 2:
            (tmp_path / "new").write_text(f"another {calls[0]}")
            (tmp_path / "new").replace(name)
        real(descriptor, name)

    monkeypatch.setattr(module, "_flock", replaced)
    before = open_files()
    descriptor = lock(path)
    assert (os.pread(descriptor, 20, 0), calls[0]) == (b"another 2", 3)
    assert open_files() == before + 1
    os.close(descriptor)


def test_a_file_that_is_gone_when_it_is_locked_does_not_have_its_name(tmp_path: Path) -> None:
    with (tmp_path / "run.h5").open("w") as file:
        assert module._has_name(file.fileno(), tmp_path / "run.h5") is True
        (tmp_path / "run.h5").unlink()
        assert module._has_name(file.fileno(), tmp_path / "run.h5") is False


def test_a_holder_on_another_machine_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of locks has its words at fixed places; other kinds of locks and other files do not count."""
    path = tmp_path / "run.h5"
    path.touch()
    about = path.stat()
    where = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    lines = {
        "1: FLOCK  ADVISORY  WRITE 77 {} 0 EOF": " (PID 77)",
        "1: FLOCK  ADVISORY  WRITE 1 {} 0 EOF": " (PID 1)",
        "1: FLOCK  ADVISORY  WRITE 0 {} 0 EOF": "",
        "1: FLOCK  ADVISORY  WRITE -1 {} 0 EOF": "",
        "1: POSIX  ADVISORY  WRITE 77 {} 0 EOF": "",
        "1: FLOCK  ADVISORY  WRITE 77 ff:ff:1 0 EOF": "",
        "1: FLOCK": "",
        "": "",
    }
    listed = [""]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: listed[0])
    for line, holder in lines.items():
        listed[0] = line.format(where)
        assert module._holder(path) == holder


# ------------------------------------------------------------------------------------------------------ claims


def test_a_claim_leaves_nothing_behind(tmp_path: Path) -> None:
    path, before = tmp_path / "run.h5", open_files()
    path.write_text("old")
    claim = Claim(path, force=True)
    assert open_files() == before + 2
    assert lock_seen(path)
    claim.release()
    assert open_files() == before
    assert [each.name for each in tmp_path.iterdir()] == ["run.h5"]
    claim.release()
    assert path.read_text() == "old"


def test_a_claim_that_is_published_replaces_the_file_and_lets_readers_in(tmp_path: Path) -> None:
    path, before = tmp_path / "run.h5", open_files()
    path.write_text("old")
    claim = Claim(path, force=True)
    claim.write(0, b"new content")
    claim.write(4, b"C")
    claim.publish()
    assert path.read_bytes() == b"new Content"
    assert open_files() == before + 1  # the old file is free
    with path.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert lock_seen(path)  # but nobody may write
    claim.release()
    assert (open_files(), path.read_bytes()) == (before, b"new Content")
    assert [each.name for each in tmp_path.iterdir()] == ["run.h5"]


def test_a_claim_is_published_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refused(errno.ENOLCK))
    claim = Claim(tmp_path / "run.h5", force=False)
    claim.publish()
    claim.release()
    assert (tmp_path / "run.h5").exists()


def test_a_claim_empties_what_a_killed_run_has_left(tmp_path: Path) -> None:
    (tmp_path / ".run.h5.new").write_text("left")
    claim = Claim(tmp_path / "run.h5", force=False)
    assert claim.making.read_bytes() == b""
    claim.release()


def test_bytes_are_written_in_as_many_pieces_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, real = Claim(tmp_path / "run.h5", force=False), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, offset: real(file, content[:3], offset))
    claim.write(2, b"eight by")
    assert claim.making.read_bytes() == b"\0\0eight by"
    claim.release()


def test_a_file_without_a_name_is_removed(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "run.h5", force=False)
    claim.publish()
    assert claim.removed is False
    (tmp_path / "run.h5").unlink()
    assert claim.removed is True
    claim.release()


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    Claim(tmp_path / "a" / "b" / "run.h5", force=False).release()
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == []


def no_folder(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "run.h5"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.h5")
    return folder / "pipe.h5"


def into_a_file(folder: Path) -> Path:
    (folder / "file").touch()
    (folder / "run.h5").symlink_to(folder / "file" / "real.h5")
    return folder / "run.h5"


def linked(folder: Path) -> Path:
    (folder / ".run.h5.new").symlink_to(folder / "elsewhere")
    return folder / "run.h5"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (no_folder, r"file/run.h5: .*file is not a folder; choose another --output"),
        (into_a_file, r"run.h5: .*/file is not a folder; choose another --output"),
        (pipe, r"pipe.h5: is neither a file nor free; choose another --output"),
        (linked, r"run.h5: cannot be written: Too many levels of symbolic links; choose another --output"),
    ],
)
def test_a_claim_that_is_refused_holds_nothing(make: Callable[[Path], Path], words: str, tmp_path: Path) -> None:
    path, before = make(tmp_path), open_files()
    there = sorted(tmp_path.iterdir())
    with pytest.raises(RunFileError, match=words):
        Claim(path, force=True)
    assert (open_files(), sorted(tmp_path.iterdir())) == (before, there)


def test_a_claim_on_a_file_that_another_writes_leaves_that_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    first = Claim(path, force=False)
    before = open_files()
    with pytest.raises(RunFileError, match="is being written by another run .*; choose another --output or wait"):
        Claim(path, force=True)
    assert open_files() == before
    with pytest.raises(RunFileError, match="is being written by another run .*; choose another --output or wait"):
        refuse_busy(path)  # it has no name yet
    first.publish()
    with pytest.raises(RunFileError, match="is being written by another run .*; choose another --output or wait"):
        Claim(path, force=True)
    assert (open_files(), path.exists(), first.making.exists()) == (before, True, False)
    first.release()
    refuse_busy(path)


def test_a_file_that_appears_while_it_is_claimed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = tmp_path / "run.h5", open_files()

    def appear(name: Path, flags: int = 0) -> int:
        path.write_text("of another run")
        return lock(name, flags)

    monkeypatch.setattr(module, "lock", appear)
    with pytest.raises(RunFileError, match="exists already"):
        Claim(path, force=False)
    assert (open_files(), path.read_text()) == (before, "of another run")
    assert [each.name for each in tmp_path.iterdir()] == ["run.h5"]
