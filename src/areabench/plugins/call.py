"""The functions that an experiment names: found, held against their settings, and called."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from areabench.errors import RunFailure, UserError
from areabench.plugins.callables import load_callable, look_in, named, place_in
from areabench.plugins.paths import user_functions
from areabench.settings.keys import OwnPart, Value, check_part
from areabench.settings.parse import Location, read_record, shown, unknown

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment

DRY_RUN = "failed in a dry run"
CONTRACT = "see docs/extending.md"


def arguments_of(part: OwnPart) -> dict[str, Any]:
    """The settings of a part as the function gets them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in part.settings.items()}


def record_of(part: OwnPart) -> Any:
    """The user's own settings record that a section names, made of the section's settings; None for a function.

    It is what a part of the package has: a frozen dataclass with keys, needs and a `build`, of the same base.
    """
    found: Any = load_callable(part.name, f"{part.section}.name")
    if not isinstance(found, type) or not issubclass(found, part.base):
        return None
    if not is_dataclass(found):
        refuse(part, "is a class that is no dataclass", "put @dataclass(frozen=True, kw_only=True) before it")
    table = arguments_of(part)
    shared = {item.name for item in fields(found)} & {"step_size", "per"}  # keys of the section itself
    table |= {name: getattr(part, name) for name in shared if hasattr(part, name)}
    return read_record(found, table, Location(part.name, (), f"{part.section}.settings"))


def caller(part: OwnPart, missing: Collection[str] = ()) -> Callable[..., Any]:
    """The function that a section names, found and checked; it takes what areabench gives, except `missing`."""
    function = load_callable(part.name, f"{part.section}.name")
    parameters = check_signature(part, function, missing)

    def called(**given: Any) -> Any:
        wanted = {name: value for name, value in given.items() if name in parameters or _takes_all(parameters)}
        settings = arguments_of(part)
        with blaming(part):
            return function(**wanted, **settings)

    return called


def call(part: OwnPart, **given: Any) -> Any:
    """Call the function that a section names with those of `given` that it takes, and with its settings."""
    return caller(part, set(part.given) - set(given))(**given)


@contextmanager
def blaming(part: OwnPart, what: str = "failed") -> Iterator[None]:
    """Turn whatever the user's code raises into one line that says where."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (UserError, MemoryError):
        raise
    except RunFailure as failure:
        raise UserError(str(failure)) from failure
    except (Exception, SystemExit) as error:
        where = place_in(error, part.name.partition(":")[0])
        refuse(part, f"{what} ({named(error)}{where})", "correct it, or its settings")


def refuse(part: OwnPart, trouble: str, remedy: str) -> NoReturn:
    """A UserError about the user's function, or about what it returned."""
    raise UserError(f"{part.section}.name = {part.name!r} {trouble}; {remedy}")


# ---------------------------------------------------------------------------------------------------- experiments


def check_parts(experiment: Experiment, folders: Sequence[str] = ()) -> None:
    """Import what an experiment names: a record is checked as those of the package, a function by its signature."""
    parts = user_functions(experiment)
    if parts:
        look_in(folders)
    for section, part in parts.items():
        missing = ("data", "parts") if section == "problem" and experiment.data is None else ()
        if (record := record_of(part)) is not None:
            check_part(experiment, record)
        else:
            check_signature(part, load_callable(part.name, f"{section}.name"), missing)


def exit_failure(error: SystemExit, experiment: Experiment) -> RunFailure:
    """The failure of a run whose own code has called sys.exit, whatever the code: a part must not end a run so."""
    own = user_functions(experiment).items()
    places = {f"{section}.name = {part.name!r}": place_in(error, part.name.partition(":")[0]) for section, part in own}
    blamed = [part for part, place in places.items() if place]
    where = next(filter(None, places.values()), "")
    who = " or ".join(blamed) or "the code of this experiment"
    return RunFailure(f"{who} called sys.exit({error.code!r}){where}; let it return, or raise an error")


# ---------------------------------------------------------------------------------------------------- signature


def check_signature(
    part: OwnPart, function: Callable[..., Any], missing: Collection[str]
) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function that can be called with its settings; `missing` are not given this time."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # some functions that are written in C
        refuse(part, "has no signature that Python knows", "wrap it in a Python function")
    _check_settings(part, parameters)
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            refuse(part, f"takes {name!r} by position only", "let it be given by name")
        if name in missing:
            refuse(part, f"takes {name!r}, which is for experiments with data", "add a section [data]")
        if name not in part.given and name not in part.settings:
            raise UserError(
                f"{part.section}.settings.{name}: is missing, {part.name!r} has no default for it; add it to the "
                "settings"
            )
    hints = _type_hints(function)
    for name, value in part.settings.items():
        _check_type(f"{part.section}.settings.{name}", value, hints.get(name))
    return parameters


def _check_settings(part: OwnPart, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Every setting must be a parameter of the function, and none that areabench gives."""
    # a parameter that is positional only, or takes what is left over, cannot be named in the settings
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, each in parameters.items() if name not in part.given and each.kind in by_name]
    for name in part.settings:
        if name in part.given:
            raise UserError(f"{part.section}.settings.{name}: areabench gives it to {part.name!r} itself; leave it out")
        if name not in known and not _takes_all(parameters):
            raise UserError(f"{part.section}.settings.{name}: {unknown(f'setting of {part.name}', name, known)}")


def _takes_all(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a function has `**keywords`."""
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function; none if they cannot be evaluated."""
    try:
        return get_type_hints(function)
    except Exception:  # names that only a type checker knows, or anything else: then nothing is checked
        return {}


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
_LISTS = (list, tuple, Sequence)


def _check_type(key: str, value: Value, kind: Any) -> None:
    """Check a value against an annotation that is a plain type, a list of one, or a choice of such."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if not any(_fits(value, option) for option in options):
        names = " or ".join(_type_name(option) for option in options if option is not type(None))
        raise UserError(
            f"{key}: {shown(list(value) if isinstance(value, tuple) else value)} is not {names}; correct it"
        )


def _fits(value: Value, kind: Any) -> bool:
    if any(kind is plain for plain in _TYPE_NAMES):  # not `in`: an annotation may be anything, also unhashable
        return type(value) is kind or (kind is float and type(value) is int)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if (get_origin(kind) or kind) in _LISTS:
        entry = next(iter(get_args(kind)), None)
        return isinstance(value, tuple) and all(_fits(each, entry) for each in value)
    return kind is not type(None)  # nothing is known of any other type


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    return _TYPE_NAMES.get(kind) or ("a list" if (get_origin(kind) or kind) in _LISTS else str(kind))
