"""The claim on a run file: one run writes it at a time, and the file gets its name once it can be read.

A run locks `.NAME.new` beside the file, and the file itself where there is one, writes the beginning there, and renames
it over the file. A run that is killed until then leaves the old file as it was. The lock ends with the process, however
that ends; a file system without locks has none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from areabench.errors import RunFileError
from areabench.files import refuse_existing

_PATIENCE_S = 0.2  # a process that only tests the lock holds it shorter than this
_ANOTHER = "choose another --output"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Claim:
    """Holds a run file for one run, with a descriptor of its own that stays valid when HDF5 has closed the file."""

    def __init__(self, path: Path, *, force: bool) -> None:
        refuse_existing(path, force=force)
        self.path = path
        self._target = Path(os.path.realpath(path))  # a link stays a link
        self.making = _making(self._target)
        held = _Descriptors(self.making)
        self._held, self._finalize = held, weakref.finalize(self, held.release)
        try:
            self._take(force=force)
        except BlockingIOError as error:
            self.release()
            raise RunFileError(f"{path}: {error}; {_ANOTHER} or wait") from error
        except RunFileError:
            self.release()
            raise
        except OSError as error:
            self.release()
            reason = error.strerror or str(error)
            raise RunFileError(f"{path}: cannot be written: {reason}; {_ANOTHER}") from error

    def _take(self, *, force: bool) -> None:
        try:
            self.making.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise RunFileError(f"{self.path}: {self.making.parent} is not a folder; {_ANOTHER}") from error
        self._held.new = lock(self.making, os.O_CREAT | os.O_NOFOLLOW)
        os.ftruncate(self._held.new, 0)  # what a run that was killed has left
        refuse_existing(self.path, force=force)  # a run may have begun since
        if self._target.exists() and not self._target.is_dir() and not self._target.is_file():
            raise RunFileError(f"{self.path}: is neither a file nor free; {_ANOTHER}")
        if self._target.exists():
            self._held.old = lock(self._target)

    def publish(self) -> None:
        """Give the file its name; from now on readers that lock what they read get in."""
        self.making.replace(self._target)
        self._held.making = None
        with suppress(OSError):  # no locks here
            fcntl.flock(self._held.new, fcntl.LOCK_SH)
        self._held.drop_old()

    @property
    def removed(self) -> bool:
        """Whether the file has no name any more: somebody has removed it, or put another in its place."""
        return os.fstat(self._held.new).st_nlink == 0

    def write(self, offset: int, content: bytes) -> None:
        """Put bytes into the file; where it has the room already that needs neither HDF5 nor space on the disc."""
        while content:
            written = os.pwrite(self._held.new, content, offset)
            content, offset = content[written:], offset + written

    def release(self) -> None:
        """Release the file; one that has not been given its name is removed."""
        self._finalize()


def _making(target: Path) -> Path:
    """The name of a run file until it can be read."""
    return target.with_name(f".{target.name}.new")


class _Descriptors:
    """The descriptors of a claim, in an object of their own so that they are closed when the claim is collected."""

    def __init__(self, making: Path) -> None:
        self.making: Path | None = making
        self.new = self.old = -1

    def release(self) -> None:
        if self.new >= 0:
            if self.making is not None:
                self.making.unlink(missing_ok=True)
            os.close(self.new)
        self.drop_old()

    def drop_old(self) -> None:
        if self.old >= 0:
            os.close(self.old)
            self.old = -1


def lock(path: Path, flags: int = 0) -> int:
    """A descriptor of the file that has this name, under our lock; a BlockingIOError where another has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | flags, 0o644)
        try:
            _flock(descriptor, path)
            if _has_name(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was renamed or removed before we had the lock


def refuse_busy(path: Path) -> None:
    """Refuse a run file that another run is writing, or about to write."""
    target = Path(os.path.realpath(path))
    for each in (target, _making(target)):
        if each.is_file() and lock_seen(each):
            raise RunFileError(f"{path}: is being written by another run{_holder(each)}; {_ANOTHER} or wait")


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock, or may hold it: some file systems report it only to those who may write."""
    return _lock_errno(path) not in (0, *_NO_LOCKS)


def lock_seen(path: Path) -> bool | None:
    """Whether somebody holds the lock; None where the file system does not report it."""
    return {0: False, errno.EWOULDBLOCK: True}.get(_lock_errno(path))


def _lock_errno(path: Path) -> int:
    """Try to lock and unlock the file: 0 on success, else an errno."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.close(descriptor)
    return 0


def _flock(descriptor: int, path: Path) -> None:
    patience_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > patience_s:
                raise BlockingIOError(f"is being written by another run{_holder(path)}") from error
            time.sleep(_PATIENCE_S / 10)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            raise


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """The process that holds the lock, where the system reports it, as for those of this machine."""
    with suppress(OSError, ValueError, IndexError):
        about = path.stat()
        where = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == where and int(words[4]) > 0:
                return f" (PID {words[4]})"
    return ""
