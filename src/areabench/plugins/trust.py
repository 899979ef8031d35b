"""Which code of a run file may be called: it names functions by import path, and may come from anybody.

An experiment file is the user's own and is run as it is. A function that a run file names is imported only if it is
part of areabench or of torch, or if the user names it too, with `--trust-module`: by import path, or by its file. The
module folders that a run file names are never searched.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.errors import UserError
from areabench.plugins.callables import BUILT_IN_MODULES
from areabench.plugins.paths import lies_in, named_code
from areabench.settings.keys import PASSED, PythonObject

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment

OPTION = "--trust-module"


def check_trusted(experiment: Experiment, source: Path, trusted: Sequence[str] = ()) -> None:
    """A UserError if the experiment of run file `source` names code that is not among the `trusted` paths and files."""
    unknown = unvouched(experiment, trusted)
    if passed := [path for path in unknown if path.startswith(f"{PASSED}:")]:
        raise UserError(
            f"{source}: was made with {', '.join(map(repr, passed))}, which Python code had passed as objects; pass "
            "them again, to areabench.replay(RUN, method=..., problem=..., data=..., split=..., delays=...), "
            "areabench.resume or areabench.evaluate"
        )
    if unknown:
        raise UserError(
            f"{source}: would import and call {', '.join(map(repr, unknown))}, which this run file names; if you "
            f"trust that code, add {trust_options(experiment, trusted)}"
        )
    for each in trusted:
        if (file := trusted_file(each)) is not None and not file.is_file():
            raise UserError(
                f"{OPTION} {each}: there is no such file; give the path of a module (.py), or module:function"
            )


def trusted_file(trusted: str) -> Path | None:
    """The file that `--trust-module` names; None where it names an import path."""
    return Path(trusted).absolute() if trusted.endswith(".py") else None


def trusted_folders(trusted: Sequence[str]) -> tuple[str, ...]:
    """The folders of the files that the user trusts; folders that a run file names are not trusted."""
    files = [trusted_file(each) for each in trusted]
    return tuple(dict.fromkeys(str(file.parent) for file in files if file is not None))


def unvouched(experiment: Experiment, trusted: Sequence[str] = ()) -> list[str]:
    """The import paths of an experiment that are neither built in nor trusted."""
    return [path for path in named_code(experiment) if not _is_trusted(path, trusted)]


def trust_options(experiment: Experiment, trusted: Sequence[str] = ()) -> str:
    """The options, quoted for a shell, that trust the rest of what an experiment names; empty if nothing is left."""
    folders = experiment.module_folders or ()
    return " ".join(dict.fromkeys(_remedy(path, folders) for path in unvouched(experiment, trusted)))


def command_on(command: str, path: Path, experiment: Experiment) -> str:
    """`areabench COMMAND` on a run file, quoted for a shell, with the options that trust its code."""
    return " ".join(filter(None, ["areabench", command, shlex.quote(str(path)), trust_options(experiment)]))


def unevaluated_text(reason: str, path: Path, experiment: Experiment) -> str:
    """What to say of a run that has ended and has no metrics: why, and how to try again."""
    again = command_on("evaluate", path, experiment)
    return f"its evaluation failed ({reason}), so it has no metrics; to try again: {again}"


def _remedy(path: str, folders: Sequence[str]) -> str:
    """The option that would trust it: by its file if that is in a folder that the run file names."""
    name = path.partition(":")[0]
    found = [Path(folder) / f"{name}.py" for folder in folders if lies_in(path, Path(folder))]
    files = [os.path.relpath(file) for file in found if file.is_file()]
    return f"{OPTION} {shlex.quote(files[0] if files else path)}"


def _is_trusted(path: str, trusted: Sequence[str]) -> bool:
    if isinstance(path, PythonObject):
        return True
    module = path.partition(":")[0]
    files = [trusted_file(each) for each in trusted]
    return path in trusted or module in BUILT_IN_MODULES or module in [file.stem for file in files if file is not None]
