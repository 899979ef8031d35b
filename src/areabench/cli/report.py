"""`areabench report`: write one HTML page about runs and sweeps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.cli import Command, CommandContext
from areabench.cli.options import force_option, json_option, progress_option, seconds, spread_option, target_option
from areabench.errors import UserError

if TYPE_CHECKING:
    from areabench.results.statistics import SpreadName


def report_options(parser: argparse.ArgumentParser) -> None:
    """Runs and sweeps, the page, and what it shows of them."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR_OR_FILE",
        help="run files, folders of run files, folders of sweeps",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="page to write (default report.html)",
    )  # fmt: skip
    force_option(parser)
    target_option(parser, "that the bars show the time to")
    spread_option(parser, "bands and whiskers")
    parser.add_argument("--title", default="", help="title of the page (default: that of the sweep or experiment)")
    parser.add_argument(
        "--timeline", type=time_span, default=(0.0, float("inf")), metavar="START:END",
        help="seconds that the timelines show (default: from the start, as much as fits)",
    )  # fmt: skip
    json_option(parser)
    progress_option(parser)


def time_span(text: str) -> tuple[float, float]:
    """A part of a run, START:END in seconds; an end that is left out is that of the run."""
    start, colon, end = text.partition(":")
    try:
        start_s = seconds(start or "0")
        end_s = seconds(end) if end else float("inf")
    except argparse.ArgumentTypeError:
        start_s = end_s = 0.0
    if not colon or not start_s < end_s:
        raise argparse.ArgumentTypeError(f"{text!r} is not START:END with 0 <= START < END in seconds; write 0:2.5")
    return start_s, end_s


def report_command(options: argparse.Namespace, context: CommandContext) -> int:
    """Write the page of some runs and sweeps."""
    from areabench import __version__
    from areabench.files import refuse_existing, write_text
    from areabench.progress import SweepProgress
    from areabench.views.report.page import build_report, counts_text, page_text
    from areabench.views.report.sources import gather

    refuse_existing(options.output, force=options.force)
    lines: dict[int, SweepProgress] = {}

    def show(runs: int) -> None:
        if runs not in lines:
            for line in lines.values():
                line.close()  # the terminal has room for one
            lines[runs] = SweepProgress(runs, runs, context.progress)
        lines[runs].add(1, 0, 1.0)

    try:
        sources = gather(options.paths, show)
    finally:
        for line in lines.values():
            line.close()
    if not sources.trials and not sources.absent:
        raise UserError(f"{options.paths[0]}: there is no run to report; give run files, or the folder of a sweep")
    spread: SpreadName = options.spread or "interval"
    page = build_report(sources, context.cache, options.target, options.title, options.timeline, __version__, spread)
    text = page_text(page)
    write_text(options.output, text)
    size = len(text.encode())
    context.output.answer(
        lambda: f"report: {options.output} ({counts_text(sources)}, {size / 1e6:.2f} MB)\n",
        lambda: {"page": options.output, "bytes": size, "runs": len(sources.trials), "absent": sources.absent},
    )
    return 0


COMMAND = Command(
    "runs/demo -o report.html",
    report_options,
    report_command,
)
