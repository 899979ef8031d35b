"""What the start of a launch takes of the processor: each step of a worker's rank, up to the beginning of the run.

make bench-start, or: python benchmarks/perf/bench_start.py [--ranks N]

docs/launching.md states what was found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from bench_page import describe_machine, markdown_table

from areabench.launching.families import MPI_DEFAULTS, ONE_MACHINE
from areabench.launching.mpirun import FaultTolerance, rank_command
from areabench.runfile.read import open_run
from areabench.threads import VARIABLES

PERF = Path(__file__).parent
EXPERIMENT = PERF.parent / "experiments" / "paper" / "paper.toml"
Steps = dict[str, float]  # seconds of processor time by step, in the order of the steps


def measure(ranks: int, folder: Path) -> tuple[list[Steps], float]:
    """The steps of every rank, and the seconds after which all were ready."""
    run = folder / "run.h5"
    arguments = ["run", str(EXPERIMENT), "--set", "stop.horizon_s=1", "--output", str(run), "--progress", "never"]
    python = [str(PERF / "start_rank.py"), str(folder), *arguments]
    settings = {**MPI_DEFAULTS, **ONE_MACHINE, **dict.fromkeys(VARIABLES.values(), "1")}
    command = rank_command(ranks, python, tolerance=FaultTolerance.AUTO)
    subprocess.run(command, check=True, env=settings | os.environ, stdout=subprocess.DEVNULL)
    with open_run(run) as recorded:
        assert recorded.diagnosis is not None
        return [read_steps(file) for file in sorted(folder.glob("*.txt"))], recorded.diagnosis.start_up_s


def read_steps(file: Path) -> Steps:
    """What a rank has left."""
    lines = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return {step: float(taken_s) for taken_s, step in lines}


def page(found: Sequence[Steps], ready_s: float) -> str:
    """One row per step of a worker, and what all ranks took together."""
    workers = found[1:]
    rows = [(step, f"{1e3 * fmean(each[step] for each in workers):.0f}") for step in workers[0]]
    rows.append(("all", f"{1e3 * fmean(sum(each.values()) for each in workers):.0f}"))
    total_s = sum(sum(each.values()) for each in found)
    said = f"{len(found)} ranks were ready after {ready_s:.1f} s, and had taken {total_s:.1f} s of processor time."
    return f"{markdown_table([('step', 'ms'), *rows])}\n{said}\n{describe_machine()}\n"


def main() -> None:
    """Measure one launch and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=129)
    with tempfile.TemporaryDirectory() as folder:
        print(page(*measure(parser.parse_args().ranks, Path(folder))), end="")


if __name__ == "__main__":
    main()
