"""What the ranks of this machine need of it before mpirun starts: descriptors, and memory that they share."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from areabench.errors import UserError

SHARED = Path("/dev/shm")  # where the ranks of a node meet
LEAST_SHARED_BYTES = 32e6  # Open MPI wants 17 MB free for each rank in turn, MPICH 25 MB for three ranks
_BACKING = "OMPI_MCA_btl_sm_backing_directory"  # where Open MPI puts shared memory instead
_OWN_DESCRIPTORS, _DESCRIPTORS_PER_RANK = 24, 4  # of mpirun; measured: 21 + 4 per rank (Open MPI), 24 + 3 (MPICH)


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


def check_limits(ranks: int, environment: Mapping[str, str]) -> None:
    """Refuse to start ranks that this machine cannot carry: MPI would say so in pages, or crash."""
    for trouble, remedy in (few_descriptors(ranks), little_shared_memory(environment)):
        if trouble:
            raise UserError(f"{trouble}; {remedy}")
