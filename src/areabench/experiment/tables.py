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
from areabench.plugins.paths import FOLDERS, named_code
from areabench.settings.keys import PASSED, PythonObject
from areabench.settings.parse import hints_of, records_of

_PATHS = ("name", "module", "loss")  # keys of a section that may hold an import path
_VALUES = (str, bool, int, float, list, tuple, Mapping, np.generic, np.ndarray, type(None))


def tables_of(values: Mapping[str, Any] | Experiment) -> dict[str, Any]:
    """An experiment, or what is to be changed of one, as tables; `section.key` may stand for a table in a table."""
    table: dict[str, Any] = {}
    for key, value in (_entries(values) if isinstance(values, Experiment) else values).items():
        section, dot, rest = key.partition(".")
        nested = _nested(rest, value) if dot else value
        entry = _section(section, nested) if section in _records() else _plain(nested)
        if section == "tune" and isinstance(entry, dict) and isinstance(entry.get("keys"), dict):
            entry["keys"] = grid_of(entry["keys"])
        if entry is not None:
            old = table.get(section)
            table[section] = {**old, **entry} if isinstance(old, dict) and isinstance(entry, dict) else entry
    if folders := [folder for folder in map(_folder, _named(table)) if folder]:
        table[FOLDERS] = list(dict.fromkeys([*table.get(FOLDERS, ()), *folders]))
    return table


def grid_of(grid: Mapping[str, Any]) -> dict[str, Any]:
    """The grid of a sweep, `section.key` to a list of values, as tables."""
    table: dict[str, Any] = {}
    for key, values in grid.items():
        section, _, last = key.partition(".")
        if section in _records() and not last:  # whole sections
            listed: Any = [_section(section, value) for value in values] if isinstance(values, list | tuple) else values
        else:
            listed = [_entry(last, value) for value in values] if isinstance(values, list | tuple) else _plain(values)
        inner = table
        for part in key.split(".")[:-1]:
            inner = inner.setdefault(part, {})
        inner[key.rpartition(".")[2]] = listed
    return table


def part_name(part: Any) -> str:
    """The import path of a part, or a name that carries the part itself."""
    module = getattr(part, "__module__", "")
    name = getattr(part, "__qualname__", "")
    if module != "__main__" and name and getattr(_module(module), name, None) is part and _file(module):
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
    if isinstance(value, records):
        value = _entries(value)
    elif len(records) > 1 and (isinstance(value, str) or (_is_object(value) and _takes_own_parts(records))):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return _plain(value)
    entries = {key: _entry(key, entry) for key, entry in value.items()}
    return {key: entry for key, entry in entries.items() if entry is not None}


def _is_object(value: Any) -> bool:
    return not isinstance(value, _VALUES)


def _takes_own_parts(records: tuple[Any, ...]) -> bool:
    return any(getattr(record, "own", False) for record in records)


def _entry(key: str, value: Any) -> Any:
    """One value of a section."""
    return part_name(value) if key in _PATHS and _is_object(value) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as TOML would give it, where there is such a value; None where the key is left out."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _entries(record: Any) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in fields(record)}


def _nested(dotted: str, value: Any) -> Any:
    for name in reversed(dotted.split(".")):
        value = {name: value}
    return value


def _named(table: Mapping[str, Any]) -> list[str]:
    """The import paths of functions that were given as objects, or by path, in the sections."""
    sections = [section for section in table.values() if isinstance(section, dict)]
    return [section[key] for section in sections for key in _PATHS if isinstance(section.get(key), str)]


def _folder(path: str) -> str:
    """Where the module of an import path was found, for processes that are to import it too; empty where installed."""
    module, colon, _ = path.partition(":")
    file = _file(module) if colon else ""
    if not file or "site-packages" in Path(file).parts or module.partition(".")[0] == "areabench":
        return ""
    return str(Path(file).absolute().parents[module.count(".") + (Path(file).stem == "__init__")])


def _module(name: str) -> Any:
    return sys.modules.get(name)


def _file(module: str) -> str:
    return getattr(_module(module), "__file__", None) or ""
