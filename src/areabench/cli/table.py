"""`areabench table`: tables of sweeps."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from areabench.cli import Command, CommandContext
from areabench.cli.options import json_option, percentage, spread_option, target_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.results.grouping import Page
    from areabench.results.retention import Rule
    from areabench.results.statistics import SpreadName
    from areabench.sweeps.read import Sweep
    from areabench.views.tables.forms import Sheet

_FORM_OF_SUFFIX = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv"}


def table_options(parser: argparse.ArgumentParser) -> None:
    """Folders of sweeps, the step sizes to keep, and the form of the table."""
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
        "--bound", type=_bound, default=float("inf"), metavar="LOSS",
        help="for --keep paper-rule: a larger loss counts as not finite (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--gap", type=_bound, default=float("inf"),
        help="for --keep paper-rule: a larger score gap counts as not finite; 103 as in single precision",
    )  # fmt: skip
    target_option(parser, "that rho is the time to")
    parser.add_argument("--paper", action="store_true", help="add the published values")
    spread_option(parser, "after a mean (with --paper always range)")
    parser.add_argument(
        "--format", choices=("text", "markdown", "latex", "csv"), default="text", help="printed form (default text)"
    )
    parser.add_argument(
        "-o", "--output", type=Path,
        help="write instead: a file (.txt, .md, .tex, .csv), or a folder for NAME.md, NAME.tex and NAME.csv",
    )  # fmt: skip
    json_option(parser)


def _bound(text: str) -> float:
    return float("inf") if text == "inf" else percentage(text)


class TitledTable(NamedTuple):
    """A table of a sweep, with the sweep's name and what to print above the table."""

    sweep: str
    title: str
    table: Page

    def sheets(self, spread: SpreadName, *, with_paper: bool) -> list[Sheet]:
        """The table with every cell as text; and the differences from the best, except in the form of the paper."""
        from areabench.views.tables.sheets import difference_sheet, paper_sheet, plain_sheet

        if with_paper:
            return [paper_sheet(self.table, self.title, self.sweep)]
        plain = plain_sheet(self.table, self.title, self.sweep, spread)
        apart = difference_sheet(self.table, self.title, self.sweep) if spread == "interval" else None
        return [plain] if apart is None else [plain, apart]


def table_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the tables of some sweeps, or write them."""
    from areabench.results.retention import named_rule
    from areabench.results.table import cell_values
    from areabench.sweeps.read import open_finished

    form = options.format
    output = options.output
    with_paper = options.paper
    if with_paper and options.spread == "interval":
        raise UserError("--spread interval: the paper has only the range over trials; leave it or --paper out")
    spread: SpreadName = options.spread or "interval"
    if options.json and (output or form != "text"):
        raise UserError("--json: is printed and has a form of its own; leave out --output and --format")
    rule = named_rule(options.keep or "paper-rule", options.metric, options.bound, options.gap, options.target)
    _check_target(options.target)
    if output is not None:
        _check_output(output, form)
    sweeps = open_finished(options.folders)
    for sweep in sweeps:
        if sweep.tuning is not None and options.keep is not None:
            raise UserError(f"--keep {options.keep}: {sweep.folder} is tuned and has made its choice; leave it out")
    by_sweep = [_titled(sweep, rule, options.target) for sweep in sweeps]
    tables = [titled for of_sweep in by_sweep for titled in of_sweep]
    if output is not None:
        write_tables(by_sweep, output, spread, with_paper=with_paper)
    elif form != "text":
        print(render(tables, form, spread, with_paper=with_paper), end="")
    else:
        cells = [(titled.sweep, titled.table) for titled in tables]
        context.output.answer(
            lambda: render(tables, form, spread, with_paper=with_paper),
            lambda: {"target_accuracy": options.target, "cells": list(cell_values(cells, with_paper=with_paper))},
        )
    return 0


def render(tables: Sequence[TitledTable], form: str, spread: SpreadName = "interval", *, with_paper: bool) -> str:
    """Tables in a printed form: text, markdown, latex or csv."""
    from areabench.views.styled import Styled
    from areabench.views.tables.forms import to_csv, to_latex, to_markdown, to_text

    if form == "csv":
        return to_csv([(titled.sweep, titled.table) for titled in tables], with_paper=with_paper)
    forms: dict[str, Callable[[Sheet], str]] = {"text": to_text, "markdown": to_markdown, "latex": to_latex}
    write = forms[form]
    sheets = [sheet for titled in tables for sheet in titled.sheets(spread, with_paper=with_paper)]
    return Styled("\n").join(map(write, sheets))


# ---------------------------------------------------------------------------------------------------- checking


def _check_target(target: float) -> None:
    if not 0 < target <= 100:
        raise UserError(f"--target {target:g}: must be above 0 and at most 100, in percent of test accuracy")


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


# ---------------------------------------------------------------------------------------------------- reading


def _titled(sweep: Sweep, rule: Rule, target: float) -> list[TitledTable]:
    from areabench.results.grouping import build_tables
    from areabench.results.retention import rule_of

    try:
        rule = rule_of(sweep, rule)
        tables = build_tables(sweep.plan.experiments, sweep.results, rule, target, sweep.tuned_keys)
    except UserError as error:
        raise UserError(f"{sweep.folder}: {error}") from error
    if rule.name == "published" and not any(table.cells for table in tables):
        raise UserError(f"{sweep.folder}: the paper shows none of its runs; keep them another way: --keep all")
    return [TitledTable(sweep.plan.name, _title(sweep, table), table) for table in tables]


def _title(sweep: Sweep, table: Page) -> str:
    """The sweep's own title and the setting, without repetition, and how many runs failed."""
    from areabench.views.styled import counted

    own = sweep.plan.title or sweep.plan.name
    title = table.title if table.title.startswith(own) else f"{own}: {table.title}"
    clock = "" if sweep.transport == "simulator" else ", in real time"
    failed = f" ({counted(len(sweep.failures), 'run')} failed, see failures.csv)" if sweep.failures else ""
    return title + clock + failed


# ---------------------------------------------------------------------------------------------------- writing


def write_tables(
    by_sweep: Sequence[Sequence[TitledTable]], output: Path, spread: SpreadName = "interval", *, with_paper: bool
) -> None:
    """Write all tables to a file, or those of each sweep to three files in a folder."""
    if not _is_folder(output):
        tables = [titled for of_sweep in by_sweep for titled in of_sweep]
        _write(output, render(tables, _FORM_OF_SUFFIX[output.suffix], spread, with_paper=with_paper))
        return
    names = [of_sweep[0].sweep for of_sweep in by_sweep]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{output}: two sweeps are called {repeated[0]}; write them to two folders")
    for name, of_sweep in zip(names, by_sweep, strict=True):
        for suffix in (".md", ".tex", ".csv"):
            text = render(of_sweep, _FORM_OF_SUFFIX[suffix], spread, with_paper=with_paper)
            _write(output / f"{name}{suffix}", text)


def _write(path: Path, text: str) -> None:
    from areabench.files import write_text

    write_text(path, text)
    print(f"table: {path}")


COMMAND = Command("runs/grid --paper", table_options, table_command)
