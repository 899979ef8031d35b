"""Experiments in Python: records, dicts and objects as the tables that TOML gives, so that `parse` checks them too.

Wherever a file has an import path, Python may give the object: a function, or the part itself. Where another process
can import it, its import path takes its place. Any other object is passed on as it is, and a run that uses it can be
repeated only by code that passes it again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from areabench.experiment.experiment import Experiment
from areabench.plugins.callables import file_of
from areabench.plugins.paths import FOLDERS, named_code
from areabench.settings.keys import PASSED, PythonObject
from areabench.settings.parse import hints_of, records_of

_PATHS = ("name", "module", "loss")  # keys of a section that may hold an import path
_VALUES = (str, bool, int, float, list, tuple, Mapping, np.generic, np.ndarray, type(None))


def tables_of(values: Mapping[str, Any] | Experiment) -> dict[str, Any]:
    """An experiment, or what is to be changed of one, as tables; `section.key` may stand for a table in a table."""
    table: dict[str, Any] = {}
    for key, value in (vars(values) if isinstance(values, Experiment) else values).items():
        section, *inner = key.split(".")
        for name in reversed(inner):
            value = {name: value}
        entry = _section(section, value) if section in _records() else _plain(value)
        if section == "tune" and isinstance(entry, dict) and isinstance(entry.get("keys"), dict):
            entry["keys"] = grid_of(entry["keys"])
        if entry is not None:
            old = table.get(section)
            table[section] = {**old, **entry} if isinstance(old, dict) and isinstance(entry, dict) else entry
    tables = [section for section in table.values() if isinstance(section, dict)]
    named = [section[key] for section in tables for key in _PATHS if isinstance(section.get(key), str)]
    if folders := [folder for folder in map(_folder, named) if folder]:
        table[FOLDERS] = list(dict.fromkeys([*table.get(FOLDERS, ()), *folders]))
    return table


def grid_of(grid: Mapping[str, Any]) -> dict[str, Any]:
    """The grid of a sweep, `section.key` to a list of values, as tables."""
    table: dict[str, Any] = {}
    for key, values in grid.items():
        *outer, last = key.split(".")
        listed = _plain(values)
        if isinstance(values, list | tuple):
            whole = not outer and last in _records()  # sections, each with all of its keys
            listed = [_section(last, value) if whole else _entry(last, value) for value in values]
        inner = table
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = listed
    return table


def part_name(part: Any) -> str:
    """The import path of a part, or a name that carries the part itself."""
    module = getattr(part, "__module__", "")
    name = getattr(part, "__qualname__", "")
    importable = module != "__main__" and name and file_of(module) is not None
    if importable and getattr(sys.modules[module], name, None) is part:
        return f"{module}:{name}"
    word = getattr(part, "__name__", type(part).__name__)
    path = f"{PASSED}:{word if word.isidentifier() else 'function'}"
    return PythonObject(path, part if callable(part) else lambda: part)


def passed_parts(experiment: Experiment) -> tuple[str, ...]:
    """The names of the parts of an experiment that were passed as objects."""
    return tuple(path for path in named_code(experiment) if isinstance(path, PythonObject))


def _records() -> dict[str, tuple[Any, ...]]:
    """The records of each section of an experiment."""
    hints = hints_of(Experiment)
    found = {item.name: records_of(item, hints[item.name]) for item in fields(Experiment)}
    return {name: records for name, records in found.items() if records}


def _section(name: str, value: Any) -> Any:
    """A section as a table: from its record, its `name` alone, or a part of the user's own."""
    records = _records()[name]
    takes_objects = any(getattr(record, "own", False) for record in records)
    if isinstance(value, records):
        value = vars(value)
    elif len(records) > 1 and (isinstance(value, str) or (takes_objects and not isinstance(value, _VALUES))):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return _plain(value)
    entries = {key: _entry(key, entry) for key, entry in value.items()}
    return {key: entry for key, entry in entries.items() if entry is not None}


def _entry(key: str, value: Any) -> Any:
    """One value of a section."""
    return part_name(value) if key in _PATHS and not isinstance(value, _VALUES) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as TOML would give it, where there is such a value; None where the key is left out."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _folder(path: str) -> str:
    """Where the module of an import path was found, for processes that are to import it too; empty where installed."""
    module, colon, _ = path.partition(":")
    found = file_of(module) if colon else None
    if found is None or "site-packages" in Path(found).parts or module.partition(".")[0] == "areabench":
        return ""
    return str(Path(found).absolute().parents[module.count(".") + (Path(found).stem == "__init__")])
