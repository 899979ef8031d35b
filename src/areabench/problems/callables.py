"""Functions that an experiment names by import path."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from areabench.errors import UserError


def load_callable(path: str, setting: str) -> Callable[..., Any]:
    """What an import path `package.module:function` names; `setting` is the key that holds the path."""
    where, colon, name = path.partition(":")
    if not (where and colon and name):
        raise UserError(f"{setting} = {path!r} is no import path; write `package.module:function`")
    if (here := str(Path.cwd())) not in sys.path:  # as `python -m areabench` has it: the same however it was started
        sys.path.insert(0, here)
    try:
        found: Callable[..., Any] | None = getattr(import_module(where), name, None)
    except (Exception, SystemExit) as error:  # a script that was meant to be run ends by leaving
        raise UserError(
            f"{setting} = {path!r}: importing {where!r} failed ({named(error)}); "
            "correct the path, or put the folder of the package on PYTHONPATH"
        ) from error
    if not callable(found):
        state = "lacks" if found is None else "holds no callable"
        raise UserError(f"{setting} = {path!r}: module {where!r} {state} {name!r}; name a function of that module")
    return found


def named(error: BaseException) -> str:
    """An error of foreign code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
