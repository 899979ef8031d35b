"""The parser: every command with its options, help, example and exit codes. It loads nothing large."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from areabench import __version__

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

SLURM, PBS = SCHEDULERS = ("slurm", "pbs")
SRUN, MPIRUN = LAUNCHERS = ("srun", "mpirun")
OPEN_MPI, MPICH = MPIS = ("openmpi", "mpich")
SHELLS = ("bash", "zsh", "fish")

# What an exit code means, by command. The help of the commands and docs/commands.md are made from this table.
_READ = {"0": "done", "2": "bad input", "130": "interrupted"}
_WATCHED = {
    "0": "done or target reached", "1": "the run failed", "2": "bad input", "3": "diverged",
    "4": "stopped by a signal, to be resumed", "130": "interrupted",
}  # fmt: skip
_RUN = _WATCHED | {"5": "ended, but its evaluation failed: `areabench evaluate` tries again"}
_LAUNCH = _RUN | {"4": "stopped by a signal, to be resumed, or to be started again if the run had not begun"}
EXIT_CODES: Mapping[str, Mapping[str, str]] = {
    "simulate": _RUN,
    "launch": _LAUNCH,
    "run": _RUN,
    "resume": _LAUNCH,
    "sweep": {
        "0": "done, also where runs diverged", "1": "a run failed, was not evaluated, or cannot be run",
        "2": "bad input",
        "129, 130 or 143": "interrupted",
    },
    "job": _READ,
    "check": {
        "0": "done; with --ended-in: 0 ended, 4 it can be resumed, 1 neither", "2": "bad input", "130": "interrupted",
    },
    "theory": _READ,
    "methods": _READ,
    "watch": _WATCHED | {
        "0": "done or target reached, with --once also running", "1": "the run failed or was killed",
        "2": "bad input, or no file or news within --wait",
    },
    "replay": _READ | {
        "0": "done, all equal: to the bit, or but for rounding where other kernels made the run",
        "1": "there is a difference",
        "3": "not comparable: under these kernels the run diverges from itself",
    },
    "evaluate": _READ | {
        "0": "done, all evaluated", "1": "an evaluation failed, its file is as it was",
        "2": "bad input, or a run that cannot be evaluated",
    },
    "show": _READ,
    "recover": _READ | {"0": "something was saved", "2": "nothing could be, or bad input"},
    "diagnose": _READ,
    "summary": _READ,
    "compare": _READ | {"0": "done, both tolerances hold", "1": "one does not"},
    "table": _READ,
    "export": _READ,
    "figures": _READ,
    "report": _READ,
    "doctor": _READ | {"0": "nothing fails", "1": "something does, and is to be fixed"},
    "completion": _READ,
}  # fmt: skip

_GROUPS = {
    "run": ("simulate", "launch", "run", "resume", "sweep", "job"),
    "look": ("watch", "show", "summary", "compare", "diagnose", "table", "figures", "report", "export"),
    "check": ("check", "methods", "theory", "replay", "evaluate", "recover", "doctor"),
    "shell": ("completion",),
}
TYPED = tuple(name for names in _GROUPS.values() for name in names)  # the commands for people; `batch` is not one
_OVERVIEW = """\
usage: areabench COMMAND ...

areabench benchmarks asynchronous federated optimisation. A first run in virtual time, and its summary:

  areabench simulate benchmarks/experiments/demo/demo.toml --output runs/first.h5
  areabench summary runs/first.h5

{commands}

`areabench COMMAND --help` lists options and exit codes of a command, `areabench --help` has one line per command."""


def overview() -> str:
    """What `areabench` alone prints: a first example, and the commands by purpose."""
    lines = [f"  {title:<6} {' '.join(names)}" for title, names in _GROUPS.items()]
    return _OVERVIEW.format(commands="\n".join(lines))


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, or of one command `only`; `command` names the chosen command."""
    parser = argparse.ArgumentParser(
        prog="areabench",
        description="Benchmarks of asynchronous federated optimisation, on MPI and in virtual time.",
        epilog="`areabench COMMAND --help` lists options and exit codes",
    )
    parser.add_argument("--version", action="version", version=f"areabench {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _simulate, _launch, _run, _resume, _sweep, _batch, _job, _check, _methods, _theory, _watch, _replay, _evaluate,
        _show,        _recover, _diagnose, _summary, _compare, _table, _figures, _report, _export, _doctor, _completion,
    ):  # fmt: skip
        if only is None or add.__name__ == f"_{only}":  # every rank of a launch makes a parser: all of it takes 7 ms
            add(commands)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by name."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


