"""`areabench export`: a run or a sweep as plain tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.cli import Command, CommandContext
from areabench.cli.options import force_option, json_option


def export_options(parser: argparse.ArgumentParser) -> None:
    """A run or a sweep, and the form and folder of the tables."""
    parser.add_argument("source", type=Path, metavar="RUN_OR_SWEEP", help="run file, or folder of a sweep")
    parser.add_argument(
        "--to", choices=("csv", "parquet", "json"), required=True, help="form of the files; Parquet needs pyarrow"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder (default: RUN without .h5, or SWEEP/export)"
    )
    force_option(parser, "overwrite files that exist")
    json_option(parser)


def export_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Write a run or a sweep as plain tables."""
    from areabench import api

    paths = api.export(options.source, options.output, to=options.to, force=options.force)
    context.output.answer(lambda: "".join(f"{path}\n" for path in paths), lambda: {"files": paths})
    return 0


COMMAND = Command(
    "runs/demo/area.h5 --to csv",
    export_options,
    export_command,
)
