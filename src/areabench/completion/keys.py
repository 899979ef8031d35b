"""What may follow `--set`: the dotted keys of an experiment, with their values where there are few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin

from areabench.config import hints_of, name_of, options_of
from areabench.experiment import Experiment


def override_words() -> tuple[str, ...]:
    """`section.key=value` where the values are known, else `section.key=`; sorted, each once."""
    return tuple(sorted(set(_words(Experiment, ""))))


def _words(record: type, prefix: str) -> Iterator[str]:
    for name, kind in hints_of(record).items():
        if name in {item.name for item in fields(record)}:
            yield from _of_key(prefix + name, options_of(kind))


def _of_key(key: str, options: tuple[Any, ...]) -> Iterator[str]:
    """The words of a key, or of all variants of a section."""
    if is_dataclass(options[0]):
        names = [name_of(option) for option in options if len(options) > 1]
        yield from (f"{key}.name={name}" for name in names)
        for option in options:
            yield from (word for word in _words(option, f"{key}.") if not word.startswith(f"{key}.name="))
    elif get_origin(options[0]) is Literal:
        yield from (f"{key}={value}" for value in get_args(options[0]))
    elif options[0] is bool:
        yield from (f"{key}=true", f"{key}=false")
    else:
        yield f"{key}="
