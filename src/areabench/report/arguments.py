"""The options of `areabench report`. Every command loads this, so it loads nothing large."""

from __future__ import annotations

import argparse
from pathlib import Path

from areabench.options import json_option, percent, progress_option, seconds

PURPOSE = "write one page of HTML that shows runs or sweeps in any browser, without network"
EXAMPLE = "runs/demo -o report.html"


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """What to show, and where."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR_OR_FILE",
        help="run files, folders of run files, folders of sweeps; several are compared",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="page to write (default report.html)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite that file if it exists")
    parser.add_argument(
        "--target", type=percent, default=80.0, help="accuracy that the bars show the time to, %% (default 80)"
    )
    parser.add_argument("--title", default="", help="title of the page (default: that of the sweep or experiment)")
    parser.add_argument(
        "--timeline", type=span, default=(0.0, float("inf")), metavar="START:END",
        help="seconds of the runs that the timelines show (default: from the start, as much as there is room for)",
    )  # fmt: skip
    json_option(parser)
    progress_option(parser)


def span(text: str) -> tuple[float, float]:
    """A part of a run, START:END in seconds; an end that is left out is that of the run."""
    start, colon, end = text.partition(":")
    try:
        begin_s, end_s = seconds(start or "0"), seconds(end) if end else float("inf")
    except argparse.ArgumentTypeError:
        begin_s, end_s = 0.0, 0.0
    if not colon or not begin_s < end_s:
        raise argparse.ArgumentTypeError(f"{text!r} is not START:END with 0 <= START < END in seconds; write 0:2.5")
    return begin_s, end_s
