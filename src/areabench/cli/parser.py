"""The commands that read, and their options."""

from __future__ import annotations

from pathlib import Path

from areabench.command_help import (
    EXIT_CODES_OF_CHECK,
    EXIT_CODES_OF_COMPARE,
    EXIT_CODES_OF_DOCTOR,
    EXIT_CODES_OF_RECOVER,
    EXIT_CODES_OF_REPLAY,
    EXIT_CODES_OF_WATCH,
    Commands,
    add_command,
)
from areabench.options import (
    above_zero,
    experiment_options,
    json_option,
    override_option,
    percent,
    positive,
    progress_option,
    seconds,
    trust_option,
)
from areabench.report.arguments import EXAMPLE as REPORT_EXAMPLE
from areabench.report.arguments import PURPOSE as REPORT_PURPOSE
from areabench.report.arguments import add_report_options


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
    parser = add_command(commands, "theory", purpose, "benchmarks/demo.toml --from runs/demo/area.h5")
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
    parser.add_argument("--page", type=Path, metavar="FILE", help="write one page of all sweeps against the paper")
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
