"""Scripts for Slurm."""

from __future__ import annotations

import re

from areabench.jobs.request import Request
from areabench.jobs.script import WARNING_S, Words, body, comment, head, mpirun, placement, walltime
from areabench.jobs.words import MPICH, SRUN
from areabench.jobs.work import Work
from areabench.sweeps.run import MPI


def slurm_script(request: Request, work: Work) -> str:
    """The whole script."""
    launcher, cores = _launcher(request, work), '"$SLURM_CPUS_PER_TASK"'
    warned, warning = ("", ()) if _by_srun(request) else ("passing_on \\\n", _PASSING_ON)
    words = Words("sbatch", "SLURM_SUBMIT_DIR", "SLURM_ARRAY_TASK_ID", launcher, cores, warned, warning)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", work.name)
    lines = [
        *head(request, work, words),
        _directive("job-name", name),
        *placement(request),
        *_resources(request, work),
        *comment(f"Walltime: {work.formula}."),
        _directive("time", walltime(request, work)),
        *_site(request),
        *([] if work.sweep else _warning(request)),
        "#SBATCH --requeue",
        _directive("open-mode", "append"),
        _directive("output", "%x-%A_%a.out" if request.array is not None else "%x-%j.out"),
        *body(request, work, words),
    ]
    return "\n".join(lines) + "\n"


def _directive(name: str, value: object) -> str:
    return f"#SBATCH --{name}={value}"


def _resources(request: Request, work: Work) -> list[str]:
    nodes = request.nodes
    lines = [_directive("nodes", nodes)]
    if request.transport != MPI:
        lines += [_directive("ntasks", 1), _directive("cpus-per-task", request.cores)]
    else:
        lines.append(_directive("ntasks", work.ranks))
        lines += [_directive("ntasks-per-node", -(-work.ranks // nodes))] if nodes > 1 else []
        lines.append(_directive("cpus-per-task", 1))
    lines.append(_directive("threads-per-core", 1))
    if request.array is not None:
        lines.append(_directive("array", f"1-{request.array}"))
    return lines


def _site(request: Request) -> list[str]:
    site = request.site
    lines = [] if site.account is None else [_directive("account", site.account)]
    lines += [] if site.queue is None else [_directive("partition", site.queue)]
    lines += [] if site.memory_mb is None else [_directive("mem-per-cpu", f"{site.memory_mb}M")]
    return [*lines, "#SBATCH --exclusive"] if site.exclusive else lines


def _warning(request: Request) -> list[str]:
    """The signal before the walltime ends: to the tasks of srun, else to the script, which passes it on."""
    whom = "" if _by_srun(request) else "B:"
    return [
        *comment("A minute before the walltime ends the run is told to write a checkpoint and stop (exit code 4)."),
        _directive("signal", f"{whom}USR1@{WARNING_S}"),
    ]


def _by_srun(request: Request) -> bool:
    return request.transport == MPI and request.site.launcher == SRUN


def _launcher(request: Request, work: Work) -> str:
    """Ranks find each other through PMIx in Open MPI, and through PMI-2 in MPICH."""
    if request.site.launcher != SRUN:
        return mpirun(request, work)
    bound = "--cpu-bind=cores --distribution=block:block --kill-on-bad-exit=1"
    return f"{_FRESH_STEP}srun --mpi=pmi2 {bound}" if request.site.mpi == MPICH else f"srun --mpi=pmix {bound}"


# MPICH names shared memory after job and step, and would wait for ever in what a killed start of the job has left.
_FRESH_STEP = """\
# Each restart of the job takes a step of another number, away from shared memory that the last one left.
for ((restart = 0; restart < ${SLURM_RESTART_COUNT:-0}; restart++)); do srun --ntasks=1 true; done
"""

# A shell hears a signal only when its command has ended, unless it waits for one in the background.
_PASSING_ON = (
    "# Runs a command, and passes on the signal that comes before the walltime ends.",
    "passing_on() {",
    '  local process="" warned="" status=0',
    "  trap 'warned=yes; kill -USR1 $process 2>/dev/null || true' USR1",
    '  "$@" &',
    "  process=$!",
    '  [ -z "$warned" ] || kill -USR1 "$process"  # it came before there was anything to pass it on to',
    '  wait "$process" || status=$?  # a signal ends the waiting',
    '  while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done',
    '  ((status < 128)) || { status=0; wait "$process" || status=$?; }',
    '  return "$status"',
    "}",
    "",
)
