"""Where the numbers of the results page come from: runs, versions, machine, times and commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from areabench.errors import UserError
from areabench.paper.page_tables import paragraph
from areabench.reading import open_run
from areabench.schema import Provenance
from areabench.sweeps.reading import Sweep


def origin(sweeps: Sequence[Sweep], command: str) -> str:
    """Command, date, versions, machine and what is missing."""
    done, planned = sum(len(sweep.results) for sweep in sweeps), sum(len(sweep.plan.members) for sweep in sweeps)
    failed = sum(len(sweep.failures) for sweep in sweeps)
    found = [one for sweep in sweeps if (one := _provenance(sweep)) is not None]
    words = f"Every number comes from {done:,} of {planned:,} planned runs ({failed:,} failed). "
    words += f"{_machine(found)} " if found else ""
    lines = [paragraph(words + _written(sweeps))]
    if found:
        lines += ["The runs were made by", "", *dict.fromkeys(f"    {_short(one.command)}" for one in found), ""]
    return "\n".join([*lines, "This page was written by", "", f"    {command}", ""])


def _written(sweeps: Sequence[Sweep]) -> str:
    """When the run files were written."""
    paths = [result.path for sweep in sweeps for result in sweep.results if result.path.is_file()]
    if not paths:
        return ""
    moments = [path.stat().st_mtime for path in paths]
    first, last = (datetime.fromtimestamp(moment, UTC) for moment in (min(moments), max(moments)))
    minutes = (last - first).total_seconds() / 60
    return f"The run files were written from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC ({minutes:.0f} min)."


def _machine(found: Sequence[Provenance]) -> str:
    first = found[0]
    versions = sorted({f"{one.areabench} ({one.git_revision})" if one.git_revision else one.areabench for one in found})
    days = sorted({one.started_at[:10] for one in found})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"They were run on {when} with areabench {', '.join(versions)}, Python {first.python}, numpy {first.numpy} "
        f"({first.blas}), h5py {first.h5py}, on {first.platform}."
    )


def _provenance(sweep: Sweep) -> Provenance | None:
    """Who made a sweep: the first run file that says so."""
    for result in sweep.results[:1]:
        with suppress(UserError), open_run(result.path) as run:
            return run.provenance
    return None


def _short(command: str) -> str:
    """A command without the folder of its program."""
    program, *others = shlex.split(command) or [""]
    return shlex.join([Path(program).name.replace("__main__.py", "areabench"), *others])
