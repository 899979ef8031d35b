"""Where the numbers of the results page come from: runs, versions, machine, times and commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from paper.page_tables import paragraph

from areabench.engine.events import Provenance
from areabench.errors import RunFileError, UserError
from areabench.runfile.read import open_run
from areabench.runfile.reader import RunReader
from areabench.sweeps.read import Sweep


@dataclass(frozen=True)
class Maker:
    """What may change from one run file of a sweep to the next."""

    areabench: str
    git_revision: str
    numpy: str
    command: str
    started_at: str  # UTC, ISO 8601


def origin(sweeps: Sequence[Sweep], command: str) -> str:
    """Command, date, versions, machine and what is missing."""
    done = sum(len(sweep.results) for sweep in sweeps)
    planned = sum(len(sweep.plan.members) for sweep in sweeps)
    failed = sum(len(sweep.failures) for sweep in sweeps)
    paths = [result.path for sweep in sweeps for result in sweep.results if result.path.is_file()]
    makers = read_makers(paths)
    first = _first_provenance(paths)
    words = f"Every number comes from {done:,} of {planned:,} planned runs ({failed:,} failed), "
    words += f"{_trials(sweeps)} per cell. "
    words += f"{_made_with(makers, first)} " if makers and first else ""
    lines = [paragraph(words + _written(paths))]
    if makers:
        lines += ["The runs were made by", "", *dict.fromkeys(f"    {_short(one.command)}" for one in makers), ""]
    return "\n".join([*lines, "This page was written by", "", f"    {command}", ""])


def _trials(sweeps: Sequence[Sweep]) -> str:
    """How many trials are planned."""
    counts = sorted({len({member.seed for member in sweep.plan.members}) for sweep in sweeps})
    return f"{' or '.join(map(str, counts))} trial{'s'[: counts[-1:] != [1]]}"


def read_makers(paths: Iterable[Path]) -> list[Maker]:
    """The provenance of each run file, in their order; it takes less than a millisecond per file."""
    makers = []
    for path in paths:
        with suppress(RunFileError), RunReader(path) as reader:
            found = reader.provenance
            makers.append(Maker(found.areabench, found.git_revision, found.numpy, found.command, found.started_at))
    return makers


def _written(paths: Sequence[Path]) -> str:
    """When the run files were written."""
    if not paths:
        return ""
    moments = [path.stat().st_mtime for path in paths]
    first, last = (datetime.fromtimestamp(moment, UTC) for moment in (min(moments), max(moments)))
    return (
        f"The first run file was written on {first:%Y-%m-%d at %H:%M}, the last on {last:%Y-%m-%d at %H:%M} UTC; "
        "computing the first one is not included, pauses are."
    )


def _made_with(makers: Sequence[Maker], first: Provenance) -> str:
    """Days, versions and machine; every version of areabench and numpy, the others as in the first file."""
    days = sorted({one.started_at[:10] for one in makers})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    numpy = " and ".join(sorted({one.numpy for one in makers}))
    return (
        f"They were run on {when} with areabench {_versions(makers)}, Python {first.python}, numpy {numpy} "
        f"({first.blas}), h5py {first.h5py}, on {first.platform}."
    )


def _versions(makers: Sequence[Maker]) -> str:
    """Version and revision; where there are several, each with the number of its runs."""
    names = [f"{one.areabench} ({one.git_revision})" if one.git_revision else one.areabench for one in makers]
    counts = {name: names.count(name) for name in sorted(set(names))}
    if len(counts) == 1:
        return names[0]
    return " and ".join(f"{name} for {number:,} run{'s'[: number > 1]}" for name, number in counts.items())


def _first_provenance(paths: Sequence[Path]) -> Provenance | None:
    for path in paths[:1]:
        with suppress(UserError), open_run(path) as run:
            return run.provenance
    return None


def _short(command: str) -> str:
    """A command without the folder of its program."""
    program, *others = shlex.split(command) or [""]
    return shlex.join([Path(program).name.replace("__main__.py", "areabench"), *others])
