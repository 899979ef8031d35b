"""The page: what it shows, and one file with markup, style, scripts and data, which loads and runs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from areabench.experiment.labels import default_remarks, method_label
from areabench.results.statistics import SpreadName
from areabench.sweeps.choose import tuning_notes
from areabench.views.report.details import WHOLE_RUN, Window, clock_words, details_of, labels_of, runs_to_detail
from areabench.views.report.records import ReportPage, script_json
from areabench.views.report.series import PlacedSeries, place_series, profile_of, series_of, settings_of
from areabench.views.report.sources import Sources
from areabench.views.styled import counted

SCRIPTS = (
    "basics.js", "chart.js", "cursor.js", "panels.js", "strips.js", "target.js", "ranking.js", "clients.js",
    "picture.js", "timeline.js", "table.js", "run.js", "page.js",
)  # fmt: skip
STYLES = ("page.css",)


# ------------------------------------------------------------------------------------------------- what it shows


def build_report(
    sources: Sources,
    cache: Path,
    target: float = 80.0,
    title: str = "",
    window: Window = WHOLE_RUN,
    version: str = "",
    spread: SpreadName = "interval",
) -> ReportPage:
    """Everything that the page shows.

    `target` is a test accuracy in percent, timelines show the window of the runs, `version` is that of areabench, and
    bands show the spread.
    """
    comparisons, places = place_series(sources, target)
    runs = runs_to_detail(places)
    series = tuple(series_of(places, target, spread))
    titles = [sweep.plan.title for sweep in sources.sweeps]
    if not titles:
        titles = [trial.result.experiment.name for trial in sources.trials]
    return ReportPage(
        title=title or ", ".join(dict.fromkeys(titles)),
        subtitle=_subtitle(sources, places),
        version=version,
        target=target,
        spread=spread,
        notes=tuple(note for sweep in sources.sweeps for note in tuning_notes(sweep)),
        settings=tuple(settings_of(comparisons)),
        series=series,
        profile=tuple(profile_of(series)),
        absent=sources.absent,
        labels=tuple(labels_of(comparisons, cache)),
        details=tuple(details_of(runs, window)),
        not_detailed=len(sources.trials) - len(runs),
        clock=clock_words(trial.transport for trial in sources.trials),
        remarks=tuple(_remarks(places)),
    )


def _subtitle(sources: Sources, places: Sequence[PlacedSeries]) -> str:
    """How much of what."""
    methods = len({place.entry.method.name for place in places})
    transports = sorted({trial.transport for trial in sources.trials})
    times = {"simulator": "virtual time", "mpi": "real time on MPI"}
    words = [counts_text(sources), counted(methods, "method")]
    if transports:
        words.append(" and ".join(times.get(each, each) for each in transports))
    return " · ".join(words)


def _remarks(places: Sequence[PlacedSeries]) -> Iterator[str]:
    """What defaults do, each once: sentences that name the methods."""
    # A dict without values is a set that keeps the order of the page.
    methods: dict[str, dict[str, None]] = {}
    everybody = set()
    for place in places:
        label = method_label(place.entry.method.name)
        everybody.add(label)
        for key, words in default_remarks(place.cell.experiment).items():
            methods.setdefault(f"{key}: {words}.", {})[label] = None
    for sentence, names in methods.items():
        if set(names) != everybody:
            sentence = f"{', '.join(names)}: {sentence}"
        yield sentence


def counts_text(sources: Sources) -> str:
    """How many runs there are, and how many are missing."""
    words = counted(len(sources.trials), "run")
    if sources.absent:
        words += f", {len(sources.absent):,} failed or missing"
    return words


# ------------------------------------------------------------------------------------------------- the file


def page_text(report: ReportPage) -> str:
    """The whole file; its Content-Security-Policy allows its own scripts and styles, and nothing from elsewhere."""
    # A hash per script: the browser refuses any other, also one that a run file smuggles in.
    scripts = [_asset(name) for name in SCRIPTS]
    styles = [_asset(name) for name in STYLES]
    allowed = f"script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    policy = f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"
    return Template(_asset("page.html")).substitute(
        policy=html.escape(policy),
        title=html.escape(report.title.encode(errors="replace").decode()),  # an argument may not be valid text
        version=html.escape(report.version),
        styles="\n".join(f"<style>{text}</style>" for text in styles),
        data=script_json(report),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
    )


def _asset(name: str) -> str:
    return resources.files("areabench.views.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hashes(texts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)
