"""`areabench report`: write one HTML page about runs and sweeps."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from areabench import __version__
from areabench.cli import CommandContext
from areabench.errors import UserError
from areabench.files import refuse_existing, write_text
from areabench.progress import Style, SweepProgress
from areabench.results.statistics import SpreadName
from areabench.views.report.details import Window
from areabench.views.report.page import build_report, counts_text, page_text
from areabench.views.report.sources import Sources, gather


def report(options: argparse.Namespace, context: CommandContext) -> int:
    """Write the page of some runs and sweeps."""
    refuse_existing(options.output, force=options.force)
    sources = _gather(options.paths, context.progress)
    window = Window(*options.timeline)
    spread: SpreadName = options.spread or "interval"
    page = build_report(sources, context.cache, options.target, options.title, window, __version__, spread)
    text = page_text(page)
    write_text(options.output, text)
    size = len(text.encode())
    context.output.answer(
        lambda: f"report: {options.output} ({counts_text(sources)}, {size / 1e6:.2f} MB)\n",
        lambda: {"page": options.output, "bytes": size, "runs": len(sources.trials), "absent": sources.absent},
    )
    return 0


def _gather(paths: Sequence[Path], style: Style) -> Sources:
    """Read everything, with a progress line."""
    lines: dict[int, SweepProgress] = {}

    def show(runs: int) -> None:
        if runs not in lines:
            for line in lines.values():
                line.close()  # the terminal has room for one
            lines[runs] = SweepProgress(runs, runs, style)
        lines[runs].add(1, 0, 1.0)

    try:
        sources = gather(paths, show)
    finally:
        for line in lines.values():
            line.close()
    if not sources.trials and not sources.absent:
        raise UserError(f"{paths[0]}: there is no run to report; give run files, or the folder of a sweep")
    return sources
