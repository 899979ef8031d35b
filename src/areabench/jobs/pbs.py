"""Scripts for PBS: PBS Professional and OpenPBS."""

from __future__ import annotations

import re

from areabench.jobs.request import Request
from areabench.jobs.script import Words, body, comment, head, mpirun, placement, walltime, warned_after_s
from areabench.jobs.words import OPEN_MPI
from areabench.jobs.work import Work
from areabench.sweeps.run import MPI

_LONGEST_NAME = 15  # characters; newer versions take more


def pbs_script(request: Request, work: Work) -> str:
    """The whole script."""
    hosts = ["--hostfile" if request.site.mpi == OPEN_MPI else "-f", '"$PBS_NODEFILE"']
    warned = f"timeout --foreground --preserve-status --signal=USR1 {warned_after_s(request, work)} \\\n"
    warning = ("# PBS does not warn: a run is told to stop while there is time for its checkpoint.",)
    launcher = mpirun(request, work, hosts)
    words = Words("qsub", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX", launcher, str(request.cores), warned, warning)
    lines = [
        *head(request, work, words),
        "#PBS -S /bin/bash",
        f"#PBS -N {_name(work)}",
        *placement(request),
        f"#PBS -l select={_chunks(request, work)}",
        f"#PBS -l place=scatter{':excl' * request.site.exclusive}",
        *([] if request.array is None else [f"#PBS -J 1-{request.array}"]),
        *comment(f"Walltime: {work.formula}."),
        f"#PBS -l walltime={walltime(request, work)}",
        *([] if request.site.account is None else [f"#PBS -A {request.site.account}"]),
        *([] if request.site.queue is None else [f"#PBS -q {request.site.queue}"]),
        "#PBS -r y",
        "#PBS -j oe",
        *body(request, work, words),
    ]
    return "\n".join(lines) + "\n"


def _name(work: Work) -> str:
    """A name that PBS takes: short, and beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)
    return (name if name[:1].isalpha() else f"job-{name}")[:_LONGEST_NAME]


def _chunks(request: Request, work: Work) -> str:
    """The ranks spread evenly over the nodes, the first ones with one more where that does not come out even."""
    if request.transport != MPI:
        return _chunk(1, request.cores, request, mpiprocs=False)
    each, more = divmod(work.ranks, request.nodes)
    chunks = [(more, each + 1), (request.nodes - more, each)]
    return "+".join(_chunk(nodes, ranks, request, mpiprocs=True) for nodes, ranks in chunks if nodes)


def _chunk(nodes: int, cores: int, request: Request, *, mpiprocs: bool) -> str:
    memory_mb = request.site.memory_mb
    words = [str(nodes), f"ncpus={cores}", *([f"mpiprocs={cores}"] if mpiprocs else [])]
    return ":".join([*words, *([] if memory_mb is None else [f"mem={memory_mb * cores}mb"])])
