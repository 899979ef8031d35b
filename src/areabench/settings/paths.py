"""Paths in a file, relative to its folder: absolute while they are used, and written down as they were given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class AnchoredPath(str):
    """An absolute path that was given relative to the folder of an experiment's file.

    What is stored and compared is `written`, so that a folder with experiment, data and runs can be moved.
    """

    folder: str

    def __new__(cls, path: str, folder: str = "") -> AnchoredPath:
        """The path; the default is for `copy` and `pickle`, which set the folder afterwards."""
        made = super().__new__(cls, path)
        made.folder = folder
        return made

    @property
    def written(self) -> str:
        """The path from the folder."""
        return os.path.relpath(self, self.folder)


def anchored_path(path: str, folder: Path, origin: Path | None = None) -> str:
    """A path in a file of `folder` made absolute; it is to be written relative to `origin`, by default the same."""
    if Path(path).is_absolute():
        return path
    return AnchoredPath(os.path.normpath(folder.absolute() / path), str((origin or folder).absolute()))


def as_written(value: Any) -> Any:
    """A value of a file, or a table or list of such, with all paths as they were given."""
    if isinstance(value, AnchoredPath):
        return value.written
    if isinstance(value, Mapping):
        return {name: as_written(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_written(entry) for entry in value]
    return value
