"""`areabench table` and `areabench export`: tables of sweeps and runs, for people and for programs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from areabench.cli import CommandContext
from areabench.errors import UserError
from areabench.files import write_text
from areabench.results.grouping import Page, build_tables
from areabench.results.retention import Rule, named_rule, rule_of
from areabench.results.statistics import SpreadName
from areabench.results.table import CELL_COLUMNS, cell_values
from areabench.sweeps.read import Sweep, open_finished
from areabench.views.styled import Styled, counted
from areabench.views.tables.forms import Sheet, to_csv, to_latex, to_markdown, to_text
from areabench.views.tables.sheets import difference_sheet, plain_sheet

_FORM_OF_SUFFIX = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv"}


@dataclass(frozen=True)
class TitledTable:
    """A table of a sweep, with the sweep's name and what to print above the table."""

    sweep: str
    title: str
    table: Page

    def sheets(self, spread: SpreadName) -> list[Sheet]:
        """The table with every cell as text; and with intervals the differences from the best."""
        plain = plain_sheet(self.table, self.title, self.sweep, spread)
        apart = difference_sheet(self.table, self.title, self.sweep) if spread == "interval" else None
        return [plain] if apart is None else [plain, apart]


def table(options: argparse.Namespace, context: CommandContext) -> int:
    """Print the tables of some sweeps, or write them."""
    form, output = options.format, options.output
    spread: SpreadName = options.spread or "interval"
    if options.json and (output or form != "text"):
        raise UserError("--json: is printed and has a form of its own; leave out --output and --format")
    rule = named_rule(options.keep or "all", options.metric, options.target)
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
        write_tables(by_sweep, output, spread)
    elif form != "text":
        print(render(tables, form, spread), end="")
    else:
        cells = [(titled.sweep, titled.table) for titled in tables]
        context.output.answer(
            lambda: render(tables, form, spread),
            lambda: {"target_accuracy": options.target, "cells": list(cell_values(cells))},
        )
    return 0


def export(options: argparse.Namespace, context: CommandContext) -> int:
    """Write a run or a sweep as plain tables."""
    from areabench import api

    paths = api.export(options.source, options.output, to=options.to, force=options.force)
    context.output.answer(lambda: "".join(f"{path}\n" for path in paths), lambda: {"files": paths})
    return 0


def render(tables: Sequence[TitledTable], form: str, spread: SpreadName = "interval") -> str:
    """Tables in a printed form: text, markdown, latex or csv."""
    if form == "csv":
        return to_csv(CELL_COLUMNS, cell_values([(titled.sweep, titled.table) for titled in tables]))
    forms: dict[str, Callable[[Sheet], str]] = {"text": to_text, "markdown": to_markdown, "latex": to_latex}
    write = forms[form]
    sheets = [sheet for titled in tables for sheet in titled.sheets(spread)]
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
    try:
        rule = rule_of(sweep, rule)
        tables = build_tables(sweep.plan.experiments, sweep.results, rule, target, sweep.tuned_keys)
    except UserError as error:
        raise UserError(f"{sweep.folder}: {error}") from error
    return [TitledTable(sweep.plan.name, table_title(sweep, table), table) for table in tables]


def table_title(sweep: Sweep, table: Page) -> str:
    """The sweep's own title and the setting, without repetition, and how many runs failed."""
    own = sweep.plan.title or sweep.plan.name
    title = table.title if table.title.startswith(own) else f"{own}: {table.title}"
    clock = "" if sweep.transport == "simulator" else ", in real time"
    failed = f" ({counted(len(sweep.failures), 'run')} failed, see failures.csv)" if sweep.failures else ""
    return title + clock + failed


# ---------------------------------------------------------------------------------------------------- writing


def write_tables(by_sweep: Sequence[Sequence[TitledTable]], output: Path, spread: SpreadName = "interval") -> None:
    """Write all tables to a file, or those of each sweep to three files in a folder."""
    if not _is_folder(output):
        tables = [titled for of_sweep in by_sweep for titled in of_sweep]
        _write(output, render(tables, _FORM_OF_SUFFIX[output.suffix], spread))
        return
    names = [of_sweep[0].sweep for of_sweep in by_sweep]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{output}: two sweeps are called {repeated[0]}; write them to two folders")
    for name, of_sweep in zip(names, by_sweep, strict=True):
        for suffix in (".md", ".tex", ".csv"):
            text = render(of_sweep, _FORM_OF_SUFFIX[suffix], spread)
            _write(output / f"{name}{suffix}", text)


def _write(path: Path, text: str) -> None:
    write_text(path, text)
    print(f"table: {path}")
