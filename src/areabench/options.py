"""Options that several commands have, and the numbers that they take."""

from __future__ import annotations

import argparse
from pathlib import Path


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
