"""Values as TOML text: what `tomllib` reads, written again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time

_PRINTED = 10**4000  # larger integers, which hexadecimal notation allows, are not printed by Python


def block(entries: Mapping[str, object]) -> str:
    """One `key = value` a line."""
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
