"""Some runs looked at closely: diagnosis, participation of the clients, timeline, provenance."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from areabench.config import to_toml
from areabench.diagnosed import diagnosis_of
from areabench.diagnosis import Diagnosis
from areabench.errors import UserError
from areabench.reading import Run, open_run
from areabench.report.records import Detail, Entry, Participation, Timeline
from areabench.report.series import Place
from areabench.report.sources import SIMULATOR
from areabench.report.timeline import Window, timeline_of
from areabench.tables.diagnosis import diagnosis_text
from areabench.trust import command_on, unvouched

MOST_DETAILS = 12
_MOST_ENTRIES = 256  # bars of clients
_UPDATES = 24_000  # in the timelines of all runs together
_LEAST_UPDATES, _MOST_UPDATES = 500, 4_000  # in one


def chosen(places: Sequence[Place]) -> list[tuple[int, Path]]:
    """Which runs: all if they are few, else the first trial of the best step size of each method; series and file."""
    runs = [(index, result.path) for index, place in enumerate(places) for result in place.cell.results]
    if len(runs) <= MOST_DETAILS:
        return runs
    best = [(index, place) for index, place in enumerate(places) if place.is_best]
    return [(index, (place.cell.finished or place.cell.results)[0].path) for index, place in best][:MOST_DETAILS]


def details_of(runs: Sequence[tuple[int, Path]], window: Window) -> Iterator[Detail]:
    """The runs in detail, one file open at a time."""
    most = int(np.clip(_UPDATES // max(len(runs), 1), _LEAST_UPDATES, _MOST_UPDATES))
    for series, path in runs:
        with open_run(path) as run:
            yield _detail(run, series, timeline_of(run, window, most))


def _detail(run: Run, series: int, timeline: Timeline | str) -> Detail:
    found, trouble = _diagnosis(run)
    return Detail(
        series=series,
        name=run.path.stem,
        file=str(run.path),
        seed=run.experiment.seed,
        state=run.status.state.text,
        reason=run.status.reason,
        end_s=run.status.end_s,
        verdict=found.verdict if found else "unknown",
        advice=found.advice if found else trouble,
        diagnosis=diagnosis_text(found) if found else "",
        participation=participation_of(found.clients) if found else None,
        timeline=timeline if isinstance(timeline, Timeline) else None,
        no_timeline=timeline if isinstance(timeline, str) else "",
        provenance=tuple(Entry(each.name, str(getattr(run.provenance, each.name))) for each in fields(run.provenance)),
        commands=tuple(_commands(run)),
        experiment=to_toml(run.experiment),
    )


def _diagnosis(run: Run) -> tuple[Diagnosis | None, str]:
    try:
        return diagnosis_of(run), ""
    except UserError as error:  # nothing has happened in it yet
        return None, str(error)


def _commands(run: Run) -> Iterator[Entry]:
    """How it was made, and how it is made again."""
    path, provenance = shlex.quote(str(run.path)), run.provenance
    again, output = (shlex.quote(f"{run.path.stem}-again.{ending}") for ending in ("toml", "h5"))
    start = "simulate" if provenance.transport == SIMULATOR else f"launch --ranks {provenance.ranks}"
    yield Entry("made by", provenance.command)
    warning = _warning(run)
    replay = command_on("replay", run.path, run.experiment)
    yield Entry(f"replay it from its file, and compare every bit{warning}", replay)
    new = f"areabench show {path} --toml > {again}\nareabench {start} {again} --output {output}"
    yield Entry(f"make it again from its file alone{warning}", new)


def _warning(run: Run) -> str:
    """What a command on a run file executes beside areabench: a stranger may have written the file."""
    named = ", ".join(unvouched(run.experiment))
    return f" (this executes code which the run file names: {named}; do so only if you trust it)" if named else ""


def participation_of(clients: NDArray[np.void]) -> Participation:
    """Rows of DIAGNOSIS_CLIENT for drawing; beyond a few hundred clients in groups, ordered by expectation."""
    group = -(-len(clients) // _MOST_ENTRIES)
    ordered = clients if group == 1 else clients[np.argsort(clients["expected"], kind="stable")]
    starts = np.arange(0, len(ordered), group)
    sizes = np.diff(np.append(starts, len(ordered)))
    mean = {name: np.add.reduceat(ordered[name], starts) / sizes for name in ("served", "expected", "low", "high")}
    return Participation(
        group=group,
        client=ordered["client"][starts],
        served=mean["served"],
        least=np.minimum.reduceat(ordered["served"], starts),
        most=np.maximum.reduceat(ordered["served"], starts),
        expected=mean["expected"],
        low=mean["low"],
        high=mean["high"],
        short=_served_short(clients),
    )


def _served_short(clients: NDArray[np.void]) -> int | None:
    """Counted client by client: the mean of a group hides those that are served too little."""
    if not np.isfinite(clients["expected"]).all():
        return None
    return int(np.count_nonzero(clients["served"] < clients["low"]))
