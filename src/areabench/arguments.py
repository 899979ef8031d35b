"""The commands and their options, with a purpose and an example each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from areabench import __version__
from areabench.jobs.arguments import add_job_options
from areabench.options import (
    checkpoint_option,
    experiment_options,
    override_option,
    percent,
    positive,
    progress_option,
    ranks_option,
    tolerance_option,
    trust_option,
)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_EXIT_CODES = "exit codes: 0 done; 2 bad input; 130 interrupted"
_EXIT_CODES_OF_A_RUN = (
    "exit codes: 0 done or target reached; 1 the run failed; 2 bad input; 3 diverged; 4 stopped by "
    "a signal, to be resumed; 130 interrupted"
)
_EXIT_CODES_OF_REPLAY = "exit codes: 0 done, all equal; 1 there is a difference; 2 bad input; 130 interrupted"
_EXIT_CODES_OF_COMPARE = "exit codes: 0 done, both tolerances hold; 1 one does not; 2 bad input; 130 interrupted"
_EXIT_CODES_OF_A_SWEEP = (
    "exit codes: 0 done, also where runs diverged; 1 a run failed, or cannot be run; 2 bad input; "
    "129, 130 or 143 interrupted"
)


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
    check = _command(commands, "check", "check an experiment and print it resolved", "demo.toml")
    experiment_options(check)
    check.add_argument(
        "--ended-in",
        type=Path,
        metavar="RUN",
        help="say instead whether this run file holds it, ended; exit code 4 if it can be resumed, 1 if not",
    )
    _theorising(commands)
    purpose = "run the rule again from a run file's events, compare bits"
    replay = _command(commands, "replay", purpose, "RUN.h5", exit_codes=_EXIT_CODES_OF_REPLAY)
    replay.add_argument("run", type=Path, help="run file")
    trust_option(replay)
    progress_option(replay)
    show = _command(commands, "show", "print what a run file holds", "RUN.h5")
    show.add_argument("run", type=Path, help="run file")
    show.add_argument("--toml", action="store_true", help="print only the resolved experiment, as TOML")
    _recovering(commands)
    purpose = "say whether a run kept its delays and served its clients alike, and what to change"
    diagnose = _command(commands, "diagnose", purpose, "RUN.h5 -o diagnosis.png")
    diagnose.add_argument("run", type=Path, help="run file")
    diagnose.add_argument("-o", "--output", type=Path, metavar="FIGURE", help="draw it here (.png, .svg or .pdf)")
    diagnose.add_argument("--json", action="store_true", help="print it as JSON")
    summary = _command(commands, "summary", "compare runs in a table and a plot", "runs/*.h5 --plot runs.png")
    summary.add_argument("runs", type=Path, nargs="+", help="run files")
    summary.add_argument("--target", type=float, default=80.0, help="accuracy for the time-to column, %% (default 80)")
    summary.add_argument("--plot", type=Path, help="write accuracy and loss over time here (.png, .svg or .pdf)")
    _comparing(commands)
    _tabling(commands)
    _drawing(commands)
    _diagnosing(commands)
    return parser


def _command(
    commands: Commands,
    name: str,
    purpose: str,
    example: str,
    launcher: str = "",
    exit_codes: str = _EXIT_CODES,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=f"example: {launcher}areabench {name} {example}. {exit_codes}"
    )
    parser.set_defaults(command=name)
    return parser


def _running(
    commands: Commands,
    name: str,
    purpose: str,
    launcher: str = "",
) -> argparse.ArgumentParser:
    example = "benchmarks/demo.toml --set method.step_size=10 --output runs/try.h5"
    parser = _command(commands, name, purpose, example, launcher, _EXIT_CODES_OF_A_RUN)
    experiment_options(parser)
    parser.add_argument("-o", "--output", type=Path, help="run file to write (default runs/NAME-METHOD-SEED.h5)")
    parser.add_argument("--force", action="store_true", help="overwrite the run file if it exists")
    checkpoint_option(parser)
    progress_option(parser)
    return parser


def _resuming(commands: Commands) -> None:
    purpose = "go on with a run that was stopped or killed, from its checkpoint"
    parser = _command(commands, "resume", purpose, "runs/demo-area-0.h5", exit_codes=_EXIT_CODES_OF_A_RUN)
    parser.add_argument("run", type=Path, help="run file; what was recorded after the checkpoint is recorded anew")
    ranks_option(parser)
    tolerance_option(parser)
    trust_option(parser)
    checkpoint_option(parser)
    progress_option(parser)


def _sweeping(commands: Commands) -> None:
    purpose = "run grids of experiments over all cores, and go on where an earlier sweep ended"
    example = "benchmarks/tables/grid.toml --jobs 2 --trials 1"
    parser = _command(commands, "sweep", purpose, example, exit_codes=_EXIT_CODES_OF_A_SWEEP)
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
    parser = _command(commands, "job", "write a job script for a cluster", example)
    override_option(parser)
    add_job_options(parser, positive)


def _theorising(commands: Commands) -> None:
    purpose = "print the constants, step sizes and server rate of the paper's theorems for an experiment"
    parser = _command(commands, "theory", purpose, "benchmarks/demo.toml --from runs/demo/area.h5")
    experiment_options(parser)
    parser.add_argument(
        "--from", dest="measured_in", type=Path, metavar="RUN", help="take the rates measured in this run file"
    )
    parser.add_argument(
        "--solve",
        action="store_true",
        help="also solve for minimisers that take long (logistic, hinge), for the bounds",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the experiment as the theorems suggest it")
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    progress_option(parser)


def _recovering(commands: Commands) -> None:
    purpose = "save what can be saved of a damaged run file"
    codes = "exit codes: 0 something was saved; 2 nothing could be, or bad input; 130 interrupted"
    parser = _command(commands, "recover", purpose, "RUN.h5 -o SAVED.h5", exit_codes=codes)
    parser.add_argument("run", type=Path, help="run file that is damaged; it stays as it is")
    parser.add_argument("-o", "--output", type=Path, required=True, help="run file to write")
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    progress_option(parser)


def _comparing(commands: Commands) -> None:
    purpose = "compare two runs of one experiment, in virtual and in real time"
    example = "SIM.h5 MPI.h5 --plot both.png"
    parser = _command(commands, "compare", purpose, example, exit_codes=_EXIT_CODES_OF_COMPARE)
    parser.add_argument("first", type=Path, metavar="SIM.h5", help="run file, the reference")
    parser.add_argument("second", type=Path, metavar="MPI.h5", help="run file of the same experiment")
    parser.add_argument("--plot", type=Path, help="draw one over the other here (.png, .svg or .pdf)")
    parser.add_argument("--json", action="store_true", help="print every number as JSON")
    parser.add_argument(
        "--updates-within", type=percent, default=3.0, metavar="PERCENT", help="tolerance of the updates (default 3)"
    )
    parser.add_argument(
        "--loss-within", type=percent, default=2.0, metavar="PERCENT", help="tolerance of the final loss (default 2)"
    )


def _tabling(commands: Commands) -> None:
    parser = _command(commands, "table", "print sweeps in the form of the paper's tables", "runs/grid --paper")
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folder of a sweep")
    parser.add_argument(
        "--keep", choices=("published", "paper-rule", "best", "all"), default="paper-rule",
        help="step sizes to show: those of the paper's table, the two largest with a finite loss in all trials "
        "(default), the best by --metric on half of the trials and shown on the others, or all",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=("accuracy", "loss", "time"), default="accuracy", help="for --keep best (default accuracy)"
    )
    parser.add_argument(
        "--bound", type=float, default=float("inf"), metavar="LOSS",
        help="for --keep paper-rule: a loss beyond this counts as not finite (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--gap", type=float, default=float("inf"),
        help="for --keep paper-rule: a score gap beyond this counts as not finite, 103 as in single precision",
    )  # fmt: skip
    parser.add_argument("--target", type=float, default=80.0, help="accuracy that rho is the time to, %% (default 80)")
    parser.add_argument("--paper", action="store_true", help="put the published value beside each cell")
    parser.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv"), default="text", help="printed form (default text)"
    )
    parser.add_argument(
        "-o", "--output", type=Path,
        help="write instead: a file (.txt, .md, .tex, .csv), or a folder for NAME.md, NAME.tex and NAME.csv",
    )  # fmt: skip
    parser.add_argument("--page", type=Path, metavar="FILE", help="write one page of all sweeps against the paper")


def _drawing(commands: Commands) -> None:
    example = "runs/grid --format svg --step-size area=1000"
    parser = _command(commands, "figures", "draw a sweep, or the label distribution of a split", example)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="folder of a sweep")
    what.add_argument("--split", type=Path, metavar="FILE", help="draw the labels of this experiment's clients")
    override_option(parser)
    parser.add_argument(
        "-o", "--output", type=Path,
        help="folder for the figures of a sweep (default DIR/figures), file for --split (default runs/STEM-labels)",
    )  # fmt: skip
    parser.add_argument("--format", choices=("png", "svg", "both"), default="both", help="of the files (default both)")
    parser.add_argument(
        "--step-size", dest="step_sizes", action="append", default=[], metavar="METHOD=ALPHA",
        help="step size to draw of a method (default: best mean accuracy at the end); may be repeated",
    )  # fmt: skip
    parser.add_argument("--target", type=float, default=80.0, help="accuracy of the target line, %% (default 80)")


def _diagnosing(commands: Commands) -> None:
    purpose = "look at MPI, launcher, threads, cores, discs and clock of this machine, and say what to fix"
    codes = "exit codes: 0 nothing fails; 1 something does, and is to be fixed; 2 bad input; 130 interrupted"
    parser = _command(commands, "doctor", purpose, "--ranks 9", exit_codes=codes)
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks that are wanted (default 2)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the run files (default runs)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
