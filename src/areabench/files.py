"""What a run needs besides its experiment, and the rule that no file is overwritten unasked.

Every rank loads this module, so it loads nothing large.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from areabench.errors import RunFileError, UserError


def check_paths(options: Mapping[str, Any]) -> None:
    """Refuse a path among the options of a command that no file can have, or that lies in a folder closed to us."""
    for value in options.values():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                _look(path)


def _look(path: Path) -> None:
    """What is wrong with a path before anything is done with it; a file that is not there may be made."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name of more than 255 bytes, a closed folder, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{str(path)[:100]}: cannot be used: {reason}; give another path") from error


def refuse_existing(path: Path, *, force: bool, option: str = "--output") -> None:
    """A file is never overwritten unasked, and one that cannot be written is told before anything is computed."""
    there = path.exists() or path.is_symlink()  # a link to nothing would be followed, and written elsewhere
    if there and not force:
        raise RunFileError(f"{path}: exists already; choose another {option} or overwrite it with --force")
    if path.is_dir():
        raise RunFileError(f"{path}: cannot be written: Is a directory; choose another {option}")
    _refuse_folder(path, option)


def write_text(path: Path, text: str) -> None:
    """Write a text file, and the folders that it needs; an older one stays until the new one is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)  # behind a link its target
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; give another --output") from error


def _replace(path: Path, text: str) -> None:
    """Write beside the file and rename, so that an interrupt or a full disc leaves it as it was."""
    part = path.with_name(f".areabench-{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _refuse_folder(path: Path, option: str) -> None:
    """The folder of a file must be one, or it must be possible to make it."""
    try:
        folder = next(folder for folder in path.absolute().parents if folder.exists())
    except PermissionError as error:  # above the current folder, say
        raise RunFileError(f"{path}: cannot be written: {error.strerror}; choose another {option}") from None
    if not folder.is_dir():
        raise RunFileError(f"{path}: {_folder_shown(path, folder)} is not a folder; choose another {option}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunFileError(f"{path}: cannot be written: {folder} is closed to you; choose another {option}")


def _folder_shown(path: Path, folder: Path) -> Path:
    """The folder as the user wrote it."""
    return next(shown for shown in (*path.parents, folder) if shown.absolute() == folder)
