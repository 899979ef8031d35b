"""The command lines of the campaign, and the environment that they run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.campaign.cases import Case
from benchmarks.campaign.defects import MODULE
from benchmarks.campaign.kinds import MPI, SIMULATOR, Act
from benchmarks.campaign.processes import TOKEN, Ended, Started, new_token, start

import areabench
from areabench.errors import UserError
from areabench.launching.families import MPI_DEFAULTS, ONE_MACHINE
from areabench.launching.mpirun import rank_command

CHECKPOINT_EVERY_S = {MPI: 0.5, SIMULATOR: 0.2}
LIMIT_S = 120.0  # for one command; then it counts as hung
ULFM = ("--with-ft", "ulfm")
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Room:
    """The folder of a case, with its run file and a token of its own."""

    folder: Path
    token: str
    run_file: Path

    @property
    def experiment(self) -> Path:
        """The experiment file."""
        return self.folder / "experiment.toml"

    @property
    def reference(self) -> Path:
        """The run file of a run of the same experiment that nothing happened to."""
        return self.folder / "reference.h5"

    @property
    def cache(self) -> Path:
        """The folder of unpacked data."""
        return self.folder / "cache"

    @property
    def checkpoint(self) -> Path:
        """The run file's checkpoint."""
        return self.run_file.with_name(self.run_file.name + ".checkpoint")

    def begin(self, command: Sequence[str], name: str) -> Started:
        """Start a command; its output goes to files of this name."""
        return start(command, self.folder, name, _environment(self))

    def call(self, name: str, *words: str) -> Ended:
        """Run `areabench WORDS` to its end."""
        return self.begin([sys.executable, "-m", "areabench", *words], name).end(LIMIT_S)


def run_command(case: Case, room: Room) -> list[str]:
    """The command that runs a case."""
    every = f"{CHECKPOINT_EVERY_S[case.kind.transport]:g}"
    rest = [str(room.experiment), "--output", str(room.run_file), "--checkpoint-every", every]
    module = MODULE if case.kind.act is Act.DEFECT else "areabench"
    if case.kind.transport == SIMULATOR:
        return [sys.executable, "-m", module, "simulate", *rest]
    if case.kind.launch:
        return [sys.executable, "-m", module, "launch", *rest]
    return rank_command(case.ranks, ["-m", module, "run", *rest], ULFM if case.kind.ulfm else ())


def _environment(room: Room) -> dict[str, str]:
    """This one, with this areabench and the folder's modules to import from, and the token."""
    package = Path(areabench.__file__).parents[1]
    paths = [str(room.folder), str(package), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "AREABENCH_CACHE": str(room.cache)}
    return {**MPI_DEFAULTS, **ONE_MACHINE, **os.environ, **_ONE_THREAD, **own, TOKEN: room.token}


@cache
def why_no_mpi() -> str:
    """Why there are no runs on MPI; empty where there are."""
    try:
        rank_command(2, [])
    except UserError as error:
        return str(error)
    return ""


@cache
def why_no_ulfm(folder: Path) -> str:
    """Why no run can be made with fault-tolerant MPI; empty where it can."""
    if why := why_no_mpi():
        return why
    room = Room(folder, new_token("ulfm"), folder / "none.h5")
    ended = room.begin(rank_command(2, ["-c", "from mpi4py import MPI"], ULFM), "ulfm").end(LIMIT_S)
    return "" if ended.code == 0 and not ended.hung else "this MPI has no mpirun --with-ft ulfm"
