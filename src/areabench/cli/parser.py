"""The commands that read, and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from areabench.cli.job import Request
from areabench import __version__

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_CODES = "exit codes: 0 done; 2 bad input; 130 interrupted"
EXIT_CODES_OF_A_RUN = (
    "exit codes: 0 done or target reached; 1 the run failed; 2 bad input; 3 diverged; 4 stopped by "
    "a signal, to be resumed; 130 interrupted"
)
EXIT_CODES_OF_A_SWEEP = (
    "exit codes: 0 done, also where runs diverged; 1 a run failed, or cannot be run; 2 bad input; "
    "129, 130 or 143 interrupted"
)
EXIT_CODES_OF_CHECK = (
    "exit codes: 0 done; with --ended-in: 0 ended, 4 it can be resumed, 1 neither; 2 bad input; 130 interrupted"
)
EXIT_CODES_OF_REPLAY = "exit codes: 0 done, all equal; 1 there is a difference; 2 bad input; 130 interrupted"
EXIT_CODES_OF_RECOVER = "exit codes: 0 something was saved; 2 nothing could be, or bad input; 130 interrupted"
EXIT_CODES_OF_COMPARE = "exit codes: 0 done, both tolerances hold; 1 one does not; 2 bad input; 130 interrupted"
EXIT_CODES_OF_WATCH = (
    "exit codes: 0 done or target reached, with --once also under way; 1 the run failed or was killed; 2 bad input, or "
    "no file or news within --wait; 3 diverged; 4 stopped by a signal, to be resumed; 130 interrupted"
)
EXIT_CODES_OF_DOCTOR = "exit codes: 0 nothing fails; 1 something does, and is to be fixed; 2 bad input; 130 interrupted"


def add_command(
    commands: Commands,
    name: str,
    purpose: str,
    example: str,
    launcher: str = "",
    exit_codes: str = EXIT_CODES,
) -> argparse.ArgumentParser:
    """A command, without options."""
    parser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=f"example: {launcher}areabench {name} {example}. {exit_codes}"
    )
    parser.set_defaults(command=name)
    return parser


def ranks_option(parser: argparse.ArgumentParser) -> None:
    """How many ranks."""
    parser.add_argument(
        "-n", "--ranks", type=positive, metavar="N",
        help="MPI ranks, 2 to clients + 1: the server's, and those that share the clients (default: one a client)",
    )  # fmt: skip


def checkpoint_option(parser: argparse.ArgumentParser) -> None:
    """How often to write a checkpoint."""
    parser.add_argument(
        "--checkpoint-every", type=seconds, default=60.0, metavar="SECONDS",
        help="real time between checkpoints, from which `areabench resume` goes on (default 60; 0: only when a signal "
        "stops the run)",
    )  # fmt: skip


def positive(text: str) -> int:
    """A number of processes."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return int(text)


def seconds(text: str) -> float:
    """A duration, or zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds >= 0")
    return seconds


def above_zero(text: str) -> float:
    """A duration."""
    duration_s = seconds(text)
    if not duration_s:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds > 0")
    return duration_s


def percent(text: str) -> float:
    """A tolerance."""
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")
    return percent


def experiment_options(parser: argparse.ArgumentParser) -> None:
    """The experiment file, and what is changed in it."""
    parser.add_argument("experiment", type=Path, help="experiment file (TOML)")
    override_option(parser)


def override_option(parser: argparse.ArgumentParser) -> None:
    """What is changed in an experiment."""
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="override a key of the experiment, for example method.step_size=100; may be repeated",
    )  # fmt: skip


def tolerance_option(parser: argparse.ArgumentParser) -> None:
    """Whether a run outlives a rank."""
    parser.add_argument(
        "--fault-tolerant", choices=("auto", "on", "off"), default="auto",
        help="go on without a client whose rank dies: where this MPI can (default), in any case, or not at all",
    )  # fmt: skip


def trust_option(parser: argparse.ArgumentParser) -> None:
    """Which code a run file may name."""
    parser.add_argument(
        "--trust-module", dest="trusted", action="append", default=[], metavar="PATH",
        help="code that the run file may name: an import path (package.module:function), or the file of a module "
        "(PATH/module.py) for all its functions; may be repeated",
    )  # fmt: skip


def progress_option(parser: argparse.ArgumentParser) -> None:
    """Whether progress is shown."""
    parser.add_argument(
        "--progress", choices=("auto", "always", "marked", "never"), default="auto",
        help="live progress line (default: on a terminal), or marked whole lines for a program that reads them",
    )  # fmt: skip


def json_option(parser: argparse._ActionsContainer, purpose: str = "print it as JSON, for a program") -> None:
    """Whether the answer is for a program."""
    parser.add_argument("--json", action="store_true", help=purpose)


REPORT_PURPOSE = "write one page of HTML that shows runs or sweeps in any browser, without network"
REPORT_EXAMPLE = "runs/demo -o report.html"


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """What to show, and where."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR_OR_FILE",
        help="run files, folders of run files, folders of sweeps; several are compared",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="page to write (default report.html)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    parser.add_argument(
        "--target", type=percent, default=80.0, help="accuracy that the bars show the time to, %% (default 80)"
    )
    parser.add_argument("--title", default="", help="title of the page (default: that of the sweep or experiment)")
    parser.add_argument(
        "--timeline", type=span, default=(0.0, float("inf")), metavar="START:END",
        help="seconds of the runs that the timelines show (default: from the start, as much as there is room for)",
    )  # fmt: skip
    json_option(parser)
    progress_option(parser)


