"""What there is to know about every method before a run: who chooses the clients, its limit, memory, paper and keys."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import get_args

from areabench.experiment.fields import SAMPLE_PATH, Limits
from areabench.experiment.method_records import MethodSettings
from areabench.experiment.parse import name_of
from areabench.methods.catalogue import CATALOGUE


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
    """All methods, in the order of the records."""
    records = [record for record in get_args(MethodSettings) if name_of(record) != SAMPLE_PATH]
    return [_listed(record) for record in records]


def _listed(record: type) -> ListedMethod:
    name, summary = name_of(record), (record.__doc__ or "").partition("\n")[0]
    about = CATALOGUE[name]
    return ListedMethod(name, summary, about.chooses, about.limit, about.memory, about.paper, _keys(record))


def _keys(record: type) -> tuple[MethodKey, ...]:
    found = []
    for item in fields(record):
        limits: Limits | None = item.metadata.get("limits")
        if limits is not None:
            given = isinstance(item.default, bool | int | float | str | tuple)
            default = str(item.default) if given else ""
            found.append(MethodKey(item.name, limits.doc, f"{limits.describe()} {limits.unit}".strip(), default))
    return tuple(found)
