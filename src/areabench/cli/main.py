"""The entry of the command line: read argv and the environment, call one command, turn errors into exit codes."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from areabench.cli import THREAD_VARIABLES, CommandContext
from areabench.cli.parser import TYPED, build_parser, overview

# The module of areabench.cli that has each command, as a function of the same name.
COMMANDS = {
    "simulate": "run",
    "launch": "run",
    "run": "run",
    "resume": "run",
    "batch": "run",
    "sweep": "sweep",
    "job": "job",
    "check": "read",
    "theory": "read",
    "show": "read",
    "summary": "read",
    "diagnose": "read",
    "compare": "read",
    "replay": "read",
    "watch": "watch",
    "recover": "recover",
    "table": "table",
    "figures": "figures",
    "report": "report",
    "doctor": "doctor",
    "completion": "completion",
}
_STARTING_RANKS = ("launch", "resume", "sweep", "doctor")  # on this machine


def entry() -> NoReturn:
    """The console script."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how the line may continue
        from areabench.cli.completion import complete

        complete(build_parser())
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name that is no text must not end in a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    for variable in THREAD_VARIABLES:  # before numpy is loaded: one thread per rank, the same bits on every machine
        os.environ.setdefault(variable, "1")
    if not arguments:
        print(overview(), file=sys.stderr)
        return 2
    if arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        from areabench.experiment.parse import unknown

        print(f"areabench: {unknown('command', arguments[0], TYPED)}", file=sys.stderr)
        return 2
    options = build_parser().parse_args(arguments)
    _set_mpi_defaults(options.command)
    from areabench.errors import RunFailure, UserError
    from areabench.files import check_paths

    try:
        check_paths(vars(options))
        return _function(options.command)(options, _context(options))
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
    except BrokenPipeError:  # the reader of our output has left, as in `areabench show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _function(command: str) -> Callable[[argparse.Namespace, CommandContext], int]:
    """The function that does what a command says; its module is loaded now."""
    function: Callable[[argparse.Namespace, CommandContext], int]
    function = getattr(import_module(f"areabench.cli.{COMMANDS[command]}"), command)
    return function


def _context(options: argparse.Namespace) -> CommandContext:
    typed = shlex.join(sys.argv).encode(errors="backslashreplace").decode()
    return CommandContext(
        os.environ, typed, getattr(options, "progress", "never"), as_json=getattr(options, "json", False)
    )


def _set_mpi_defaults(command: str) -> None:
    """Tune MPI, before it is loaded or started; what the user has set stays."""
    from areabench.launch.families import ALLOCATIONS, MPI_DEFAULTS, ONE_MACHINE

    alone = command in _STARTING_RANKS and not any(variable in os.environ for variable in ALLOCATIONS)
    for variable, value in {**MPI_DEFAULTS, **(ONE_MACHINE if alone else {})}.items():
        os.environ.setdefault(variable, value)
