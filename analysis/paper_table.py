"""Tables of sweeps beside the paper's: python analysis/paper_table.py SWEEP_FOLDER ..."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from paper.rules import PAPER_RULE, PUBLISHED
from paper.table import ALL_COLUMNS, cells_beside_paper, paper_sheet, paper_tables

from areabench.errors import UserError
from areabench.sweeps.read import open_finished
from areabench.views.tables.forms import Sheet, as_csv, as_latex, as_markdown, as_text

RULES = {rule.name: rule for rule in (PUBLISHED, PAPER_RULE)}
FORMS: dict[str, Callable[[Sheet], str]] = {"text": as_text, "markdown": as_markdown, "latex": as_latex}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of some sweeps."""
    parser = argparse.ArgumentParser(description="print sweeps beside the paper's tables")
    parser.add_argument("folders", type=Path, nargs="+", metavar="SWEEP_FOLDER")
    parser.add_argument(
        "--keep",
        choices=RULES,
        default="published",
        help="step sizes: those that the paper shows (default), or what its rule keeps, the two largest of each method "
        "whose final loss is finite in all trials",
    )
    parser.add_argument("--format", choices=(*FORMS, "csv"), default="text", help="printed form (default text)")
    options = parser.parse_args(arguments)
    try:
        sweeps = open_finished(options.folders)
    except UserError as error:
        print(f"paper_table: {error}", file=sys.stderr)
        return 2
    tables = [table for sweep in sweeps for table in paper_tables(sweep, RULES[options.keep])]
    if not any(table.cells for table in tables):
        print("paper_table: the paper shows none of these runs", file=sys.stderr)
        return 2
    if options.format == "csv":
        print(as_csv(ALL_COLUMNS, cells_beside_paper(tables)), end="")
        return 0
    print("\n".join(map(FORMS[options.format], map(paper_sheet, tables))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
