"""What `areabench job` does, once argv and the environment have been read."""

from __future__ import annotations

from pathlib import Path

from areabench.errors import UserError
from areabench.jobs.pbs import pbs_script
from areabench.jobs.request import Request, check_request
from areabench.jobs.slurm import slurm_script
from areabench.jobs.words import MPICH, OPEN_MPI, SLURM
from areabench.jobs.work import work_of
from areabench.launch import ask_launcher, find_mpirun
from areabench.mpi_family import Family, mpi4py_family
from areabench.surroundings import refuse_existing


def job(request: Request, output: Path | None, *, force: bool) -> int:
    """Print a job script, or write it to a file."""
    check_request(request)
    work = work_of(request)
    script = slurm_script(request, work) if request.scheduler == SLURM else pbs_script(request, work)
    if output is None:
        print(script, end="")
        return 0
    refuse_existing(output, force=force)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(script, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}; choose another file") from error
    print(f"{output}: submit it with {'sbatch' if request.scheduler == SLURM else 'qsub'} {output}")
    return 0


def mpi_at_hand() -> str:
    """The MPI that mpi4py uses here, or else that of the mpirun."""
    try:
        family = mpi4py_family() or ask_launcher(find_mpirun()).family
    except UserError as error:
        raise UserError(
            f"--mpi: cannot be told by the mpirun here: {error}; or give --mpi openmpi or --mpi mpich"
        ) from error
    return MPICH if family == Family.MPICH else OPEN_MPI
