"""Modules that an experiment names: their import paths and the folders to search. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areabench.settings.keys import OwnPart, is_import_path, is_own
from areabench.settings.paths import anchored_path

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment

FOLDERS = "module_folders"


def anchored_folders(
    table: dict[str, Any], folder: Path, origin: Path | None = None, *, with_modules: bool = True
) -> dict[str, Any]:
    """The table of an experiment file with its module folders absolute, and `folder` among them where it is needed.

    They are written relative to `origin`, by default `folder`.
    """
    given = table.get(FOLDERS, [])
    if not isinstance(given, list):
        return table
    folders = [anchored_path(each, folder, origin) if isinstance(each, str) else each for each in given]
    if with_modules and any(lies_in(path, folder) for path in _import_paths(table)):
        folders.append(anchored_path(".", folder, origin))
    return {**table, FOLDERS: list(dict.fromkeys(folders))} if folders else table


def joined_folders(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The changes of a file that extends another, with the module folders of both, its own first."""
    both = [table.get(FOLDERS, []) for table in (changes, base)]
    if not all(isinstance(folders, list) for folders in both):
        return changes
    folders = list(dict.fromkeys(both[0] + both[1]))
    return {**changes, FOLDERS: folders} if folders else changes


def lies_in(path: str, folder: Path) -> bool:
    """Whether a folder contains the module or package that an import path begins with."""
    top = path.partition(":")[0].partition(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def user_functions(experiment: Experiment) -> dict[str, OwnPart]:
    """The sections of an experiment that name a function of the user."""
    sections = ("data", "split", "problem", "method", "delays")  # in the order in which they are built
    found = {name: getattr(experiment, name) for name in sections}
    return {name: part for name, part in found.items() if is_own(part)}


def named_code(experiment: Experiment) -> tuple[str, ...]:
    """The import paths that are imported when an experiment is built, each once."""
    return tuple(
        dict.fromkeys([*experiment.problem.named_code, *(part.name for part in user_functions(experiment).values())])
    )


def _import_paths(value: Any) -> Iterator[str]:
    """All import paths in nested tables and lists, those in a sweep's grid included."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _import_paths(inner)
    elif is_import_path(value):
        yield value