def span(text: str) -> tuple[float, float]:
    """A part of a run, START:END in seconds; an end that is left out is that of the run."""
    start, colon, end = text.partition(":")
    try:
        begin_s, end_s = seconds(start or "0"), seconds(end) if end else float("inf")
    except argparse.ArgumentTypeError:
        begin_s, end_s = 0.0, 0.0
    if not colon or not begin_s < end_s:
        raise argparse.ArgumentTypeError(f"{text!r} is not START:END with 0 <= START < END in seconds; write 0:2.5")
    return begin_s, end_s


def add_reading_commands(commands: Commands) -> None:
    """All of them."""
    _checking(commands)
    _theorising(commands)
    _watching(commands)
    _replaying(commands)
    _showing(commands)
    _recovering(commands)
    _diagnosing(commands)
    _summarising(commands)
    _comparing(commands)
    _tabling(commands)
    _drawing(commands)
    add_report_options(add_command(commands, "report", REPORT_PURPOSE, REPORT_EXAMPLE))
    _examining(commands)


def _checking(commands: Commands) -> None:
    purpose = "check an experiment and print it resolved"
    parser = add_command(commands, "check", purpose, "demo.toml", exit_codes=EXIT_CODES_OF_CHECK)
    experiment_options(parser)
    parser.add_argument(
        "--ended-in",
        type=Path,
        metavar="RUN",
        help="say instead whether this run file holds it, ended; exit code 4 if it can be resumed, 1 if not",
    )
    json_option(parser)


def _theorising(commands: Commands) -> None:
    purpose = "print the constants, step sizes and server rate of the paper's theorems for an experiment"
    parser = add_command(commands, "theory", purpose, "benchmarks/experiments/demo/demo.toml --from runs/demo/area.h5")
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
    json_option(parser)
    progress_option(parser)


def _watching(commands: Commands) -> None:
    purpose = "follow a run under way, from any machine that sees its file"
    parser = add_command(commands, "watch", purpose, "runs/demo/area.h5", exit_codes=EXIT_CODES_OF_WATCH)
    parser.add_argument("run", type=Path, help="run file; it may not be there yet, and it is only read")
    parser.add_argument(
        "--interval", type=above_zero, default=1.0, metavar="SECONDS", help="time between two looks (default 1)"
    )
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument(
        "--wait", type=seconds, metavar="SECONDS",
        help="how long to wait for the file, or for news where the writer cannot be seen (default 60; 0 with --once)",
    )  # fmt: skip
    parser.add_argument(
        "--no-evaluate", dest="evaluate", action="store_false", help="do not compute loss and accuracy of snapshots"
    )
    trust_option(parser)
    json_option(parser, "print a line of JSON a look, with --once one object")


def _replaying(commands: Commands) -> None:
    purpose = "run the rule again from a run file's events, compare bits"
    parser = add_command(commands, "replay", purpose, "RUN.h5", exit_codes=EXIT_CODES_OF_REPLAY)
    parser.add_argument("run", type=Path, help="run file")
    trust_option(parser)
    json_option(parser)
    progress_option(parser)


