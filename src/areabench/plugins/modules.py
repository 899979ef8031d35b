"""The user's modules: which files they were loaded from, and whether these have changed since a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.plugins.callables import BUILT_IN_MODULES, file_of
from areabench.plugins.paths import named_code

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True)
class Module:
    """A module, the file it was loaded from, and the SHA-256 of that file."""

    name: str
    file: str
    sha256: str

    def source(self, folders: Sequence[str]) -> Path:
        """Its file: in the first of these folders that has it, else where it was for the run."""
        inner = self.name.replace(".", "/")
        found = [Path(folder, inner, "__init__.py") for folder in folders]
        found += [Path(folder, f"{inner}.py") for folder in folders]
        return next((path for path in found if path.is_file()), Path(self.file))


def modules_of(experiment: Experiment) -> tuple[str, ...]:
    """The modules that an experiment names, except those of areabench and torch."""
    names = dict.fromkeys(path.partition(":")[0] for path in named_code(experiment))
    return tuple(name for name in names if name not in BUILT_IN_MODULES)


def loaded(experiment: Experiment) -> tuple[Module, ...]:
    """The modules of an experiment that was built in this process, with their files."""
    found = {name: file_of(name) for name in modules_of(experiment)}
    return tuple(Module(name, file, checksum(Path(file))) for name, file in found.items() if file is not None)


def checksum(file: Path) -> str:
    """The SHA-256 of a file; empty if it cannot be read any more."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def to_text(modules: Sequence[Module]) -> str:
    """Modules as a run file has them: JSON, or nothing."""
    return json.dumps([asdict(module) for module in modules]) if modules else ""


def of_text(text: str) -> tuple[Module, ...]:
    """The modules of that text; none if it is not such JSON."""
    try:
        return tuple(
            Module(*(str(row[name]) for name in ("name", "file", "sha256"))) for row in json.loads(text or "[]")
        )
    except (ValueError, TypeError, KeyError):
        return ()


def changes(recorded: str, experiment: Experiment) -> Iterator[str]:
    """One line per module of an experiment, which was built, that has changed since a run recorded it."""
    before = {module.name: module for module in of_text(recorded)}
    for module in loaded(experiment):
        old = before.get(module.name)
        if old is not None and old.sha256 != module.sha256:
            yield (
                f"{Path(module.file).name} has changed since this run: its SHA-256 was {old.sha256[:12]}, "
                f"{module.file} has {module.sha256[:12]}"
            )
