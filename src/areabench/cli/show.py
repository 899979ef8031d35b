"""`areabench show`: what a run file holds."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from areabench.cli import Command, CommandContext
from areabench.cli.options import json_option, run_argument

if TYPE_CHECKING:
    from areabench.runfile.read import Run


def show_options(parser: argparse.ArgumentParser) -> None:
    """A run file, and the form of the answer."""
    run_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--toml", action="store_true", help="print only the resolved experiment, as TOML")
    json_option(form)


def show_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print what a run file holds."""
    import numpy as np

    from areabench.runfile.read import open_run
    from areabench.settings.parse import to_toml

    with open_run(options.run) as recorded, np.errstate(over="ignore", invalid="ignore"):  # it may hold any numbers
        if options.toml:
            sys.stdout.write(to_toml(recorded.experiment))
            return 0
        from areabench.views.text import describe_run

        context.output.answer(lambda: describe_run(recorded), lambda: _run_record(recorded))
    return 0


def _run_record(recorded: Run) -> dict[str, Any]:
    from areabench.views.json import run_record  # with comparisons, which no text needs

    return run_record(recorded)


COMMAND = Command("RUN.h5", show_options, show_command)
