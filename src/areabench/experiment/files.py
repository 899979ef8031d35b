"""Files that an experiment names, such as data and traces: where they are, and whether their content has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path

from areabench.experiment.experiment import Experiment
from areabench.experiment.parse import parse_experiment
from areabench.settings.parse import to_toml
from areabench.settings.paths import AnchoredPath


def written_text(experiment: Experiment) -> str:
    """An experiment as TOML with paths as they were given: what tells runs apart, wherever their folder is."""
    return to_toml(experiment, as_given=True)


def stored_experiment(text: str, source: str, folder: str) -> Experiment:
    """An experiment that was written by `written_text`; its relative paths start at `folder`."""
    return parse_experiment(text, source, folder=Path(folder) if folder else None, with_modules=False)


def named_files(experiment: Experiment) -> dict[str, str]:
    """The path of each file that an experiment names, by its key."""
    found = {}
    for section in fields(experiment):
        record = getattr(experiment, section.name)
        if is_dataclass(record):
            for item in fields(record):
                path = getattr(record, item.name)
                if item.metadata.get("path") and path is not None:
                    found[f"{section.name}.{item.name}"] = path
    return found


def relative_paths(experiment: Experiment) -> list[AnchoredPath]:
    """The paths that were given relative to the folder of the experiment's file."""
    every = [*named_files(experiment).values(), *(experiment.module_folders or ())]
    return [path for path in every if isinstance(path, AnchoredPath)]


def base_folder(experiment: Experiment) -> str:
    """The folder that paths in the experiment are relative to; empty if none is relative."""
    return next((path.folder for path in relative_paths(experiment)), "")


def file_digests(experiment: Experiment) -> str:
    """The SHA-256 of each file that an experiment names, behind its key; empty if it names none."""
    return "; ".join(f"{name} {digest_of(Path(path))}" for name, path in named_files(experiment).items())


def changed_files(recorded: str, experiment: Experiment) -> Iterator[str]:
    """One line per file that an experiment names and that has changed since a run recorded its digest."""
    digests = dict(each.partition(" ")[::2] for each in recorded.split("; "))
    for name, path in named_files(experiment).items():
        before = digests.get(name, "")
        now = digest_of(Path(path))
        if before and now != before:
            yield (
                f"{name} = {path!r} has changed since this run: its SHA-256 was {before[:12]}, it is "
                f"{now[:12] or 'not readable'} now"
            )


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, or of all files in a folder together; empty if it cannot be read."""
    try:
        if path.is_dir():
            inner = [digest_of(each) for each in sorted(path.iterdir()) if each.is_file()]
            return hashlib.sha256("".join(inner).encode()).hexdigest()
        state = path.stat()
        return _digest(path, state.st_size, state.st_mtime_ns) if path.is_file() else ""
    except OSError:
        return ""


@lru_cache
def _digest(path: Path, size: int, changed_ns: int) -> str:  # noqa: ARG001 - a file of another state is read again
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
