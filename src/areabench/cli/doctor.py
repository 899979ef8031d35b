"""`areabench doctor`: everything around a run, looked at in a second or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from areabench.errors import UserError, one_line
from areabench.launch import doctor as machine
from areabench.launch import doctor as mpi
from areabench.launch.doctor import (
    Finding,
    Mark,
    failed,
    to_page,
    to_record,
)
from areabench.launch.families import started_by
from areabench.views.terminal import Output


@dataclass(frozen=True)
class Patient:
    """What is looked at: the ranks wanted, the folders, the cores this process may use, the environment."""

    ranks: int
    runs: Path
    cache: Path
    cores: int
    environment: Mapping[str, str]


def doctor(patient: Patient, output: Output) -> int:
    """Print all findings; 1 where something fails."""
    started = started_by(patient.environment)
    if started is not None:
        raise UserError(
            f"{started.launcher} has started {started.ranks} doctors; one is enough, and it starts ranks itself: type "
            "`areabench doctor`"
        )
    findings = list(examine(patient))
    output.answer(lambda: to_page(findings), lambda: to_record(findings))
    return 1 if failed(findings) else 0


def examine(patient: Patient) -> Iterator[Finding]:
    """All findings; a look that fails itself is one too."""
    around, ranks, cores = patient.environment, patient.ranks, patient.cores
    library = mpi.find_library(around)
    family = library.family if isinstance(library, mpi.Library) else None
    looks: dict[str, Callable[[], Finding]] = {
        "areabench": machine.look_at_versions,
        "mpi4py": mpi.look_at_mpi4py,
        "MPI library": lambda: mpi.look_at_library(library),
        "launcher": lambda: mpi.look_at_launcher(family),
        "on the path": lambda: mpi.look_at_path(family),
        "two ranks": lambda: mpi.look_at_two_ranks(around),
        "scheduler": lambda: mpi.look_at_scheduler(around),
        "cores": lambda: machine.look_at_cores(cores, ranks),
        "threads": lambda: machine.look_at_threads(around, cores, ranks),
        "sleep": machine.look_at_sleep,
        "cache": lambda: machine.look_at_cache(patient.cache),
        "HDF5": lambda: machine.look_at_hdf5(patient.runs),
        "disc": lambda: machine.look_at_disc(patient.runs),
        "memory": lambda: machine.look_at_memory(ranks),
        "temporary": lambda: machine.look_at_temporary(around),
    }
    for name, look in looks.items():
        yield guarded(name, look)


def guarded(name: str, look: Callable[[], Finding]) -> Finding:
    """What a look finds; a look that fails is a finding, not the end of all others."""
    try:
        return look()
    except Exception as error:  # whatever a broken machine makes of it
        return Finding(name, Mark.FAIL, f"cannot be looked at: {one_line(error)}", "see what the system says about it")
