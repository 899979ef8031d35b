"""`areabench doctor`: everything around a run, looked at in a second or two."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.errors import UserError, one_line
from areabench.launch import doctor as machine
from areabench.launch import doctor as mpi
from areabench.launch.doctor import (
    Finding,
    Mark,
    failed,
    to_record,
)
from areabench.launch.families import started_by
from areabench.views.styled import BAD, DOUBTFUL, GOOD, Styled, joined
from areabench.views.terminal import Output

_STYLES = {Mark.OK: GOOD, Mark.WARN: DOUBTFUL, Mark.FAIL: BAD}
_WIDTH, _INDENT = 120, 18  # characters of a line, and before a remedy


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
    output.answer(lambda: findings_text(findings), lambda: to_record(findings))
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


# ---------------------------------------------------------------------------------------------------- text


def findings_text(findings: Sequence[Finding]) -> Styled:
    """One line per finding, its remedy below it, and a verdict at the end."""
    return joined([*(line for finding in findings for line in _lines(finding)), _verdict(findings)])


def _lines(finding: Finding) -> list[str]:
    mark = Styled((finding.mark.value, _STYLES[finding.mark]), " " * (6 - len(finding.mark)))
    lines: list[str] = [Styled(mark, f"{finding.name:<12}{finding.text}")]
    if finding.remedy:
        lines += textwrap.wrap(
            f"-> {finding.remedy}", _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * (_INDENT + 3),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return lines


def _verdict(findings: Sequence[Finding]) -> str:
    fails, warns = ([finding.name for finding in findings if finding.mark == mark] for mark in (Mark.FAIL, Mark.WARN))
    if not fails and not warns:
        return "nothing to fix"
    parts = [f"to fix: {', '.join(fails)}"] * bool(fails) + [f"to look at: {', '.join(warns)}"] * bool(warns)
    return "; ".join(parts)
