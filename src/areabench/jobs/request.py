"""What is asked of a job script, and what is not allowed in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from areabench.errors import UserError
from areabench.jobs.words import OPEN_MPI, PBS, SLURM, SRUN
from areabench.sweeps.run import MPI

_WORD = re.compile(r"[A-Za-z0-9_.,:@/+=-]+")


@dataclass(frozen=True)
class Site:
    """The cluster: what is loaded there, how ranks are started, and what the scheduler wants to know."""

    modules: tuple[str, ...] = ()
    venv: Path | None = None  # activated in the job; None where `areabench` is on the path
    launcher: str = SRUN
    mpi: str = OPEN_MPI  # or what behaves like MPICH
    account: str | None = None
    queue: str | None = None  # Slurm's partition
    memory_mb: int | None = None  # a core
    exclusive: bool = False  # no other jobs on the nodes


@dataclass(frozen=True)
class Request:
    """One job: what it runs, and on how much."""

    file: Path
    overrides: tuple[str, ...] = ()
    trials: int | None = None
    runs: Path | None = None  # run file, or folder of the sweep; None for the usual one
    transport: str = MPI
    scheduler: str = SLURM
    nodes: int = 1
    clients_per_rank: int = 1
    cores: int = 4  # of a job in the simulator
    array: int | None = None  # tasks that share a sweep
    walltime: str | None = None  # HH:MM:SS; None for the estimate
    site: Site = Site()


def check_request(request: Request) -> None:
    """Refuse what no scheduler could make sense of."""
    site = request.site
    for option in fields(Site):
        value = getattr(site, option.name)
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and not _WORD.fullmatch(word):
                name = "partition" if option.name == "queue" else option.name.removesuffix("s")
                raise UserError(f"--{name} {word!r}: letters, digits and _.,:@/+=- are allowed; leave out all others")
    if request.scheduler == PBS and site.launcher == SRUN:
        raise UserError("--launcher srun: PBS has no srun; use --launcher mpirun")
    if request.transport != MPI and request.nodes > 1:
        raise UserError(
            f"--nodes {request.nodes}: a job in the simulator has one node; divide a sweep over several with --array"
        )
    if request.walltime is not None and not re.fullmatch(r"\d{2,4}:[0-5]\d:[0-5]\d", request.walltime, re.ASCII):
        raise UserError(f"--walltime {request.walltime}: is not of the form HH:MM:SS; two hours are 02:00:00")
