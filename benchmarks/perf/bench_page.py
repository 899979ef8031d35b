"""What the performance benchmarks share: options, tables in Markdown, the machine, and how a page is written."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from areabench.errors import UserError
from areabench.runfile.provenance import gather_provenance


def page_options(description: str, folder: str | None = None) -> argparse.ArgumentParser:
    """A parser with --quick and --output; the latter is a page, or a folder where one is given."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works; the numbers are bad")
    if folder is None:
        parser.add_argument("--output", type=Path, help="write the page to this Markdown file as well")
    else:
        parser.add_argument("--output", type=Path, default=Path(folder), help=f"folder (default {folder})")
    return parser


def print_page(text: str, output: Path | None, heading: str = "") -> None:
    """Print a page, and write it to a file if asked, there below a heading."""
    print(text)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(f"{heading}{text}", encoding="utf-8")


def run_script(main: Callable[[], None]) -> None:
    """Call a script; a mistake of its user ends it with one line and exit code 2."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table with a heading, its columns aligned for readers of plain text; all but the first to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(row, widths) for row in [rows[0], rule, *rows[1:]]) + "\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """A rate as text."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def describe_machine() -> str:
    """Processor, versions and date, in one line."""
    found = gather_provenance("simulator", command="", threads="", seed=0)
    revision = f" ({found.git_revision})" if found.git_revision else ""
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "as many as cores")
    return (
        f"{found.started_at[:10]}, {_processor()}, {os.cpu_count()} cores, BLAS threads: {threads}, "
        f"Python {found.python}, numpy {found.numpy} ({found.blas}), "
        f"areabench {found.areabench}{revision}, {platform.system()}."
    )


def _processor() -> str:
    """The name of the processor, as far as the system reports it."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or sys.platform
