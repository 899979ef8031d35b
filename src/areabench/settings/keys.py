"""What the records of an experiment are made of: documented keys with limits, and parts that are the user's own.

An own part is a function that a section names by import path, and its settings. Both are plain data here: reading an
experiment imports nothing that it names. `areabench.plugins` calls the functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeGuard

from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.settings.parts import Parts


@dataclass(frozen=True)
class Limits:
    """What a key means and which values it allows: `minimum`/`maximum` inclusive, `above`/`below` exclusive."""

    doc: str
    unit: str = ""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """Whether a number lies within the limits."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def describe(self) -> str:
        """The limits in words; empty if there are none."""
        bounds = [(">=", self.minimum), (">", self.above), ("<=", self.maximum), ("<", self.below)]
        return " and ".join(f"{sign} {bound:.15g}" for sign, bound in bounds if bound is not None)


_NO_DEFAULT: Any = object()


def key(
    doc: str, default: Any = _NO_DEFAULT, *, unit: str = "", written: bool = True, path: bool = False, **bounds: float
) -> Any:
    """One documented key of an experiment file; `bounds` are the numbers of `Limits`, and a `path` may be relative.

    One that is not `written` is left out at its default where an experiment is written as TOML: a key that was added
    later leaves the text of earlier experiments, and with it the names of their run files, as they were.
    """
    return _field(default, {"limits": Limits(doc, unit, **bounds), "written": written, "path": path})


def section(parts: Parts, default: Any = _NO_DEFAULT) -> Any:
    """A section whose `name` chooses one of these parts."""
    return _field(default, {"parts": parts})


def _field(default: Any, metadata: dict[str, Any]) -> Any:
    return field(metadata=metadata) if default is _NO_DEFAULT else field(default=default, metadata=metadata)


Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]

SAMPLE_PATH = "module:function"  # stands for any import path where names are listed


class Settings(Mapping[str, Value]):
    """Keyword arguments of a function, in the order of the file; immutable."""

    def __init__(self, entries: Mapping[str, Value] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, name: str) -> Value:
        """One value."""
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._entries)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)

    def __hash__(self) -> int:
        """Settings are equal in any order."""
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        """Nearly as in TOML."""
        return f"Settings({self._entries!r})"


PASSED = "python"  # stands for the module of an object that Python code has passed


class PythonObject(str):
    """The name of a part that Python code passes as an object, `python:name`, and the function that gives the part."""

    function: Callable[..., Any]

    def __new__(cls, path: str, function: Callable[..., Any] = object) -> PythonObject:
        """The name; the default is for `copy` and `pickle`, which set the function afterwards."""
        made = super().__new__(cls, path)
        made.function = function
        return made


NO_SETTINGS = Settings()
SETTINGS_DOC = "keyword arguments of the function: true, false, numbers, strings, or lists of them"


class Need(NamedTuple):
    """What a part needs of another section."""

    key: str  # dotted, of the experiment
    allowed: tuple[str, ...]
    because: str  # ends "... makes no sense with PART, "


def check_part(experiment: Any, part: Any) -> None:
    """Refuse an experiment that has not what a part `needs`, or that the part's own `check` refuses."""
    for need in getattr(part, "needs", ()):
        section, _, key = need.key.partition(".")
        value = getattr(getattr(experiment, section), key)
        if value not in need.allowed:
            allowed = " or ".join(f'"{each}"' for each in need.allowed)
            raise UserError(f'{need.key}: "{value}" makes no sense with {part.name}, {need.because}; use {allowed}')
    # what data cannot say
    if hasattr(part, "check"):
        part.check(experiment)


class OwnPart(Protocol):
    """A part of the user's own, which is executed: the import path of a function, and its settings."""

    section: ClassVar[str]  # that names it
    base: ClassVar[type]  # of the settings of such parts
    given: ClassVar[tuple[str, ...]]  # what the function may take in addition to its settings, by name

    @property
    def name(self) -> str:
        """The import path."""
        ...

    @property
    def settings(self) -> Settings:
        """The function's keyword arguments."""
        ...


def is_own(part: object) -> TypeGuard[OwnPart]:
    """Whether a part of an experiment is the user's own."""
    return bool(getattr(part, "own", False))


def is_import_path(text: object) -> bool:
    """Whether a text is `module:function`, with valid Python names."""
    if not isinstance(text, str) or text.count(":") != 1:
        return False
    module, _, function = text.partition(":")
    return function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def slug(name: str) -> str:
    """The name of a part, as it appears in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", ".", name)[:80]
