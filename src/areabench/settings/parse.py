"""TOML tables as records and back: strict. An error is one line: file, key, value, what is allowed, nearest."""

from __future__ import annotations

import math
import re
import tomllib
import types
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from areabench.errors import ConfigError
from areabench.settings.keys import SAMPLE_PATH, Limits, PythonObject, Scalar, Settings, Value, is_import_path
from areabench.settings.parts import Parts
from areabench.settings.paths import AnchoredPath, as_written
from areabench.settings.toml import block

# ---------------------------------------------------------------------------------------------------- locations, errors


_LONGEST_SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True)
class Location:
    """The place of a value: the file, the keys in it that `--set` overrides, and the dotted key of the value."""

    source: str
    overridden: tuple[str, ...] = ()
    key: str = ""

    def inner(self, name: str) -> Location:
        """The location of a key inside this one."""
        return Location(self.source, self.overridden, f"{self.key}.{name}" if self.key else name)

    def error(self, problem: str) -> ConfigError:
        """An error at this location."""
        overridden = any(f"{self.key}.".startswith(f"{key}.") for key in self.overridden)
        where = f"{self.source}: {self.key}: " if self.key else f"{self.source}: "
        return ConfigError(where + problem + (" (given by --set)" if overridden else ""))


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest name that does."""
    import difflib  # only an error needs it

    names = sorted(known)
    near = difflib.get_close_matches(shown(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"unknown {what} {shown(name)}; {hint}allowed: {', '.join(names)}"


def shown(value: object) -> str:
    """A value as an error shows it: on one line, and shortened if long."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


# ---------------------------------------------------------------------------------------------------- writing


def to_toml(settings: Any, *, as_given: bool = False) -> str:
    """A record as TOML, one section for each record in it; reading it again gives an equal record.

    With `as_given` paths are written as the file had them, elsewhere absolute.
    """
    written = {item.name: getattr(settings, item.name) for item in fields(settings) if _is_written(item, settings)}
    top = {name: value for name, value in written.items() if not is_dataclass(value)}
    sections = {name: value for name, value in written.items() if is_dataclass(value)}
    blocks = [block(as_written(top) if as_given else top)]
    for name, record in sections.items():
        entries = {item.name: getattr(record, item.name) for item in fields(record) if _is_written(item, record)}
        blocks.append(f"[{name}]\n{block(as_written(entries) if as_given else entries)}")
    return "\n".join(blocks)


def _is_written(item: Field[Any], record: object) -> bool:
    value = getattr(record, item.name)
    return value is not None and (item.metadata.get("written", True) or value != item.default)


# ---------------------------------------------------------------------------------------------------- overrides


def apply_overrides(record: type, table: dict[str, Any], overrides: Sequence[str]) -> None:
    """Put each `section.key=value` into the table of a record; with another `section.name`, keys of the old part go."""
    families = {item.name: item.metadata["parts"] for item in fields(record) if "parts" in item.metadata}
    given = overridden_keys(overrides)
    for override, key in zip(overrides, given, strict=True):
        section, dot, last = key.rpartition(".")
        before = table.get(section)
        old = before.get("name") if isinstance(before, dict) and dot and last == "name" else None
        _apply_override(table, override)
        if old is None or section not in families:
            continue
        for gone in _keys_left_behind(families[section], old, table[section]["name"]):
            if f"{section}.{gone}" not in given:
                table[section].pop(gone, None)


def _keys_left_behind(parts: Parts, old: object, new: object) -> set[str]:
    """The keys that one part has and another has not; none where one of them does not exist."""
    before = parts.named(old)
    after = parts.named(new)
    if before is None or after is None:
        return set()
    return {item.name for item in fields(before)} - {item.name for item in fields(after)}


