"""The threads of BLAS and OpenMP in this process while areabench works: one, unless the user has set another number.

More do not pay: a client's products are small, and runs and ranks share the cores. Another number may round in another
way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from areabench.errors import UserError

VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "openmp": "OMP_NUM_THREADS", "mkl": "MKL_NUM_THREADS"}
_DEFAULTED = "AREABENCH_DEFAULTED"  # where the variables hold already: those that areabench has set, comma-separated


def set_before_numpy(environment: MutableMapping[str, str]) -> None:
    """Set what the user has not set, for this process and its children: BLAS reads it when it is loaded."""
    if "numpy" not in sys.modules and not _hold(environment):
        _set_defaults(environment)


@contextmanager
def limited_threads() -> Iterator[None]:
    """A context, or a decorator, in which each library takes the threads that the user has set, or else one.

    Libraries that are loaded and processes that are started meanwhile read the number from the environment. At the end
    all is as before; a library that was loaded meanwhile gets the number of others of its kind, or of the cores.
    """
    if _hold(os.environ):
        yield
        return
    from threadpoolctl import get_cached_controller  # it looks again where modules were imported since

    limits = {kind: limit_of(kind, os.environ) for kind in VARIABLES}
    controller = get_cached_controller()
    known = {library.filepath: limits.get(library.internal_api, 1) for library in controller.lib_controllers}
    numbers = {library.user_api: library.num_threads for library in controller.lib_controllers}
    before = {name: os.environ.get(name) for name in (*VARIABLES.values(), _DEFAULTED)}
    # Libraries that are loaded from now on, and processes that are started, read the environment.
    unset = _set_defaults(os.environ)
    with controller.limit(limits=known):
        torch_number = _set_torch(limits["openmp"])
        try:
            yield
        finally:
            for library in get_cached_controller().lib_controllers:
                if library.filepath not in known and VARIABLES.get(library.internal_api) in unset:
                    library.set_num_threads(numbers.get(library.user_api) or _cores())
            if torch_number is not None or VARIABLES["openmp"] in unset:
                _set_torch(torch_number or _cores())
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def limit_of(kind: str, environment: Mapping[str, str]) -> int:
    """The threads that a library of this kind, a key of VARIABLES, may take."""
    name = VARIABLES[kind]
    text = environment.get(name) or "1"
    first = text.partition(",")[0]  # OpenMP takes a number per level
    if not first.isdecimal() or int(first) < 1:
        raise UserError(f"{name} = {text!r} is not a whole number >= 1; correct or unset it")
    return int(first)


def threads_in_force(environment: Mapping[str, str]) -> str:
    """The threads of each kind of library, and who has set them: a variable, areabench, or code that it calls."""
    from threadpoolctl import get_cached_controller

    found: dict[str, int] = {}
    for library in get_cached_controller().lib_controllers:
        found[library.internal_api] = max(library.num_threads, found.get(library.internal_api, 0))
    if "torch" in sys.modules:
        found["openmp"] = sys.modules["torch"].get_num_threads()
    texts = []
    for kind, name in VARIABLES.items():
        limit = limit_of(kind, environment)
        given = environment.get(name) and name not in environment.get(_DEFAULTED, "").split(",")
        by = name if given else "areabench"
        if found.setdefault(kind, limit) != limit:
            by = "other code"
        texts.append(f"{kind} {found[kind]} ({by})")
    return ", ".join(texts)


def _hold(environment: Mapping[str, str]) -> bool:
    """Whether all variables are set, and were before the libraries that read them were loaded, or the limits set."""
    return _DEFAULTED in environment and all(environment.get(name) for name in VARIABLES.values())


def _set_defaults(environment: MutableMapping[str, str]) -> list[str]:
    """Set the variables that are not set; returns their names."""
    unset = [name for name in VARIABLES.values() if not environment.get(name)]
    environment.update(dict.fromkeys(unset, "1"), **{_DEFAULTED: ",".join(unset)})
    return unset


def _cores() -> int:
    from areabench.host import own_cores  # every command loads this module

    return len(own_cores())


def _set_torch(number: int) -> int | None:
    """Set the threads of torch, which keeps a number of its own; returns that before, None where it is not loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    before: int = torch.get_num_threads()
    torch.set_num_threads(number)
    return before
