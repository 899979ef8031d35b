"""One rank of bench_start.py: `start_rank.py FOLDER ARGUMENTS` does what `python -m areabench ARGUMENTS` does.

It notes its processor time after each step, and leaves the steps in a file of FOLDER when the run begins. It loads
little itself, because that counts as Python's.
"""

from __future__ import annotations

import os
import resource
import sys
from importlib import import_module
from typing import Any


class Steps:
    """The steps of a rank, each with the processor time that it took, in seconds; the first began with the process."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}

    def end(self, step: str) -> None:
        """A step has ended; what was used since the one before is its."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.taken[step] = sum(each.ru_utime + each.ru_stime for each in used) - sum(self.taken.values())

    def write(self, folder: str) -> None:
        """Write them down; the files of all ranks sort by rank."""
        rank = int(next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ))
        with open(f"{folder}/{rank:04}.txt", "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is areabench's
            file.writelines(f"{taken_s}\t{step}\n" for step, taken_s in self.taken.items())


def main(folder: str, arguments: list[str]) -> int:
    """The rank; its exit code is that of the command."""
    steps = Steps()
    steps.end("Python")
    from areabench.cli import main as command

    steps.end("modules of the command line")
    import_module("areabench.cli.run")
    ranks: Any = import_module("areabench.launching.ranks")
    steps.end("numpy, records of an experiment")
    start = ranks._start

    def noted_start(*given: Any) -> Any:
        steps.end("arguments, environment")
        world = start(*given)
        steps.end("MPI_Init, first meeting")
        mpi_run: Any = import_module("areabench.transports.mpi_run")
        steps.end("modules of a run")
        build = mpi_run.build_scenario
        barrier = world.barrier

        def noted_build(*given: Any, **how: Any) -> Any:
            steps.end("experiment")
            scenario = build(*given, **how)
            steps.end("data, split, problem, method")
            return scenario

        def noted_barrier() -> None:
            barrier()
            steps.end("clients, requests, waiting for others")
            steps.write(folder)

        mpi_run.build_scenario = noted_build
        world.barrier = noted_barrier
        return world

    ranks._start = noted_start
    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
