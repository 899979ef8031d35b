"""The options of `areabench job`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.jobs.words import LAUNCHERS, MPIRUN, MPIS, OPEN_MPI, SCHEDULERS, SLURM, SRUN

if TYPE_CHECKING:
    from areabench.jobs.request import Request


def add_job_options(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    """What is run on how much of which site."""
    parser.add_argument("file", type=Path, metavar="FILE", help="experiment or sweep file (TOML)")
    parser.add_argument("--scheduler", choices=SCHEDULERS, required=True, help="whose script it is")
    parser.add_argument("-o", "--output", type=Path, metavar="SCRIPT", help="write it here (default: print it)")
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    _work_options(parser, positive)
    _site_options(parser, positive)


def _work_options(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    parser.add_argument("--trials", type=positive, metavar="N", help="trials of a sweep, instead of the file's")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="PATH",
        help="run file, or folder of a sweep, that the job writes (default in runs/)",
    )
    parser.add_argument(
        "--transport", choices=("mpi", "simulator"), default="mpi", help="real time (default), or virtual time"
    )
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes of a job on MPI (default 1)")
    parser.add_argument(
        "--clients-per-rank", type=positive, default=1, metavar="N",
        help="clients that a worker rank hosts at most: n clients take n/N worker ranks, rounded up (default 1)",
    )  # fmt: skip
    parser.add_argument("--clients", type=positive, metavar="N", help="clients, instead of the file's clients.count")
    parser.add_argument(
        "--cores", type=positive, default=4, metavar="N", help="cores of a job in the simulator (default 4)"
    )
    parser.add_argument(
        "--array", type=positive, metavar="N", help="of a sweep: an array of N tasks, each with every N-th run"
    )
    parser.add_argument("--walltime", metavar="HH:MM:SS", help="instead of the estimate, which the script explains")


def _site_options(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    parser.add_argument(
        "--module", dest="modules", action="append", default=[], metavar="NAME",
        help="`module load` this in the job; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--venv", type=Path, metavar="DIR", help="environment to activate (default: this command's own)"
    )
    parser.add_argument(
        "--launcher", choices=LAUNCHERS, help="what starts the ranks (default: srun on Slurm, mpirun on PBS)"
    )
    parser.add_argument(
        "--mpi", choices=MPIS, help="the MPI of the job, or the one that it behaves like (default: that of mpirun here)"
    )
    parser.add_argument("--account", help="account or project to charge")
    parser.add_argument("--partition", "--queue", dest="queue", help="Slurm's partition, PBS's queue")
    parser.add_argument("--memory", dest="memory_mb", type=positive, metavar="MB", help="memory of each core")
    parser.add_argument("--exclusive", action="store_true", help="whole nodes: no other jobs disturb the clock")


def read_request(options: argparse.Namespace, here: Path | None) -> Request:
    """What was asked for; `here` is the environment that the command is in."""
    from areabench.jobs.command import mpi_at_hand
    from areabench.jobs.request import Request, Site
    from areabench.sweeps.run import MPI

    site = Site(
        modules=tuple(options.modules),
        venv=options.venv or here,
        launcher=options.launcher or (SRUN if options.scheduler == SLURM else MPIRUN),
        mpi=options.mpi or (mpi_at_hand() if options.transport == MPI else OPEN_MPI),
        account=options.account,
        queue=options.queue,
        memory_mb=options.memory_mb,
        exclusive=options.exclusive,
    )
    names = ("file", "trials", "runs", "transport", "scheduler", "nodes", "clients_per_rank", "cores", "array")
    asked = {name: getattr(options, name) for name in names}
    asked["array"] = None if options.array == 1 else options.array  # one task is no array
    count = [] if options.clients is None else [f"clients.count={options.clients}"]
    return Request(overrides=(*options.overrides, *count), walltime=options.walltime, site=site, **asked)
