"""The program of every rank of the MPI benchmark: rank 0 serves and counts, the others are clients.

mpirun -n RANKS python benchmarks/perf/mpi_rank.py LAUNCH.json REPORT.json

All that is compared is measured in this one launch in turns: the bare loop in several ways to wait, then areabench.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
import traceback
from pathlib import Path

from mpi_bare import serve_bare, work_bare
from mpi_plan import STYLES, Cell, Launch, Measured, Piece, Report, launch_from
from mpi_sides import AREABENCH, bare_clients, play_depth

from areabench.transports.clock import sharpen_sleep
from areabench.transports.world import World


def play_bare(world: World, style_name: str, piece: Piece) -> int:
    """One piece of the bare loop on every rank; the count on rank 0, 0 elsewhere."""
    style = STYLES[style_name]
    world.together(lambda: None)
    if world.rank == 0:
        return serve_bare(world.comm, piece, style.server)
    work_bare(world.comm, piece.size, style.client)
    return 0


def fill(world: World, launch: Launch, cell: Cell) -> Measured:
    """Measure a cell in turns."""
    piece = Piece(launch.clients, cell.size, cell.duration_s)
    bare: dict[str, list[float]] = {style: [] for style in cell.styles}
    depths: dict[str, list[float]] = {depth: [] for depth in cell.depths}
    clock = MachineClock(world)
    for _ in range(cell.turns):
        for style, rates in bare.items():
            rates.append(play_bare(world, style, piece) / piece.duration_s)
        for depth, rates in depths.items():
            wire = bare_clients(launch.client_style) if depth == "server" else AREABENCH
            rates.append(play_depth(world, wire, depth, piece) / piece.duration_s)
    return Measured(launch.clients, cell.size, bare, depths, clock.others())


class MachineClock:
    """What share of this machine's cores processes of others have used since it was made."""

    def __init__(self, world: World) -> None:
        self._world, self._begun = world, (time.perf_counter(), _busy_s(), _own_s())

    def others(self) -> float:
        """The share on rank 0; NaN where the system does not tell."""
        wall_s, busy_s, own_s = (
            now - begun
            for now, begun in zip((time.perf_counter(), _busy_s(), _own_s()), self._begun, strict=True)
        )  # fmt: skip
        ranks_s: float = sum(self._world.comm.allgather(own_s))
        return max(0.0, (busy_s - ranks_s) / (wall_s * (os.cpu_count() or 1)))


def _own_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _busy_s() -> float:
    """Seconds that all cores of this machine have worked since it started; NaN where the system does not tell."""
    listing = Path("/proc/stat")
    if not listing.exists():
        return math.nan
    ticks = [int(word) for word in listing.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # without idle, without waiting for discs


def main() -> None:
    """Fill the cells of a launch; rank 0 leaves the report."""
    plan, output = Path(sys.argv[1]), Path(sys.argv[2])
    launch = launch_from(json.loads(plan.read_text(encoding="utf-8")))
    sharpen_sleep()
    world = World()
    try:
        report = Report(world.library, [fill(world, launch, cell) for cell in launch.cells])
    except Exception:  # the other ranks would wait for ever
        traceback.print_exc()
        world.abort()
        raise
    if world.rank == 0:
        output.write_text(json.dumps(report.as_values()), encoding="utf-8")


if __name__ == "__main__":
    main()
