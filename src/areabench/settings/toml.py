"""TOML as nested tables: reads text, or says in one line what is wrong with it, and writes values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from areabench.errors import ConfigError
from areabench.files import irregular

_MOST_BYTES = 50_000_000  # of an experiment file; the rates of a million clients take half of it
_DEEPEST = 20  # levels of tables and lists; a sweep over listed rates has six
_PRINTED = 10**4000  # Python does not print larger integers in decimal, but TOML can give them in hexadecimal


def read_text(path: Path) -> str:
    """The text of an experiment file."""
    if reason := irregular(path):
        raise ConfigError(f"{path}: {reason}")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path}: has more than {_MOST_BYTES:,} bytes; give the path of an experiment file")
        text = content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; give the path of an experiment file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8 text") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(text: str, source: str) -> dict[str, Any]:
    """TOML text as nested tables."""
    try:
        table = tomllib.loads(text)
        _check_depth(table, source)
        return table
    except ValueError as error:  # also for a number with more digits than Python converts
        raise ConfigError(f"{source}: is not valid TOML: {error}; correct it there") from None
    except RecursionError:
        raise ConfigError(f"{source}: is not valid TOML: brackets are nested too deeply; remove some") from None


def _check_depth(table: dict[str, Any], source: str) -> None:
    """Refuse deeply nested tables: code that walks through them would run out of stack."""
    level: list[Any] = [table]
    for _ in range(_DEEPEST):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    if level:
        raise ConfigError(f"{source}: has tables or lists nested more than {_DEEPEST} deep; remove some")


def block(entries: Mapping[str, object]) -> str:
    """One `key = value` per line."""
    return "".join(f"{key_text(name)} = {literal(value)}\n" for name, value in entries.items())


def literal(value: object) -> str:
    """One value in TOML's notation; a table as an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value) if abs(value) < _PRINTED or not isinstance(value, int) else hex(value)
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(name)} = {literal(entry)}" for name, entry in value.items()) + "}"
    assert isinstance(value, tuple | list)
    return "[" + ", ".join(literal(entry) for entry in value) + "]"


def key_text(name: str) -> str:
    """One part of a key, in quotes where TOML asks for them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else literal(name)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
