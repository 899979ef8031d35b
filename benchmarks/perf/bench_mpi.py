"""How close the MPI transport comes to a bare mpi4py loop: messages per second without delays, on one machine.

make bench-mpi, or: python benchmarks/perf/bench_mpi.py [--quick] [--output FILE] PYTHON ...

Each PYTHON belongs to an environment that has areabench and an MPI with its mpirun, e.g. .venv/bin/python for Open MPI
and .venv-mpich/bin/python for MPICH. Both sides run in the same launch on the same ranks, in short pieces in turns.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench_page import describe_machine, markdown_table, number, page_options, print_page, run_script
from mpi_plan import (
    DEPTHS,
    FULL,
    PAPER_BYTES,
    QUICK,
    Effort,
    Launch,
    Measured,
    Polled,
    Report,
    plan_launches,
    report_from,
)

from areabench.errors import UserError
from areabench.launching.families import MPI_DEFAULTS
from areabench.launching.mpirun import Launcher, ask_launcher, launcher_flags

_MEASURED = tuple(name for depth in DEPTHS for name in (depth, f"{depth}/bare"))
_CROWD_HEAD = ("clients", "bare", "it waits", *_MEASURED, "others")
_SIZE_HEAD = ("message", "clients", "bare", "it waits", "bare MB/s", *_MEASURED[:4], "others")
_POLL_HEAD = ("clients", "nothing is here (us)", "an update is here (us)")
_LEGEND = """\
Messages per second that the server receives and answers without delays. Each number is the median of short pieces;
all columns are measured in turns in one launch. *Bare*: a loop in mpi4py with one persistent receive and one
persistent send per client, which makes no Python object per message; the fastest way of waiting is shown. *Server*:
areabench's link and server loop, with the clients of the bare loop; it sends the same model back. *Wire*: with
areabench's own clients, which compute nothing. *Rule*: with AREA's rule. *All*: with event log and run file too.
Percentages are medians of the ratios to the bare loop in the same turn; the goal for the server is 80 %. *Others*:
the share of the cores that other processes used meanwhile; where it is not small, the numbers say little. On both
sides, both MPIs send messages of up to 64 kB without a handshake, as areabench sets them.
"""


def page(mpis: Sequence[Sequence[Report]]) -> str:
    """All tables, one MPI after the other."""
    return "\n".join([_LEGEND, *(mpi_section(reports) for reports in mpis)])


def mpi_section(reports: Sequence[Report]) -> str:
    """The two tables of one MPI."""
    cells = [cell for report in reports for cell in report.cells]
    crowds = [crowd_row(cell) for cell in cells if cell.size == PAPER_BYTES]
    sizes = [size_row(cell) for cell in cells if cell.size != PAPER_BYTES]
    text = f"## {reports[0].library}\n\nMessages of {PAPER_BYTES:,} bytes.\n\n{markdown_table([_CROWD_HEAD, *crowds])}"
    if sizes:
        text += f"\nOther sizes; MB/s count both directions.\n\n{markdown_table([_SIZE_HEAD, *sizes])}"
    if polls := [poll_row(poll) for report in reports for poll in report.polls]:
        text += f"\nOne poll of the server, with the clients on two ranks.\n\n{markdown_table([_POLL_HEAD, *polls])}"
    return text


def crowd_row(cell: Measured) -> list[str]:
    """A row: one number of clients at the paper's message size."""
    style = best_style(cell)
    row = [str(cell.clients), number(median(cell.bare[style])), style]
    return [*row, *_against(cell, style), percent(cell.others)]


def size_row(cell: Measured) -> list[str]:
    """A row: one message size."""
    style = best_style(cell)
    rate = median(cell.bare[style])
    row = [bytes_text(cell.size), str(cell.clients), number(rate), style, number(2e-6 * rate * cell.size)]
    return [*row, *_against(cell, style), percent(cell.others)]


def poll_row(poll: Polled) -> list[str]:
    """A row: what a poll takes with this number of clients."""
    return [f"{poll.clients:,}", f"{1e6 * poll.empty_s:.1f}", f"{1e6 * poll.found_s:.1f}"]


