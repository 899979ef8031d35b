"""Options that several commands have, and what their values may be."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from areabench.files import run_file_path


def experiment_options(parser: argparse.ArgumentParser) -> None:
    """An experiment file, and what is changed in it."""
    parser.add_argument("experiment", type=Path, help="experiment file (TOML)")
    set_option(parser)


def set_option(parser: argparse.ArgumentParser) -> None:
    """Keys of an experiment."""
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="override a key, such as method.step_size=100; repeatable",
    )  # fmt: skip


def new_run_options(parser: argparse.ArgumentParser) -> None:
    """A run of an experiment, and how it is recorded."""
    experiment_options(parser)
    parser.add_argument(
        "-o", "--output", type=run_file_path,
        help="run file to write; .h5 is added if it is missing (default runs/NAME-METHOD-SEED.h5)",
    )  # fmt: skip
    force_option(parser)
    recording_options(parser)


def recording_options(parser: argparse.ArgumentParser) -> None:
    """How a run is recorded and followed."""
    parser.add_argument(
        "--observe", action="append", default=[], dest="observers", metavar="OBSERVER",
        help="tell an observer of events and snapshots: csv=FOLDER, jsonl=FILE, tensorboard=FOLDER or module:function; "
        "may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint-every", type=seconds, default=60.0, metavar="SECONDS",
        help="real time between checkpoints for `areabench resume` (default 60; 0: only at a signal)",
    )  # fmt: skip
    progress_option(parser)


def ranks_options(parser: argparse.ArgumentParser) -> None:
    """How many ranks are started, and what happens when one dies."""
    ranks_option(parser)
    parser.add_argument(
        "--fault-tolerant", choices=("auto", "on", "off"), default="auto",
        help="continue without a client whose rank dies: where this MPI can (default), always, or never",
    )  # fmt: skip


def ranks_option(parser: argparse.ArgumentParser) -> None:
    """How many ranks are started."""
    parser.add_argument(
        "-n", "--ranks", type=positive, metavar="N",
        help="MPI ranks, 2 to clients + 1: the server's, and those that share the clients (default clients + 1); with "
        "[privacy] one more, the helper's",
    )  # fmt: skip


def run_argument(parser: argparse.ArgumentParser, purpose: str = "run file") -> None:
    """A run file to read."""
    parser.add_argument("run", type=Path, help=purpose)


def trust_option(parser: argparse.ArgumentParser) -> None:
    """Code that may be called."""
    parser.add_argument(
        "--trust-module", dest="trusted", action="append", default=[], metavar="PATH",
        help="code that the run file may name: an import path (package.module:function), or a file "
        "(PATH/module.py) with all its functions; repeatable",
    )  # fmt: skip


def target_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """An accuracy to reach."""
    parser.add_argument("--target", type=percentage, default=80.0, help=f"accuracy {purpose}, %% (default 80)")


def spread_option(parser: argparse.ArgumentParser, where: str) -> None:
    """How the trials' spread is shown."""
    parser.add_argument(
        "--spread", choices=("interval", "range"),
        help=f"{where}: the 95 %% interval of the mean (default), or smallest to largest value as in the paper",
    )  # fmt: skip


def force_option(parser: argparse.ArgumentParser, purpose: str = "overwrite the file if it exists") -> None:
    """Whether files may be overwritten."""
    parser.add_argument("--force", action="store_true", help=purpose)


def progress_option(parser: argparse.ArgumentParser) -> None:
    """Whether progress is shown."""
    parser.add_argument(
        "--progress", choices=("auto", "always", "marked", "never"), default="auto",
        help="live progress line (default: on a terminal), or `marked` whole lines for programs",
    )  # fmt: skip


def json_option(parser: argparse._ActionsContainer, purpose: str = "print JSON") -> None:
    """Whether the answer is for programs."""
    parser.add_argument("--json", action="store_true", help=purpose)


# -------------------------------------------------------------------------------------------------- values


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return int(text)


def seconds(text: str) -> float:
    """A duration in seconds, or zero."""
    return _number(text, "a number of seconds >= 0")


def percentage(text: str) -> float:
    """A tolerance or an accuracy in percent."""
    return _number(text, "a number >= 0")


def _number(text: str, limit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not {limit}")
    return value
