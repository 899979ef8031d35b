"""Who started this process as one of several ranks, by the variables that launchers set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from areabench.errors import UserError
from areabench.mpi_family import Family


@dataclass(frozen=True)
class StartedBy:
    """A launcher, and what it says: how many ranks there are, and which of them this one is."""

    launcher: str
    family: Family | None  # None where it starts ranks of several families
    variable: str
    ranks: int
    rank: int
    fault_tolerant: bool = False  # the death of a rank is to be survived


_FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # what `mpirun --with-ft ulfm` sets for the ranks
_SIGNS = (  # launcher, family, variables of size and rank; the more telling first: srun's are seen under mpirun too
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
            tolerant = environment.get(_FAULT_TOLERANT, "").lower() in ("1", "true", "yes", "on", "enabled")
            return StartedBy(launcher, family, size, int(ranks), int(number) if number.isdecimal() else 0, tolerant)
    return None


def foreign_launcher(started: StartedBy | None, family: Family | None, remedy: Callable[[], str]) -> None:
    """Refuse a launcher of another MPI before MPI starts, which some libraries answer with an abort."""
    if started is not None and family is not None and started.family not in (None, family):
        _refuse(started, f"but mpi4py uses {family}: each of them would be alone", remedy)


def lone_ranks(started: StartedBy | None, world_size: int, remedy: Callable[[], str]) -> None:
    """Refuse ranks that are each alone in a world of one, though their launcher has started several."""
    if started is not None and world_size == 1:
        _refuse(started, "but each of them is alone: launcher and MPI do not know each other", remedy)


def _refuse(started: StartedBy, why: str, remedy: Callable[[], str]) -> None:
    """Raise on the first rank, and end the others without a word: one error is enough."""
    if started.rank > 0:
        raise SystemExit(2)
    says = f"{started.launcher} has started {started.ranks} ranks ({started.variable} = {started.ranks})"
    raise UserError(f"{says}, {why}; {remedy()}; `areabench doctor` tells more")
