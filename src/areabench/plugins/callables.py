"""Functions that an experiment names by import path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from areabench.errors import UserError
from areabench.settings.keys import PASSED, PythonObject

# A file from anybody may name all that they hold: it may be called with tensors.
BUILT_IN_MODULES = ("areabench.problems.examples", "torch.nn.functional")


@contextmanager
def installed_only() -> Iterator[None]:
    """A context in which imports find what is installed, and nothing that lies in the current folder."""
    before = sys.path[:]
    here = Path.cwd().resolve()
    sys.path[:] = [each for each in before if Path(each).resolve() != here]  # an empty entry is the current folder
    try:
        yield
    finally:
        sys.path[:] = before


def look_in(folders: Sequence[str]) -> None:
    """Search modules in these folders first, then in the current one, then on Python's path."""
    first = list(dict.fromkeys([*folders, str(Path.cwd())]))
    sys.path[:] = [*first, *(each for each in sys.path if each not in first)]
    importlib.invalidate_caches()  # a file may have been written just before


def load_callable(path: str, setting: str) -> Callable[..., Any]:
    """The function that an import path `package.module:function` names; `setting` is the key of the path."""
    if isinstance(path, PythonObject):
        return path.function
    where, colon, name = path.partition(":")
    if where == PASSED:
        raise UserError(
            f"{setting} = {path!r}: is an object that Python code has passed; pass it again, as "
            f"{setting.partition('.')[0]}=..., to the function of areabench that is to use it"
        )
    if not (where and colon and name):
        raise UserError(f"{setting} = {path!r} is not an import path; write `package.module:function`")
    built_in = where in BUILT_IN_MODULES
    if not built_in and (here := str(Path.cwd())) not in sys.path:  # however areabench was started
        sys.path.insert(0, here)
    try:
        with installed_only() if built_in else nullcontext():
            module = importlib.import_module(where)
        found: Callable[..., Any] | None = getattr(module, name, None)
    except (Exception, SystemExit) as error:  # a script may end with sys.exit
        raise UserError(
            f"{setting} = {path!r}: importing {where!r} failed ({named(error)}{place_in(error, where)}); "
            "correct the path, put the module beside the experiment file, or its folder on PYTHONPATH"
        ) from error
    if not built_in:
        _check_not_hidden(module, f"{setting} = {path!r}")
    if not callable(found):
        state = "lacks" if found is None else "holds no callable"
        raise UserError(f"{setting} = {path!r}: module {where!r} {state} {name!r}; name a function of that module")
    return found


def _check_not_hidden(module: ModuleType, words: str) -> None:
    """Refuse a module that Python has loaded in place of the one that the search finds first."""
    top = sys.modules[module.__name__.partition(".")[0]]
    spec = PathFinder.find_spec(top.__name__)
    found = getattr(top, "__file__", None)
    if spec is None or spec.origin is None or (found and Path(found).resolve() == Path(spec.origin).resolve()):
        return
    raise UserError(
        f"{words}: {spec.origin} is hidden by another module {top.__name__!r}, {found or 'which is part of Python'}; "
        "rename yours"
    )


def place_in(error: BaseException, *modules: str) -> str:
    """Where in one of these modules an error was raised: ` at FILE, line 7`; empty if elsewhere."""
    files = {file_of(name) for name in modules}
    place = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files or trace.tb_frame.f_globals.get("__name__") in modules:
            place = f" at {Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def file_of(module: str) -> str | None:
    """The file that a module was loaded from."""
    return getattr(sys.modules.get(module), "__file__", None)


def named(error: BaseException) -> str:
    """An error of the user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
