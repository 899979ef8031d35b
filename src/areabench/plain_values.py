"""Single values of an experiment file: checked against a type and limits, or plain values of any type."""

from __future__ import annotations

import math
import re
from typing import Any

from areabench.keys import Limits
from areabench.outside_settings import Scalar, Settings, Value
from areabench.place import Place, shown

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and bytes that are no text


def read_scalar(kind: Any, value: Any, place: Place, limits: Limits) -> Any:
    """A bool, whole number, number or string of the right type and within its limits."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    allowed = " ".join(part for part in (words[kind], limits.describe(), limits.unit) if part)
    if kind is float and type(value) is int:
        value = _widen(value, place, allowed)
    if type(value) is not kind:
        raise place.error(f"{shown(value)} is not {allowed}")
    if kind is float and not math.isfinite(value):
        raise place.error(f"{value} is not finite; allowed is {allowed}")
    if kind in (int, float) and not limits.allow(value):
        raise place.error(f"{shown(value)} is out of range; allowed is {allowed}")
    if kind is int and abs(value) >= 2**63:
        raise place.error(f"{shown(value)} does not fit 64 bits; allowed is {allowed}")
    if kind is str and (not value or _FORBIDDEN.search(value)):
        raise place.error(f"{shown(value)} is empty or has control characters; allowed is a line of text")
    return value


def _widen(value: int, place: Place, allowed: str) -> float:
    """A whole number where a number is meant."""
    try:
        return float(value)
    except OverflowError:
        raise place.error(f"{shown(value)} is too large; allowed is {allowed} below 1.8e308") from None


def read_settings(table: Any, place: Place) -> Settings:
    """Keyword arguments of a function that is not known yet: plain values of any type."""
    if not isinstance(table, dict):
        raise place.error(f"{shown(table)} is a value; write a table, {{ name = value }}")
    return Settings({name: _read_setting(name, value, place.inner(name)) for name, value in table.items()})


def _read_setting(name: str, value: Any, place: Place) -> Value:
    if not name.isidentifier():
        raise place.error(f"{shown(name)} cannot be the name of an argument; use letters, digits and '_'")
    if isinstance(value, list):
        return tuple(_read_plain(entry, place.inner(str(index))) for index, entry in enumerate(value))
    return _read_plain(value, place)


def _read_plain(value: Any, place: Place) -> Scalar:
    if type(value) not in (bool, int, float, str):
        raise place.error(f"{shown(value)} is not allowed; allowed are true, false, numbers, strings and lists of them")
    plain: Scalar = value if value == "" else read_scalar(type(value), value, place, Limits(""))
    return plain