def _apply_override(table: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    *sections, last = [part.strip() for part in key.split(".")]
    if not equals or not last or not all(sections):
        raise ConfigError(f"--set {override}: write it as section.key=value, for example method.step_size=100")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: '{section}' is a value, not a section; write {section}=...")
    table[last] = _override_value(value.strip())


def overridden_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """The dotted keys that `--set` names."""
    return tuple(override.partition("=")[0].replace(" ", "") for override in overrides)


def _override_value(text: str) -> Any:
    """A value as TOML reads it; anything else, further lines of TOML included, is a plain string."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


# ---------------------------------------------------------------------------------------------------- records


def read_record(record: type, table: Any, location: Location) -> Any:
    """Build one record from a TOML table."""
    if not isinstance(table, dict):
        raise location.error(f"{shown(table)} is a value; write it as a section [{location.key}]")
    known = {item.name: item for item in fields(record)}
    for name in table:
        if name not in known:
            raise location.inner(name).error(unknown("key" if location.key else "key or section", name, known))
    hints = hints_of(record)
    values = {}
    for name, item in known.items():
        if name in table:
            values[name] = _read_value(hints[name], table[name], location.inner(name), item)
        elif item.default is MISSING:
            raise _missing(hints[name], location.inner(name), item)
    return record(**values)


def _missing(kind: Any, location: Location, item: Field[Any]) -> ConfigError:
    """The error for a key or a section that has no default and is not given."""
    limits = item.metadata.get("limits")
    parts = item.metadata.get("parts")
    meaning = f" ({limits.doc})" if limits else ""
    remedy = "add it"
    if parts is not None:
        remedy = f"add a section [{location.key}] with name = one of {', '.join(sorted(_names(parts)))}"
    elif is_dataclass(options_of(kind)[0]):
        remedy = f"add a section [{location.key}]"
    return location.error(f"is missing{meaning}; {remedy}")


def _read_part(parts: Parts, value: Any, location: Location, default: Any) -> Any:
    """A section: the record of the part that it names, or of the default one if that has the keys."""
    if not isinstance(value, dict):
        raise location.error(f'{shown(value)} is a value; write a section [{location.key}] with name = "..."')
    if "name" not in value:
        record: type = type(default)
        if default is None or default is MISSING or not {item.name for item in fields(record)} >= set(value):
            fitting = [
                name for name in _names(parts) if {item.name for item in fields(parts.named(name))} >= set(value)
            ]
            raise location.error(f"has no `name`; choose one of {', '.join(sorted(fitting or _names(parts)))}")
        return read_record(record, value, location)
    name = value["name"]
    if parts.own is not None and ":" in str(name):
        if not is_import_path(name):
            raise location.inner("name").error(
                f"{shown(name)} is not an import path; write `module:function`, with names as Python has them"
            )
        return read_record(parts.own, value, location)
    return read_record(parts.named(_read_choice(_names(parts), name, location.inner("name"))), value, location)


def _names(parts: Parts) -> tuple[str, ...]:
    """What may be the name of a section, with what stands for any import path."""
    return (*parts, *(() if parts.own is None else (SAMPLE_PATH,)))


@cache
def hints_of(record: type) -> dict[str, Any]:
    """The type of each field of a record; cached, because finding it takes longer than reading the record."""
    return get_type_hints(record)


def records_of(item: Field[Any], kind: Any) -> tuple[Any, ...]:
    """The records that a key may hold: those of all its parts, or its one; none for a plain value."""
    if (parts := item.metadata.get("parts")) is not None:
        records: tuple[Any, ...] = parts.records()
        return records
    return tuple(option for option in options_of(kind) if is_dataclass(option))


def options_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union except None, or the type itself."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(member for member in members if member is not type(None))


# ---------------------------------------------------------------------------------------------------- values


_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and bytes that are no text
_LISTS = {int: "numbers; write [1, 2, ...]", float: "numbers; write [1.0, 2.0, ...]", str: 'strings; write ["a", "b"]'}


def _read_value(kind: Any, value: Any, location: Location, item: Field[Any]) -> Any:
    """Check one value against its annotation and limits."""
    if (parts := item.metadata.get("parts")) is not None:
        return _read_part(parts, value, location, item.default)
    (option,) = options_of(kind)
    if isinstance(option, type) and is_dataclass(option):
        return read_record(option, value, location)
    if get_origin(option) is Literal:
        return _read_choice(get_args(option), value, location)
    limits = item.metadata.get("limits", Limits(""))
    if option is Settings:
        return _read_settings(value, location)
    if get_origin(option) is tuple:
        scalar = get_args(option)[0]
        if not isinstance(value, list):
            raise location.error(f"{shown(value)} is not a list of {_LISTS[scalar]}")
        return tuple(
            _read_scalar(scalar, entry, location.inner(str(index)), limits) for index, entry in enumerate(value)
        )
    return _read_scalar(option, value, location, limits)


def _read_choice(choices: Sequence[str], value: Any, location: Location) -> str:
    if not isinstance(value, str) or value not in choices:
        raise location.error(unknown("value", value, choices))
    return value


def _read_scalar(kind: Any, value: Any, location: Location, limits: Limits) -> Any:
    """A bool, whole number, number or string of the right type and within its limits."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    allowed = " ".join(part for part in (words[kind], limits.describe(), limits.unit) if part)
    if kind is float and type(value) is int:
        value = _widen(value, location, allowed)
    if type(value) is not kind and not isinstance(value, PythonObject | AnchoredPath):
        raise location.error(f"{shown(value)} is not {allowed}")
    if kind is float and not math.isfinite(value):
        raise location.error(f"{value} is not finite; allowed is {allowed}")
    if kind in (int, float) and not limits.allow(value):
        raise location.error(f"{shown(value)} is out of range; allowed is {allowed}")
    if kind is int and abs(value) >= 2**63:
        raise location.error(f"{shown(value)} does not fit 64 bits; allowed is {allowed}")
    if kind is str and (not value or _FORBIDDEN.search(value)):
        raise location.error(f"{shown(value)} is empty or has control characters; allowed is a line of text")
    return value


def _widen(value: int, location: Location, allowed: str) -> float:
    """A whole number where a number is meant."""
    try:
        return float(value)
    except OverflowError:
        raise location.error(f"{shown(value)} is too large; allowed is {allowed} below 1.8e308") from None


def _read_settings(table: Any, location: Location) -> Settings:
    """Keyword arguments of a function that is not known yet: plain values of any type."""
    if not isinstance(table, dict):
        raise location.error(f"{shown(table)} is a value; write a table, {{ name = value }}")
    return Settings({name: _read_setting(name, value, location.inner(name)) for name, value in table.items()})


def _read_setting(name: str, value: Any, location: Location) -> Value:
    if not name.isidentifier():
        raise location.error(f"{shown(name)} cannot be the name of an argument; use letters, digits and '_'")
    if isinstance(value, list):
        return tuple(_read_plain(entry, location.inner(str(index))) for index, entry in enumerate(value))
    return _read_plain(value, location)


def _read_plain(value: Any, location: Location) -> Scalar:
    if type(value) not in (bool, int, float, str):
        raise location.error(
            f"{shown(value)} is not allowed; allowed are true, false, numbers, strings and lists of them"
        )
    plain: Scalar = value if value == "" else _read_scalar(type(value), value, location, Limits(""))
    return plain
