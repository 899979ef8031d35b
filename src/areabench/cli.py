"""The command line: the only reader of argv and the environment."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from areabench.execute import Surroundings
    from areabench.progress import Style

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
EXIT_CODES = """exit codes: 0 done or target reached; 1 the run or the comparison failed; 2 bad input; 3 diverged"""


def entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name that is no text must not end in a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    for variable in _THREAD_VARIABLES:  # before numpy is loaded: one thread a rank, and the same bits on every machine
        os.environ.setdefault(variable, "1")
    options = _parser().parse_args(arguments)
    from areabench.errors import RunFailure, UserError

    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except UserError as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 2
    except RunFailure as error:
        print(f"areabench: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"areabench: not enough memory: {error}; use fewer clients, a smaller problem or data", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("areabench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `areabench show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# ---------------------------------------------------------------------------------------------------- commands


def _run(options: argparse.Namespace) -> int:
    """Real time, on the ranks of this launch."""
    from areabench import commands

    return commands.run(options.experiment, options.overrides, _surroundings(options))


def _simulate(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.simulate(options.experiment, options.overrides, _surroundings(options))


def _launch(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.launch(options.experiment, options.overrides, _surroundings(options))


def _check(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.check(options.experiment, options.overrides)


def _replay(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.replay(options.run, _cache(), _style(options))


def _show(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.show(options.run, as_toml=options.toml)


def _summary(options: argparse.Namespace) -> int:
    from areabench import commands

    return commands.summary(options.runs, options.target, options.plot)


# ---------------------------------------------------------------------------------------------------- options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="areabench",
        description="Benchmarks of asynchronous federated optimization, on MPI and in virtual time.",
        epilog=EXIT_CODES,
    )
    from areabench import __version__

    parser.add_argument("--version", action="version", version=f"areabench {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _running(commands, "simulate", _simulate, "run an experiment in virtual time, without MPI")
    _running(commands, "launch", _launch, "start mpirun on this machine and run an experiment in real time")
    _running(commands, "run", _run, "run an experiment on the MPI ranks of this launch", launcher="mpirun -n 9 ")
    check = _command(commands, "check", _check, "check an experiment and print it resolved", "demo.toml")
    _experiment_options(check)
    replay = _command(
        commands, "replay", _replay, "run the rule again from a run file's events, compare bits", "RUN.h5"
    )
    replay.add_argument("run", type=Path, help="run file")
    _progress_option(replay)
    show = _command(commands, "show", _show, "print what a run file holds", "RUN.h5")
    show.add_argument("run", type=Path, help="run file")
    show.add_argument("--toml", action="store_true", help="print only the resolved experiment, as TOML")
    summary = _command(commands, "summary", _summary, "compare runs in a table and a plot", "runs/*.h5 --plot runs.png")
    summary.add_argument("runs", type=Path, nargs="+", help="run files")
    summary.add_argument("--target", type=float, default=80.0, help="accuracy for the time-to column, %% (default 80)")
    summary.add_argument("--plot", type=Path, help="write accuracy and loss over time here (.png, .svg or .pdf)")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    purpose: str,
    example: str,
    launcher: str = "",
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=f"example: {launcher}areabench {name} {example}. {EXIT_CODES}"
    )
    parser.set_defaults(command=command)
    return parser


def _running(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    purpose: str,
    launcher: str = "",
) -> None:
    example = "benchmarks/demo.toml --set method.step_size=10 --output runs/try.h5"
    parser = _command(commands, name, command, purpose, example, launcher)
    _experiment_options(parser)
    parser.add_argument("-o", "--output", type=Path, help="run file to write (default runs/NAME-METHOD-SEED.h5)")
    parser.add_argument("--force", action="store_true", help="overwrite the run file if it exists")
    _progress_option(parser)


def _experiment_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", type=Path, help="experiment file (TOML)")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="override a key of the experiment, for example method.step_size=100; may be repeated",
    )  # fmt: skip


def _progress_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--progress", choices=("auto", "always", "marked", "never"), default="auto",
        help="live progress line (default: on a terminal), or marked whole lines for a program that reads them",
    )  # fmt: skip


def _surroundings(options: argparse.Namespace) -> Surroundings:
    from areabench.execute import Surroundings

    threads = ",".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES)
    command = shlex.join(sys.argv).encode(errors="backslashreplace").decode()
    return Surroundings(options.output, _cache(), command, threads, options.force, _style(options))


def _style(options: argparse.Namespace) -> Style:
    from areabench.progress import Style

    automatic = Style.LIVE if sys.stderr.isatty() else Style.NONE
    return {"always": Style.LIVE, "marked": Style.MARKED, "never": Style.NONE}.get(options.progress, automatic)


def _cache() -> Path:
    """Where unpacked data sets are kept."""
    if chosen := os.environ.get("AREABENCH_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "areabench"