def _showing(commands: Commands) -> None:
    parser = add_command(commands, "show", "print what a run file holds", "RUN.h5")
    parser.add_argument("run", type=Path, help="run file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--toml", action="store_true", help="print only the resolved experiment, as TOML")
    json_option(form)


def _recovering(commands: Commands) -> None:
    purpose = "save what can be saved of a damaged run file"
    parser = add_command(commands, "recover", purpose, "RUN.h5 -o SAVED.h5", exit_codes=EXIT_CODES_OF_RECOVER)
    parser.add_argument("run", type=Path, help="run file that is damaged; it stays as it is")
    parser.add_argument("-o", "--output", type=Path, required=True, help="run file to write")
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    json_option(parser)
    progress_option(parser)


def _diagnosing(commands: Commands) -> None:
    purpose = "say whether a run kept its delays and served its clients alike, and what to change"
    parser = add_command(commands, "diagnose", purpose, "RUN.h5 -o diagnosis.png")
    parser.add_argument("run", type=Path, help="run file")
    parser.add_argument("-o", "--output", type=Path, metavar="FIGURE", help="draw it here (.png, .svg or .pdf)")
    json_option(parser)


def _summarising(commands: Commands) -> None:
    parser = add_command(commands, "summary", "compare runs in a table and a plot", "runs/*.h5 --plot runs.png")
    parser.add_argument("runs", type=Path, nargs="+", help="run files")
    parser.add_argument("--target", type=float, default=80.0, help="accuracy for the time-to column, %% (default 80)")
    parser.add_argument("--plot", type=Path, help="write accuracy and loss over time here (.png, .svg or .pdf)")
    json_option(parser)


def _comparing(commands: Commands) -> None:
    purpose = "compare two runs of one experiment, in virtual and in real time"
    example = "SIM.h5 MPI.h5 --plot both.png"
    parser = add_command(commands, "compare", purpose, example, exit_codes=EXIT_CODES_OF_COMPARE)
    parser.add_argument("first", type=Path, metavar="SIM.h5", help="run file, the reference")
    parser.add_argument("second", type=Path, metavar="MPI.h5", help="run file of the same experiment")
    parser.add_argument("--plot", type=Path, help="draw one over the other here (.png, .svg or .pdf)")
    json_option(parser)
    parser.add_argument(
        "--updates-within", type=percent, default=3.0, metavar="PERCENT", help="tolerance of the updates (default 3)"
    )
    parser.add_argument(
        "--loss-within", type=percent, default=2.0, metavar="PERCENT", help="tolerance of the final loss (default 2)"
    )


def _tabling(commands: Commands) -> None:
    parser = add_command(commands, "table", "print sweeps in the form of the paper's tables", "runs/grid --paper")
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
    json_option(parser)


def _drawing(commands: Commands) -> None:
    example = "runs/grid --format svg --step-size area=1000"
    parser = add_command(commands, "figures", "draw a sweep, or the label distribution of a split", example)
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
    json_option(parser)


def _examining(commands: Commands) -> None:
    purpose = "look at MPI, launcher, threads, cores, discs and clock of this machine, and say what to fix"
    parser = add_command(commands, "doctor", purpose, "--ranks 9", exit_codes=EXIT_CODES_OF_DOCTOR)
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks that are wanted (default 2)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the run files (default runs)"
    )
    json_option(parser)


SLURM, PBS = SCHEDULERS = ("slurm", "pbs")
SRUN, MPIRUN = LAUNCHERS = ("srun", "mpirun")
OPEN_MPI, MPICH = MPIS = ("openmpi", "mpich")


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
    from areabench.cli.job import Request, Site, mpi_at_hand
    from areabench.experiment.labels import MPI

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
    example = "benchmarks/experiments/demo/demo.toml --set method.step_size=10 --output runs/try.h5"
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
    example = "benchmarks/experiments/paper/tables/grid.toml --jobs 2 --trials 1"
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
    example = "benchmarks/experiments/paper/paper.toml --scheduler slurm --nodes 4 --clients-per-rank 8 -o paper.sh"
    parser = add_command(commands, "job", "write a job script for a cluster", example)
    override_option(parser)
    add_job_options(parser, positive)
