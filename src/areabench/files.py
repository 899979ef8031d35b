"""Paths and text files: checks before anything is computed, and the rule that no file is overwritten unasked.

Every rank loads this module, so it loads nothing large.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from areabench.errors import RunFileError, UserError

_READ = ("experiment", "file", "sweeps", "source", "run", "runs", "first", "second", "ended_in", "measured_in")


def check_paths(options: Mapping[str, Any]) -> None:
    """Refuse a path among the options of a command that no file can have, or whose folder may not be read.

    A path that is read must not be a pipe or a device either.
    """
    for name, value in options.items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                _check_path(path)
                if name in _READ and (reason := irregular(path)):
                    raise UserError(f"{path}: {reason}")


def _check_path(path: Path) -> None:
    """Refuse a path that cannot be used; a file that does not exist may be created later."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name of more than 255 bytes, a folder without permission, circular links
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{str(path)[:100]}: cannot be used: {reason}; give another path") from error


def irregular(path: Path) -> str:
    """Why a path is not read: a pipe or a device may never answer, or never end. Empty for all other paths."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""  # who opens it says why
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    return f"is {kind}, and only regular files are read; write its content to a file, and give the path of that"


def refuse_existing(path: Path, *, force: bool, option: str = "--output") -> None:
    """Refuse a file that exists, unless `force`, and one that cannot be written, before anything is computed."""
    exists = path.exists() or path.is_symlink()  # a link to nothing would be followed, and written elsewhere
    if exists and not force:
        raise RunFileError(f"{path}: exists already; choose another {option} or overwrite it with --force")
    if path.is_dir():
        raise RunFileError(f"{path}: cannot be written: Is a directory; choose another {option}")
    _check_folder(path, option)


def _check_folder(path: Path, option: str) -> None:
    """Refuse a file whose folder is not a folder or can neither be written nor created."""
    try:
        folder = next(folder for folder in path.absolute().parents if folder.exists())
    except PermissionError as error:  # above the current folder, for example
        raise RunFileError(f"{path}: cannot be written: {error.strerror}; choose another {option}") from None
    if not folder.is_dir():
        shown = next(shown for shown in (*path.parents, folder) if shown.absolute() == folder)  # as the user wrote it
        raise RunFileError(f"{path}: {shown} is not a folder; choose another {option}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunFileError(f"{path}: cannot be written: you may not write to {folder}; choose another {option}")


def write_text(path: Path, text: str, option: str = "--output") -> None:
    """Write a text file, and create its folders; an older file stays until the new one is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
            path.write_text(text, encoding="utf-8")
        else:
            target = path.resolve()  # of a link
            replace_text(target, text, target.with_name(f".areabench-{os.getpid()}.part"))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; give another {option}") from error


_CHECKSUM_LINE = "# CRC-32 of the lines above: "


def with_checksum(text: str) -> str:
    """A text whose last line, a comment, has the checksum of those before."""
    return f"{text}{_CHECKSUM_LINE}{crc32(text.encode()):08x}\n"


def check_checksum(path: Path, text: str) -> None:
    """A RunFileError unless the text has its checksum."""
    content, _, checksum = text.rpartition(_CHECKSUM_LINE)
    if checksum.strip() != f"{crc32(content.encode()):08x}":
        raise RunFileError(f"{path}: is damaged (it does not have its checksum); remove it and run the sweep again")


def replace_text(path: Path, text: str, part: Path) -> None:
    """Write `part` and rename it, so that an interrupt or a full disc leaves the old file unchanged."""
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def run_file_path(text: str) -> Path:
    """A run file to write: commands that read folders look for names that end in .h5."""
    path = Path(text)
    if path.suffix in (".h5", ".hdf5") or os.path.lexists(path) or not path.name or text.endswith("/"):
        return path
    return path.with_name(f"{path.name}.h5")
