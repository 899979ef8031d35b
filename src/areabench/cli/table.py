"""`areabench table`: tables of sweeps."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext
from areabench.cli.options import json_option, spread_option, target_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.results.grouping import Comparison
    from areabench.results.statistics import SpreadName
    from areabench.views.tables.forms import Sheet

_FORM_OF_SUFFIX = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv"}


def table_options(parser: argparse.ArgumentParser) -> None:
    """Folders of sweeps, the step sizes to keep, and the form of the table."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folder of a sweep")
    parser.add_argument(
        "--keep", choices=("best", "all"),
        help="step sizes: of each method the best by --metric on half of the trials, shown on the others, or all "
        "(default)",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=("accuracy", "loss", "time"), default="accuracy", help="for --keep best (default accuracy)"
    )
    target_option(parser, "that rho is the time to")
    spread_option(parser, "after a mean")
    parser.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv"), default="text", help="printed form (default text)"
    )
    parser.add_argument(
        "-o", "--output", type=Path,
        help="write instead: a file (.txt, .md, .tex, .csv), or a folder for NAME.md, NAME.tex and NAME.csv",
    )  # fmt: skip
    json_option(parser)


def table_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the tables of some sweeps, or write them."""
    from areabench.results.grouping import comparisons_of
    from areabench.results.retention import named_rule
    from areabench.results.table import cell_values
    from areabench.sweeps.read import open_finished

    if options.json and (options.output or options.format != "text"):
        raise UserError("--json: is printed and has a form of its own; leave out --output and --format")
    rule = named_rule(options.keep or "all", options.metric, options.target)
    if not 0 < options.target <= 100:
        raise UserError(f"--target {options.target:g}: must be above 0 and at most 100, in percent of test accuracy")
    if options.output is not None:
        _check_output(options.output, options.format)
    spread: SpreadName = options.spread or "interval"
    sweeps = open_finished(options.folders)
    names = [sweep.plan.name for sweep in sweeps]
    if options.output is not None and _is_folder(options.output) and len(set(names)) < len(names):
        repeated = min(name for name in names if names.count(name) > 1)
        raise UserError(f"{options.output}: two sweeps are called {repeated}; write them to two folders")
    comparisons: list[Comparison] = []
    for sweep in sweeps:
        if sweep.tuning is not None and options.keep is not None:
            raise UserError(f"--keep {options.keep}: {sweep.folder} is tuned and has made its choice; leave it out")
        try:
            comparisons += comparisons_of(sweep, rule, options.target)
        except UserError as error:
            raise UserError(f"{sweep.folder}: {error}") from error
    if options.output is not None:
        _write_tables(comparisons, options, spread)
    elif options.format != "text":
        print(render(comparisons, options.format, spread), end="")
    else:
        context.output.answer(
            lambda: render(comparisons, "text", spread),
            lambda: {"target_accuracy": options.target, "cells": list(cell_values(comparisons))},
        )
    return 0


def render(comparisons: Sequence[Comparison], form: str, spread: SpreadName = "interval") -> str:
    """Tables in a printed form: text, markdown, latex or csv."""
    from areabench.results.table import CELL_COLUMNS, cell_values
    from areabench.views.styled import Styled
    from areabench.views.tables.forms import as_csv, as_latex, as_markdown, as_text
    from areabench.views.tables.sheets import sheets_of

    if form == "csv":
        return as_csv(CELL_COLUMNS, cell_values(comparisons))
    forms: dict[str, Callable[[Sheet], str]] = {"text": as_text, "markdown": as_markdown, "latex": as_latex}
    write = forms[form]
    return Styled("\n").join(write(sheet) for comparison in comparisons for sheet in sheets_of(comparison, spread))


# ---------------------------------------------------------------------------------------------------- writing


def _check_output(output: Path, form: str) -> None:
    """Refuse an unknown suffix, and a form (text is the default) that is not the suffix's."""
    if _is_folder(output):
        if form != "text":
            raise UserError(f"{output}: a folder gets Markdown, LaTeX and CSV, not only {form}; leave --format out")
        return
    if output.suffix not in _FORM_OF_SUFFIX:
        known = ", ".join(_FORM_OF_SUFFIX)
        raise UserError(f"{output}: cannot write {output.suffix}; end it with one of {known}, or give a folder")
    if form not in ("text", _FORM_OF_SUFFIX[output.suffix]):
        raise UserError(f"{output}: {output.suffix} is not {form}; give another suffix, or leave --format out")


def _is_folder(output: Path) -> bool:
    return output.is_dir() or not output.suffix


def _write_tables(comparisons: Sequence[Comparison], options: argparse.Namespace, spread: SpreadName) -> None:
    """Write all tables to a file, or those of each sweep to three files in a folder."""
    from areabench.files import write_text

    output: Path = options.output
    paths = {output: comparisons}
    if _is_folder(output):
        by_sweep: dict[str, list[Comparison]] = {}
        for comparison in comparisons:
            by_sweep.setdefault(comparison.sweep, []).append(comparison)
        paths = {
            output / f"{name}{suffix}": found for name, found in by_sweep.items() for suffix in (".md", ".tex", ".csv")
        }
    for path, found in paths.items():
        write_text(path, render(found, _FORM_OF_SUFFIX[path.suffix], spread))
        print(f"table: {path}")


COMMAND = Command("runs/grid --keep best", table_options, table_command)
