"""The commands and their options, with a purpose and an example each."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench import __version__
from areabench.command_help import EXIT_CODES_OF_A_RUN, EXIT_CODES_OF_A_SWEEP, Commands, add_command
from areabench.jobs.arguments import add_job_options
from areabench.options import (
    checkpoint_option,
    experiment_options,
    override_option,
    positive,
    progress_option,
    ranks_option,
    tolerance_option,
    trust_option,
)
from areabench.reading_arguments import add_reading_commands

SHELLS = ("bash", "zsh", "fish")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; `command` names the one that was chosen."""
    parser = argparse.ArgumentParser(
        prog="areabench",
        description="Benchmarks of asynchronous federated optimization, on MPI and in virtual time.",
        epilog="`areabench COMMAND --help` lists options and exit codes",
    )
    parser.add_argument("--version", action="version", version=f"areabench {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _running(commands, "simulate", "run an experiment in virtual time, without MPI")
    launch = _running(commands, "launch", "start mpirun on this machine and run an experiment in real time")
    ranks_option(launch)
    tolerance_option(launch)
    _running(commands, "run", "run an experiment on the MPI ranks of this launch", launcher="mpirun -n 9 ")
    _resuming(commands)
    _sweeping(commands)
    purpose = "make the runs of a sweep on MPI; started by `areabench sweep`, not for typing"
    batch = commands.add_parser("batch", description=purpose)
    batch.set_defaults(command="batch")
    batch.add_argument("file", type=Path)
    _writing_jobs(commands)
    add_reading_commands(commands)
    purpose = "print a completion script for a shell"
    example = "bash > ~/.local/share/bash-completion/completions/areabench"
    completion = add_command(commands, "completion", purpose, example)
    completion.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def _running(commands: Commands, name: str, purpose: str, launcher: str = "") -> argparse.ArgumentParser:
    example = "benchmarks/demo.toml --set method.step_size=10 --output runs/try.h5"
    parser = add_command(commands, name, purpose, example, launcher, EXIT_CODES_OF_A_RUN)
    experiment_options(parser)
    parser.add_argument("-o", "--output", type=Path, help="run file to write (default runs/NAME-METHOD-SEED.h5)")
    parser.add_argument("--force", action="store_true", help="overwrite the run file if it exists")
    checkpoint_option(parser)
    progress_option(parser)
    return parser


def _resuming(commands: Commands) -> None:
    purpose = "go on with a run that was stopped or killed, from its checkpoint"
    parser = add_command(commands, "resume", purpose, "runs/demo-area-0.h5", exit_codes=EXIT_CODES_OF_A_RUN)
    parser.add_argument("run", type=Path, help="run file; what was recorded after the checkpoint is recorded anew")
    ranks_option(parser)
    tolerance_option(parser)
    trust_option(parser)
    checkpoint_option(parser)
    progress_option(parser)


def _sweeping(commands: Commands) -> None:
    purpose = "run grids of experiments over all cores, and go on where an earlier sweep ended"
    example = "benchmarks/tables/grid.toml --jobs 2 --trials 1"
    parser = add_command(commands, "sweep", purpose, example, exit_codes=EXIT_CODES_OF_A_SWEEP)
    parser.add_argument("sweeps", type=Path, nargs="+", metavar="FILE", help="sweep file (TOML)")
    override_option(parser)
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each point, instead of the file's")
    parser.add_argument("-j", "--jobs", type=positive, metavar="N", help="processes (default: one a core); not on MPI")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="folder of the sweep (default runs/STEM); of several sweeps the folder of their folders",
    )  # fmt: skip
    parser.add_argument(
        "--transport", choices=("simulator", "mpi"), default="simulator",
        help="virtual time (default), or real time under mpirun, one run after the other, in runs/STEM-mpi",
    )  # fmt: skip
    ranks_option(parser)
    parser.add_argument(
        "--on-ranks", action="store_true",
        help="on MPI: use the ranks of this launch (under mpirun or srun) instead of starting mpirun",
    )  # fmt: skip
    parser.add_argument(
        "--share", default="1/1", metavar="K/N",
        help="run only every N-th run, from the K-th on; all shares may run at once, into the same folder",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument("--force", action="store_true", help="run again what is done")
    progress_option(parser)


def _writing_jobs(commands: Commands) -> None:
    example = "benchmarks/paper.toml --scheduler slurm --nodes 4 --clients-per-rank 8 -o paper.sh"
    parser = add_command(commands, "job", "write a job script for a cluster", example)
    override_option(parser)
    add_job_options(parser, positive)