def exit_codes_text(command: str) -> str:
    """The exit codes of a command in one line: `0 done; 2 bad input; ...`."""
    codes = EXIT_CODES[command]
    order = sorted(codes, key=lambda code: int(code.split(",")[0]))
    return "; ".join(f"{code} {codes[code]}" for code in order)


def _command(commands: Commands, name: str, purpose: str, example: str, launcher: str = "") -> argparse.ArgumentParser:
    """A command without options; its help ends with an example and the exit codes."""
    epilog = f"example: {launcher}areabench {name} {example}. exit codes: {exit_codes_text(name)}"
    parser = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
    parser.set_defaults(command=name)
    return parser


# -------------------------------------------------------------------------------------------------- running


def _simulate(commands: Commands) -> None:
    _run_command(commands, "simulate", "run an experiment in virtual time, without MPI")


def _launch(commands: Commands) -> None:
    parser = _run_command(commands, "launch", "start mpirun on this machine and run an experiment in real time")
    _ranks_option(parser)
    _tolerance_option(parser)


def _run(commands: Commands) -> None:
    _run_command(commands, "run", "run an experiment on the MPI ranks of this launch", launcher="mpirun -n 9 ")


def _run_command(commands: Commands, name: str, purpose: str, launcher: str = "") -> argparse.ArgumentParser:
    example = "benchmarks/experiments/demo/demo.toml --set method.step_size=10 --output runs/try.h5"
    parser = _command(commands, name, purpose, example, launcher)
    _experiment_options(parser)
    parser.add_argument(
        "-o", "--output", type=run_file,
        help="run file to write; .h5 is added if it is missing (default runs/NAME-METHOD-SEED.h5)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    _observe_option(parser)
    _checkpoint_option(parser)
    _progress_option(parser)
    return parser


def _resume(commands: Commands) -> None:
    purpose = "continue a run that was stopped or killed, from its checkpoint"
    parser = _command(commands, "resume", purpose, "runs/demo-area-0.h5")
    parser.add_argument("run", type=Path, help="run file; what was recorded after the checkpoint is recorded again")
    _ranks_option(parser)
    _tolerance_option(parser)
    _trust_option(parser)
    _observe_option(parser)
    _checkpoint_option(parser)
    _progress_option(parser)


def _sweep(commands: Commands) -> None:
    purpose = "run grids of experiments on all cores; an interrupted sweep continues"
    example = "benchmarks/experiments/paper/tables/grid.toml --jobs 2 --trials 1"
    parser = _command(commands, "sweep", purpose, example)
    parser.add_argument("sweeps", type=Path, nargs="+", metavar="FILE", help="sweep file (TOML)")
    _override_option(parser)
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each point, instead of the file's")
    parser.add_argument(
        "-j", "--jobs", type=positive, metavar="N", help="processes (default: one per core); not on MPI"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="folder of the sweep (default runs/STEM), or of the folders of several sweeps",
    )  # fmt: skip
    parser.add_argument(
        "--transport", choices=("simulator", "mpi"), default="simulator",
        help="virtual time (default), or real time, one run after the other, in runs/STEM-mpi",
    )  # fmt: skip
    _ranks_option(parser)
    parser.add_argument(
        "--on-ranks", action="store_true",
        help="on MPI: use the ranks of this mpirun or srun instead of starting mpirun",
    )  # fmt: skip
    parser.add_argument(
        "--share", default="1/1", metavar="K/N",
        help="run only every N-th run, from the K-th on; shares may run at once, into one folder",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only print what would be run")
    parser.add_argument("--force", action="store_true", help="run again what is done")
    _progress_option(parser)


def _batch(commands: Commands) -> None:
    """A command that `sweep --transport mpi` starts under mpirun; without a help line it is not listed."""
    purpose = "make the runs of a sweep on MPI; started by `areabench sweep`, not for typing"
    parser = commands.add_parser("batch", description=purpose)
    parser.set_defaults(command="batch")
    parser.add_argument("file", type=Path)


def _job(commands: Commands) -> None:
    example = "benchmarks/experiments/paper/paper.toml --scheduler slurm --nodes 4 --clients-per-rank 8 -o paper.sh"
    parser = _command(commands, "job", "write a job script for a cluster", example)
    _override_option(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="experiment or sweep file (TOML)")
    parser.add_argument("--scheduler", choices=SCHEDULERS, required=True, help="scheduler of the cluster")
    parser.add_argument("-o", "--output", type=Path, metavar="SCRIPT", help="write it here (default: print it)")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    _job_work_options(parser)
    _job_site_options(parser)


def _job_work_options(parser: argparse.ArgumentParser) -> None:
    """What the job runs, and on how many cores."""
    parser.add_argument("--trials", type=positive, metavar="N", help="trials of a sweep, instead of the file's")
    parser.add_argument(
        "--runs", type=Path, metavar="PATH",
        help="run file or folder that the job writes (default in runs/)",
    )  # fmt: skip
    parser.add_argument(
        "--transport", choices=("mpi", "simulator"), default="mpi", help="real time (default), or virtual time"
    )
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes of a job on MPI (default 1)")
    parser.add_argument(
        "--clients-per-rank", type=positive, default=1, metavar="N",
        help="most clients per worker rank; n clients take n/N worker ranks, rounded up (default 1)",
    )  # fmt: skip
    parser.add_argument("--clients", type=positive, metavar="N", help="clients, instead of the file's clients.count")
    parser.add_argument(
        "--cores", type=positive, default=4, metavar="N", help="cores of a job in the simulator (default 4)"
    )
    parser.add_argument("--array", type=positive, metavar="N", help="for a sweep: N tasks, each with every N-th run")
    parser.add_argument("--walltime", metavar="HH:MM:SS", help="replaces the estimate, which the script explains")


def _job_site_options(parser: argparse.ArgumentParser) -> None:
    """What the cluster needs to know or to load."""
    parser.add_argument(
        "--module", dest="modules", action="append", default=[], metavar="NAME",
        help="`module load` this in the job; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--venv", type=Path, metavar="DIR", help="environment to activate (default: this command's own)"
    )
    parser.add_argument(
        "--launcher", choices=LAUNCHERS, help="what starts the ranks (default: srun on Slurm, mpirun on PBS)"
    )
    parser.add_argument("--mpi", choices=MPIS, help="family of the job's MPI (default: that of mpirun here)")
    parser.add_argument("--account", help="account or project to charge")
    parser.add_argument("--partition", "--queue", dest="queue", help="Slurm's partition, PBS's queue")
    parser.add_argument("--memory", dest="memory_mb", type=positive, metavar="MB", help="memory of each core")
    parser.add_argument(
        "--exclusive", action=argparse.BooleanOptionalAction,
        help="whole nodes: no other jobs beside this one, which would disturb its delays (default: on MPI)",
    )  # fmt: skip
    parser.add_argument(
        "--directive", dest="directives", action="append", default=[], metavar="NAME=VALUE",
        help="another line for the scheduler: qos=long, constraint=skylake, mail-user=ME on Slurm, m=abe, "
        "W=group_list=G on PBS; repeatable",
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------- experiments


def _check(commands: Commands) -> None:
    parser = _command(
        commands, "check", "check an experiment, its data and own parts, and print it resolved", "demo.toml"
    )
    _experiment_options(parser)
    parser.add_argument(
        "--ended-in", type=Path, metavar="RUN",
        help="report instead whether this run file holds an ended run of it",
    )  # fmt: skip
    _json_option(parser)


def _methods(commands: Commands) -> None:
    purpose = "list all methods: who chooses the clients, exact or biased, memory, paper; or the keys of one"
    parser = _command(commands, "methods", purpose, "fedasync")
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the keys of this method too")
    _json_option(parser)


def _theory(commands: Commands) -> None:
    purpose = "print the constants, step sizes and server rate of the paper's theorems for an experiment"
    example = "benchmarks/experiments/demo/demo.toml --from runs/demo/area.h5"
    parser = _command(commands, "theory", purpose, example)
    _experiment_options(parser)
    parser.add_argument(
        "--from", dest="measured_in", type=Path, metavar="RUN", help="take the rates measured in this run file"
    )
    parser.add_argument(
        "--solve", action="store_true",
        help="for the bounds, also solve for slow minimisers (logistic, hinge)",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the experiment that the theorems suggest")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    _json_option(parser)
    _progress_option(parser)


# -------------------------------------------------------------------------------------------------- run files


def _watch(commands: Commands) -> None:
    purpose = "follow a run under way, from any machine that sees its file"
    parser = _command(commands, "watch", purpose, "runs/demo/area.h5")
    parser.add_argument("run", type=Path, help="run file; it may not exist yet, and is only read")
    parser.add_argument(
        "--interval", type=above_zero, default=1.0, metavar="SECONDS", help="time between two looks (default 1)"
    )
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument(
        "--wait", type=seconds, metavar="SECONDS",
        help="how long to wait for the file, or for news if the writer cannot be seen (default 60; 0 with --once)",
    )  # fmt: skip
    parser.add_argument(
        "--no-evaluate", dest="evaluate", action="store_false", help="do not compute loss and accuracy of snapshots"
    )
    _trust_option(parser)
    _json_option(parser, "print one line of JSON per look, with --once one object")


def _replay(commands: Commands) -> None:
    purpose = "run the method again from the events of a run file and compare bit for bit"
    parser = _command(commands, "replay", purpose, "RUN.h5")
    parser.add_argument("run", type=Path, help="run file")
    parser.add_argument(
        "--exact", action="store_true",
        help="where other kernels made the run, start again with those and compare every bit (default: compare it then "
        "within rounding)",
    )  # fmt: skip
    _trust_option(parser)
    _json_option(parser)
    _progress_option(parser)


def _evaluate(commands: Commands) -> None:
    purpose = "compute loss and accuracy of a run's snapshots again, and put them into its file"
    parser = _command(commands, "evaluate", purpose, "RUN.h5")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run files of runs that have ended")
    _trust_option(parser)
    _json_option(parser)
    _progress_option(parser)


def _show(commands: Commands) -> None:
    parser = _command(commands, "show", "print what a run file holds", "RUN.h5")
    parser.add_argument("run", type=Path, help="run file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--toml", action="store_true", help="print only the resolved experiment, as TOML")
    _json_option(form)


def _recover(commands: Commands) -> None:
    parser = _command(commands, "recover", "save what can be saved of a damaged run file", "RUN.h5 -o SAVED.h5")
    parser.add_argument("run", type=Path, help="damaged run file; it is not changed")
    parser.add_argument("-o", "--output", type=run_file, required=True, help="run file to write")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    _json_option(parser)
    _progress_option(parser)


def _diagnose(commands: Commands) -> None:
    purpose = "report whether a run kept its delays and served its clients alike, and what to change"
    parser = _command(commands, "diagnose", purpose, "RUN.h5 -o diagnosis.png")
    parser.add_argument("run", type=Path, help="run file")
    parser.add_argument("-o", "--output", type=Path, metavar="FIGURE", help="draw it here (.png, .svg or .pdf)")
    _json_option(parser)


def _summary(commands: Commands) -> None:
    parser = _command(commands, "summary", "compare runs in a table and a plot", "runs/demo --plot runs.png")
    parser.add_argument("runs", type=Path, nargs="+", help="run files, or folders of them")
    parser.add_argument("--target", type=percent, default=80.0, help="accuracy for the time-to column, %% (default 80)")
    parser.add_argument("--plot", type=Path, help="write accuracy and loss over time here (.png, .svg or .pdf)")
    _json_option(parser)


def _compare(commands: Commands) -> None:
    purpose = "compare two runs of one experiment, in virtual and in real time"
    parser = _command(commands, "compare", purpose, "SIM.h5 MPI.h5 --plot both.png")
    parser.add_argument("first", type=Path, metavar="SIM.h5", help="run file, the reference")
    parser.add_argument("second", type=Path, metavar="MPI.h5", help="run file of the same experiment")
    parser.add_argument("--plot", type=Path, help="draw both in one figure here (.png, .svg or .pdf)")
    _json_option(parser)
    parser.add_argument(
        "--updates-within", type=percent, default=3.0, metavar="PERCENT", help="tolerance of the updates (default 3)"
    )
    parser.add_argument(
        "--loss-within", type=percent, default=2.0, metavar="PERCENT", help="tolerance of the final loss (default 2)"
    )


# -------------------------------------------------------------------------------------------------- sweeps, pages


def _table(commands: Commands) -> None:
    parser = _command(commands, "table", "print sweeps in the form of the paper's tables", "runs/grid --paper")
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folder of a sweep")
    parser.add_argument(
        "--keep", choices=("published", "paper-rule", "best", "all"),
        help="step sizes: the paper's, the two largest with a finite loss in all trials (default), the best by "
        "--metric on half of the trials and shown on the others, or all",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=("accuracy", "loss", "time"), default="accuracy", help="for --keep best (default accuracy)"
    )
    parser.add_argument(
        "--bound", type=bound, default=float("inf"), metavar="LOSS",
        help="for --keep paper-rule: a larger loss counts as not finite (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--gap", type=bound, default=float("inf"),
        help="for --keep paper-rule: a larger score gap counts as not finite; 103 as in single precision",
    )  # fmt: skip
    parser.add_argument(
        "--target", type=percent, default=80.0, help="accuracy that rho is the time to, %% (default 80)"
    )
    parser.add_argument("--paper", action="store_true", help="add the published values")
    _spread_option(parser, "after a mean (with --paper always range)")
    parser.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv"), default="text", help="printed form (default text)"
    )
    parser.add_argument(
        "-o", "--output", type=Path,
        help="write instead: a file (.txt, .md, .tex, .csv), or a folder for NAME.md, NAME.tex and NAME.csv",
    )  # fmt: skip
    _json_option(parser)


def _export(commands: Commands) -> None:
    purpose = "write a run or a sweep as plain tables: events, metrics, clients; or runs, metrics, table"
    parser = _command(commands, "export", purpose, "runs/demo/area.h5 --to csv")
    parser.add_argument("source", type=Path, metavar="RUN_OR_SWEEP", help="run file, or folder of a sweep")
    parser.add_argument(
        "--to", choices=("csv", "parquet", "json"), required=True, help="form of the files; Parquet needs pyarrow"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder (default: RUN without .h5, or SWEEP/export)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    _json_option(parser)


def _figures(commands: Commands) -> None:
    example = "runs/grid --format svg --step-size area=1000"
    parser = _command(commands, "figures", "draw a sweep, or the label distribution of a split", example)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="folder of a sweep")
    what.add_argument("--split", type=Path, metavar="FILE", help="draw the labels of this experiment's clients")
    _override_option(parser)
    parser.add_argument(
        "-o", "--output", type=Path,
        help="folder of the figures (default DIR/figures), or one .pdf of all; with --split a file (default "
        "runs/STEM-labels)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("png", "svg", "pdf", "both"), default="both",
        help="format of the files (default png and svg)",
    )  # fmt: skip
    parser.add_argument(
        "--step-size", dest="step_sizes", action="append", default=[], metavar="METHOD=ALPHA",
        help="step size to draw for a method (default: the best mean final accuracy); repeatable",
    )  # fmt: skip
    parser.add_argument("--target", type=percent, default=80.0, help="accuracy of the target line, %% (default 80)")
    _spread_option(parser, "bands and whiskers")
    _json_option(parser)


def _report(commands: Commands) -> None:
    purpose = "write one HTML page of runs or sweeps, for any browser, without network"
    parser = _command(commands, "report", purpose, "runs/demo -o report.html")
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR_OR_FILE",
        help="run files, folders of run files, folders of sweeps",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="page to write (default report.html)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_argument(
        "--target", type=percent, default=80.0, help="accuracy that the bars show the time to, %% (default 80)"
    )
    _spread_option(parser, "bands and whiskers")
    parser.add_argument("--title", default="", help="title of the page (default: that of the sweep or experiment)")
    parser.add_argument(
        "--timeline", type=span, default=(0.0, float("inf")), metavar="START:END",
        help="seconds that the timelines show (default: from the start, as much as fits)",
    )  # fmt: skip
    _json_option(parser)
    _progress_option(parser)


# -------------------------------------------------------------------------------------------------- the machine


def _doctor(commands: Commands) -> None:
    purpose = "check MPI, launcher, threads, cores, discs and clock of this machine, and say what to fix"
    parser = _command(commands, "doctor", purpose, "--ranks 9")
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="ranks wanted (default 2)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the run files (default runs)"
    )
    _json_option(parser)


def _completion(commands: Commands) -> None:
    example = "bash > ~/.local/share/bash-completion/completions/areabench"
    parser = _command(commands, "completion", "print a completion script for a shell", example)
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")


# -------------------------------------------------------------------------------------------------- shared options


def _experiment_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, help="experiment file (TOML)")
    _override_option(parser)


