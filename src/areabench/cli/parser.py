"""The commands, and the parser of the command line, with options from the commands' own files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from areabench import __version__
from areabench.cli import Command

_GROUPS = {
    "run": {
        "simulate": "run an experiment in virtual time, without MPI",
        "launch": "start mpirun on this machine and run an experiment in real time",
        "run": "run an experiment on the MPI ranks of this launch",
        "resume": "continue a run that was stopped or killed, from its checkpoint",
        "sweep": "run grids of experiments on all cores; an interrupted sweep continues",
        "job": "write a job script for a cluster",
    },
    "look": {
        "watch": "follow a run under way, from any machine that sees its file",
        "show": "print what a run file holds",
        "summary": "compare runs in a table and a plot",
        "compare": "compare two runs of one experiment, in virtual and in real time",
        "diagnose": "report whether a run kept its delays and served its clients alike, and what to change",
        "table": "print sweeps as tables",
        "figures": "draw a sweep, or the label distribution of a split",
        "report": "write one HTML page of runs or sweeps, for any browser, without network",
        "export": "write a run or a sweep as plain tables: events, metrics, clients; or runs, metrics, table",
    },
    "check": {
        "check": "check an experiment, its data and own parts, and print it resolved",
        "methods": "list all methods: who chooses the clients, exact or biased, memory, paper; or the keys of one",
        "theory": "print the constants, step sizes and server rate of the paper's theorems for an experiment",
        "replay": "run the method again from the events of a run file and compare bit for bit",
        "evaluate": "compute loss and accuracy of a run's snapshots again, and put them into its file",
        "recover": "save what can be saved of a damaged run file",
        "doctor": "check MPI, launcher, threads, cores, discs and clock of this machine, and say what to fix",
    },
    "shell": {
        "completion": "print a completion script for a shell",
    },
}
TYPED = {name: purpose for group in _GROUPS.values() for name, purpose in group.items()}  # by people
COMMANDS = (*TYPED, "batch")  # which `sweep` starts under mpirun
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


def command_of(name: str) -> Command:
    """The command of this name; its file is loaded now."""
    command: Command = import_module(f"areabench.cli.{name}").COMMAND
    return command


def build_parser(names: Iterable[str] = COMMANDS, *, with_options: bool = True) -> argparse.ArgumentParser:
    """The parser of some commands; `command` names the chosen one. Without options no file of a command is loaded."""
    parser = argparse.ArgumentParser(
        prog="areabench",
        description="Benchmarks of asynchronous federated optimisation, on MPI and in virtual time.",
        epilog="`areabench COMMAND --help` lists options and exit codes",
    )
    parser.add_argument("--version", action="version", version=f"areabench {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in names:
        listed: dict[str, Any] = {"help": TYPED[name]} if name in TYPED else {}
        own = commands.add_parser(name, **listed)
        own.set_defaults(command=name)
        if with_options:
            command = command_of(name)
            example = f"example: {command.launcher}areabench {name} {command.example}"
            own.description = TYPED.get(name)
            own.epilog = f"{example}. exit codes: {exit_codes_text(command)}"
            command.add_options(own)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by name."""
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


def exit_codes_text(command: Command) -> str:
    """The exit codes of a command in one line: `0 done; 2 bad input; ...`."""
    codes = sorted(command.exit_codes.items(), key=lambda item: int(item[0].split(",")[0]))
    return "; ".join(f"{code} {meaning}" for code, meaning in codes)
