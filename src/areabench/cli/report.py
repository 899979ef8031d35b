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
from areabench.views.report.details import Window, chosen, details_of, labels_of
from areabench.views.report.page import page_text
from areabench.views.report.records import ReportPage
from areabench.views.report.series import Arranged, arranged, series_of
from areabench.views.report.sources import Sources, gather
from areabench.views.styled import counted

_WHOLE = Window()


def report(options: argparse.Namespace, context: CommandContext) -> int:
    """Write the page of some runs and sweeps."""
    refuse_existing(options.output, force=options.force)
    sources = _gather(options.paths, context.progress)
    text = page_text(build_report(sources, context.cache, options.target, options.title, Window(*options.timeline)))
    write_text(options.output, text)
    size = len(text.encode())
    context.output.answer(
        lambda: f"report: {options.output} ({_counts(sources)}, {size / 1e6:.2f} MB)\n",
        lambda: {"page": options.output, "bytes": size, "runs": len(sources.trials), "absent": sources.absent},
    )
    return 0


def build_report(
    sources: Sources, cache: Path, target: float = 80.0, title: str = "", window: Window = _WHOLE
) -> ReportPage:
    """Everything that the page shows; `target` is a test accuracy in percent, timelines show the window of the runs."""
    found = arranged(sources)
    runs = chosen(found.places)
    return ReportPage(
        title=title or _title(sources),
        subtitle=_subtitle(sources, found),
        version=__version__,
        target=target,
        settings=found.settings,
        series=tuple(series_of(found.places, sources, target)),
        absent=sources.absent,
        labels=tuple(labels_of(found.pages, cache)),
        details=tuple(details_of(runs, window)),
        not_detailed=len(sources.trials) - len(runs),
    )


def _gather(paths: Sequence[Path], style: Style) -> Sources:
    """Read everything, with a progress line."""
    lines: dict[int, SweepProgress] = {}

    def show(runs: int) -> None:
        if runs not in lines:
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


def _title(sources: Sources) -> str:
    """The title of a sweep, else the names of the experiments."""
    titles = [sweep.plan.title or sweep.plan.name for sweep in sources.sweeps]
    titles += [trial.result.experiment.name for trial in sources.trials if not sources.sweeps]
    return ", ".join(dict.fromkeys(titles))


def _subtitle(sources: Sources, found: Arranged) -> str:
    """How much of what."""
    methods = len({place.contender.method.name for place in found.places})
    transports = sorted({trial.transport for trial in sources.trials})
    times = {"simulator": "virtual time", "mpi": "real time on MPI"}
    words = [_counts(sources), counted(methods, "method")]
    words += [" and ".join(times.get(each, each) for each in transports)] if transports else []
    return " · ".join(words)


def _counts(sources: Sources) -> str:
    absent = f", {len(sources.absent):,} failed or missing" if sources.absent else ""
    return counted(len(sources.trials), "run") + absent