def _against(cell: Measured, style: str) -> list[str]:
    """The measurements of areabench, and the ratios to the bare loop."""
    pairs = [(number(median(rates)), percent(ratio(rates, cell.bare[style]))) for rates in cell.depths.values()]
    return [text for pair in pairs for text in pair]


def best_style(cell: Measured) -> str:
    """How the fastest bare loop waits."""
    return max(cell.bare, key=lambda style: median(cell.bare[style]))


def ratio(rates: Sequence[float], bare: Sequence[float]) -> float:
    """The median of the ratios to the bare loop of the same turn."""
    pairs = [one / other for one, other in zip(rates, bare, strict=True) if other > 0]
    return median(pairs) if pairs else math.nan


def percent(share: float) -> str:
    """A share as text; empty where it is unknown."""
    return "" if math.isnan(share) else f"{100 * share:.0f} %"


def bytes_text(size: int) -> str:
    """A size as text."""
    for unit, name in ((10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


_SET_UP_S = 120.0  # what a launch of 129 ranks may take besides its pieces, on a busy machine
_PATIENCE_S = 10.0
_PROGRAM = Path(__file__).with_name("mpi_rank.py")
_ALONE = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def mpirun_of(python: Path) -> Launcher:
    """The mpirun beside a Python."""
    found = python.parent / "mpirun"
    if not found.exists():
        raise UserError(f"{python}: no mpirun beside it; name the Python of an environment with areabench and an MPI")
    return ask_launcher(str(found))


def measure_launch(python: Path, launch: Launch, folder: Path) -> Report:
    """Start the ranks, wait for their report."""
    plan = folder / "launch.json"
    output = folder / "report.json"
    mpirun = mpirun_of(python)
    plan.write_text(json.dumps(asdict(launch)), encoding="utf-8")
    output.unlink(missing_ok=True)
    ranks = [mpirun.path, *launcher_flags(mpirun), "-n", str(launch.clients + 1)]
    command = [*ranks, str(python), str(_PROGRAM), str(plan), str(output)]
    limit_s = _SET_UP_S + 3 * launch.measuring_s
    _run(command, limit_s)
    return report_from(json.loads(output.read_text(encoding="utf-8")))


def _run(command: Sequence[str], limit_s: float) -> None:
    """Run to the end; a launch that hangs is ended by its mpirun."""
    with subprocess.Popen(command, env=MPI_DEFAULTS | os.environ | _ALONE) as ranks:
        try:
            code = ranks.wait(limit_s)
        except subprocess.TimeoutExpired:
            ranks.terminate()
            try:
                ranks.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                ranks.kill()
            raise UserError(f"the launch took more than {limit_s:.0f} s; try it on a machine with less load") from None
    if code != 0:
        raise UserError(f"the launch ended with exit code {code}; its error is printed above")


def measure_mpi(python: Path, effort: Effort, folder: Path) -> list[Report]:
    """All launches of one MPI."""
    yields = bool(launcher_flags(mpirun_of(python)))
    reports = []
    for launch in plan_launches(effort, yields=yields):
        print(f"{python}: {launch.clients} clients, {launch.measuring_s:.0f} s", file=sys.stderr)
        try:
            reports.append(measure_launch(python, launch, folder))
        except UserError as error:  # the results of the other launches are kept
            print(f"{python}: {launch.clients} clients left out: {error}", file=sys.stderr)
    if not reports:
        raise UserError(f"{python}: no launch was completed; their errors are printed above")
    return reports


def main() -> None:
    """Measure with every MPI that was named, print the tables, write them to a file if asked."""
    parser = page_options("Compare the MPI transport with a bare mpi4py loop.")
    parser.add_argument("pythons", type=Path, nargs="+", metavar="PYTHON", help="of an environment with an MPI")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory() as name:
        reports = [measure_mpi(python, effort, Path(name)) for python in arguments.pythons]
    print_page(page(reports), arguments.output, f"# Speed of the MPI transport\n\n{describe_machine()}\n\n")


if __name__ == "__main__":
    run_script(main)