def _override_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="override a key, such as method.step_size=100; repeatable",
    )  # fmt: skip


def _spread_option(parser: argparse.ArgumentParser, where: str) -> None:
    """How the trials' spread is shown."""
    parser.add_argument(
        "--spread", choices=("interval", "range"),
        help=f"{where}: the 95 %% interval of the mean (default), or smallest to largest value as in the paper",
    )  # fmt: skip


def _ranks_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--ranks", type=positive, metavar="N",
        help="MPI ranks, 2 to clients + 1: the server's, and those that share the clients (default clients + 1); with "
        "[privacy] one more, the helper's",
    )  # fmt: skip


def _tolerance_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fault-tolerant", choices=("auto", "on", "off"), default="auto",
        help="continue without a client whose rank dies: where this MPI can (default), always, or never",
    )  # fmt: skip


def _observe_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--observe", action="append", default=[], dest="observers", metavar="OBSERVER",
        help="tell an observer of events and snapshots: csv=FOLDER, jsonl=FILE, tensorboard=FOLDER or module:function; "
        "may be repeated",
    )  # fmt: skip


def _checkpoint_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-every", type=seconds, default=60.0, metavar="SECONDS",
        help="real time between checkpoints for `areabench resume` (default 60; 0: only at a signal)",
    )  # fmt: skip


