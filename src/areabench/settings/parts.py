"""The parts that a section can name: each is one file, which is imported when its name is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from areabench.settings.keys import SAMPLE_PATH


def name_of(record: Any) -> str:
    """The `name` that selects a record among its variants."""
    return str(next(item.default for item in fields(record) if item.name == "name"))


class Parts(Mapping[str, Any]):
    """The settings records of a family of parts by name, in the order of lists and legends.

    `modules` has the module of each name below `package`, which is a room of areabench. `own` is the record of a part
    of the user's own, which is named by import path.
    """

    def __init__(self, package: str, modules: Mapping[str, str], own: type | None = None) -> None:
        self._package = package
        self._modules = modules
        self.own = own

    def __getitem__(self, name: str) -> Any:
        """The record of a part."""
        return _record(f"{self._package}.{self._modules[name]}", name)

    def __iter__(self) -> Iterator[str]:
        """The names; a part of the user's own has none."""
        return iter(self._modules)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._modules)

    def records(self) -> tuple[Any, ...]:
        """All records, the one for a part of the user's own last."""
        return (*self.values(), *(() if self.own is None else (self.own,)))

    def named(self, name: object) -> Any:
        """The record that a name or an import path stands for; None for an unknown one."""
        if isinstance(name, str) and name in self._modules:
            return self[name]
        return self.own if ":" in str(name) or name == SAMPLE_PATH else None


@cache
def _record(module: str, name: str) -> Any:
    found = [
        each
        for each in vars(import_module(f"areabench.{module}")).values()
        if isinstance(each, type) and is_dataclass(each)
    ]
    return next(each for each in found if any(item.name == "name" and item.default == name for item in fields(each)))
