"""What the scripts of all schedulers have in common: surroundings, and the command that does the work."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.jobs.request import Request
from areabench.jobs.words import MPIRUN, OPEN_MPI
from areabench.jobs.work import Work
from areabench.sweeps.run import MPI

WARNING_S = 60  # between the signal at which a run writes its checkpoint and stops, and the end of the walltime


@dataclass(frozen=True)
class Words:
    """What a scheduler calls things."""

    submit: str  # the command that takes a script
    folder: str  # the variable with the folder of the submission
    task: str  # the variable with the number of an array's task
    launcher: str  # starts the ranks, with everything that it needs
    cores: str  # cores of a job in the simulator, as a number or a variable
    warned: str = ""  # before the command of a single run: sees to it that it is warned before the walltime ends
    warning: tuple[str, ...] = ()  # lines that `warned` needs


def head(request: Request, work: Work, words: Words) -> list[str]:
    """What the script is."""
    file = _plain(request.file)
    what = f"The sweep {file}, {work.runs:,} runs" if work.sweep else f"One run of {file}"
    if request.array is not None:
        what += f", divided among {request.array} tasks, each"
    else:
        what += ","
    if request.transport != MPI:
        where = f"in the simulator, on {request.cores} cores."
    else:
        workers = f"{work.ranks - 1} worker rank{'s' * (work.ranks != 2)}"
        clients = f"up to {request.clients_per_rank} clients" if request.clients_per_rank > 1 else "one client"
        where = f"on {work.ranks} MPI ranks: the server, and {workers} of {clients} each."
    return [
        "#!/bin/bash",
        *comment(f"{what} {where}"),
        *comment(f"Submit it with `{words.submit} FILE` in the folder that the paths below start at."),
    ]


def placement(request: Request) -> list[str]:
    """Where the ranks are."""
    where = "Each rank has a core of its own, the server too: it is rank 0, the first one on the first node."
    return comment(where) if request.transport == MPI else []


def warned_after_s(request: Request, work: Work) -> int:
    """When a run is told to stop, in seconds: a minute before the walltime ends, for a short one at half of it."""
    hours, minutes, seconds = map(int, walltime(request, work).split(":"))
    limit_s = 3600 * hours + 60 * minutes + seconds
    return max(limit_s - WARNING_S, limit_s // 2)


def walltime(request: Request, work: Work) -> str:
    """The walltime as HH:MM:SS, rounded up to minutes."""
    minutes = math.ceil(work.walltime_s / 60)
    return request.walltime or f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def comment(text: str) -> list[str]:
    """A comment in lines of a bearable length."""
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def body(request: Request, work: Work, words: Words) -> list[str]:
    """Everything below the directives."""
    lines = ["", f'cd "${words.folder}" || exit 1', *_surroundings(request)]
    return [*lines, *(_sweep(request, work, words) if work.sweep else _run(request, work, words))]


def _surroundings(request: Request) -> list[str]:
    site = request.site
    lines = [f"module load {shlex.quote(module)} || exit 1" for module in site.modules]
    if site.venv is not None:
        lines.append(f"source {shlex.quote(str(site.venv / 'bin' / 'activate'))} || exit 1")
    return [
        *lines,
        "set -euo pipefail  # not before: the files of modules may use what is not set",
        "export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1  # one thread a rank",
        'areabench="$(command -v areabench)"',
        "",
    ]


def _sweep(request: Request, work: Work, words: Words) -> list[str]:
    """Runs that are done are not done again, so the same command begins the sweep and goes on with it."""
    options = ["--transport", "mpi", "--on-ranks"] if request.transport == MPI else []
    trials = [] if request.trials is None else ["--trials", str(request.trials)]
    typed = ["sweep", str(request.file), *_overrides(request), *trials, *options, "--output", str(work.output)]
    line = f'"$areabench" {shlex.join(typed)} --progress never'
    if request.transport != MPI:
        line += f" --jobs {words.cores}"
    if request.array is not None:
        line += f' --share "${words.task}/{request.array}"'
    return [
        "# A job that is started again goes on: runs that are done are not done again.",
        _launched(request, words) + line,
    ]


def _run(request: Request, work: Work, words: Words) -> list[str]:
    """One run; a job that is started again keeps what is there."""
    typed = shlex.join([str(request.file), *_overrides(request)])
    command = "run" if request.transport == MPI else "simulate"
    resumed = ["resume", '"$run_file"', work.trust]
    kept = '"${run_file%.h5}.incomplete-$(date +%Y%m%d-%H%M%S).h5"'
    return [
        f"run_file={shlex.quote(str(work.output))}",
        f'task=({command} {typed} --output "$run_file")',
        "",
        *comment(
            "A job that is started again does not repeat a run that has ended, and goes on with one that has a "
            "checkpoint; one without is kept, and begun anew."
        ),
        'if [ -e "$run_file" ]; then',
        "  status=0",
        f'  "$areabench" check {typed} --ended-in "$run_file" || status=$?',
        '  case "$status" in',
        "    0) exit 0 ;;",
        f'    1) mv -v -- "$run_file" {kept}; rm -f -- "$run_file.checkpoint" ;;',
        f"    4) task=({' '.join(filter(None, resumed))}) ;;",
        '    *) exit "$status" ;;',
        "  esac",
        "fi",
        "",
        *words.warning,
        f'{_launched(request, words, words.warned)}"$areabench" "${{task[@]}}" --progress never',
    ]


def _launched(request: Request, words: Words, warned: str = "") -> str:
    """What comes before areabench; a launcher may have lines of its own before it, which stay in front."""
    *lines, launcher = words.launcher.split("\n")
    return "\n".join([*lines, f"{warned}{launcher} \\\n  "]) if request.transport == MPI else warned


def _overrides(request: Request) -> list[str]:
    return [word for override in request.overrides for word in ("--set", override)]


def mpirun(request: Request, work: Work, hosts: Sequence[str] = ()) -> str:
    """The start of an mpirun command that gives each rank a core."""
    open_mpi = request.site.mpi == OPEN_MPI
    binding = ["--map-by", "core", "--bind-to", "core"] if open_mpi else ["-bind-to", "core"]
    return " ".join([MPIRUN, *hosts, "-n", str(work.ranks), *binding])


def _plain(path: Path) -> str:
    """A path in a comment, which ends with its line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))