def _trust_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-module", dest="trusted", action="append", default=[], metavar="PATH",
        help="code that the run file may name: an import path (package.module:function), or a file "
        "(PATH/module.py) with all its functions; repeatable",
    )  # fmt: skip


def _progress_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--progress", choices=("auto", "always", "marked", "never"), default="auto",
        help="live progress line (default: on a terminal), or `marked` whole lines for programs",
    )  # fmt: skip


def _json_option(parser: argparse._ActionsContainer, purpose: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=purpose)


# -------------------------------------------------------------------------------------------------- values


def run_file(text: str) -> Path:
    """A run file to write: commands that read folders look for names that end in .h5."""
    path = Path(text)
    if path.suffix in (".h5", ".hdf5") or os.path.lexists(path) or not path.name or text.endswith("/"):
        return path
    return path.with_name(f"{path.name}.h5")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return int(text)


def seconds(text: str) -> float:
    """A duration in seconds, or zero."""
    return _number(text, lambda value: value >= 0, "a number of seconds >= 0")


def above_zero(text: str) -> float:
    """A duration in seconds."""
    return _number(text, lambda value: value > 0, "a number of seconds > 0")


def percent(text: str) -> float:
    """A tolerance or an accuracy in percent."""
    return _number(text, lambda value: value >= 0, "a number >= 0")


def bound(text: str) -> float:
    """A bound of a loss, which may be infinite."""
    return float("inf") if text == "inf" else percent(text)


def span(text: str) -> tuple[float, float]:
    """A part of a run, START:END in seconds; an end that is left out is that of the run."""
    start, colon, end = text.partition(":")
    try:
        start_s, end_s = seconds(start or "0"), seconds(end) if end else float("inf")
    except argparse.ArgumentTypeError:
        start_s, end_s = 0.0, 0.0
    if not colon or not start_s < end_s:
        raise argparse.ArgumentTypeError(f"{text!r} is not START:END with 0 <= START < END in seconds; write 0:2.5")
    return start_s, end_s


def _number(text: str, allowed: Callable[[float], bool], limit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not allowed(value) or value == float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {limit}")
    return value
