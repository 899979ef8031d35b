"""What there is to know about every method before a run: who chooses the clients, its limit, memory, paper and keys."""

from __future__ import annotations

from dataclasses import dataclass, fields

from areabench.methods import METHODS
from areabench.settings.keys import Limits
from areabench.settings.parts import name_of


@dataclass(frozen=True)
class MethodKey:
    """A key of the section [method]; `default` is empty where it must be given."""

    name: str
    meaning: str
    limits: str
    default: str


@dataclass(frozen=True)
class ListedMethod:
    """A method in words."""

    name: str
    summary: str
    chooses: str
    limit: str
    memory: str
    paper: str
    keys: tuple[MethodKey, ...]


def listed_methods() -> list[ListedMethod]:
    """All methods, in the order in which they are registered."""
    found = []
    for record in METHODS.values():
        keys = []
        for item in fields(record):
            limits: Limits | None = item.metadata.get("limits")
            if limits is not None:
                default = str(item.default) if isinstance(item.default, bool | int | float | str | tuple) else ""
                keys.append(MethodKey(item.name, limits.doc, f"{limits.describe()} {limits.unit}".strip(), default))
        summary = (record.__doc__ or "").partition("\n")[0]
        found.append(
            ListedMethod(
                name_of(record), summary, record.chooses, record.limit, record.memory, record.paper, tuple(keys)
            )
        )
    return found
