"""What the page shows of single runs: timeline, clients, diagnosis and commands; and the labels of their splits."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import Kind
from areabench.errors import UserError
from areabench.experiment.labels import SIMULATOR, describe_data
from areabench.plugins.trust import command_on, unvouched
from areabench.results.diagnosis import diagnosis_of
from areabench.results.grouping import Comparison
from areabench.results.label_counts import recorded_labels
from areabench.results.rounds import beginnings_s, ends_of
from areabench.runfile.read import Run, open_run
from areabench.views.report.records import Detail, Labels, NamedValue, Participation, Timeline
from areabench.views.report.series import PlacedSeries
from areabench.views.text import diagnosis_text, experiment_text

MOST_DETAILS = 12
_MOST_ENTRIES = 256  # bars of clients
_UPDATES = 24_000  # in the timelines of all runs together
_LEAST_UPDATES = 500  # in one
_MOST_UPDATES = 4_000
MOST_CLIENTS = 256  # whose labels are shown
Window = tuple[float, float]  # a part of a run, in seconds since its start
WHOLE_RUN: Window = (0.0, float("inf"))


def clock_words(transports: Iterable[str]) -> str:
    """The time of some runs, in words."""
    words = {"virtual time" if transport == SIMULATOR else "real time" for transport in transports}
    return " and ".join(sorted(words, reverse=True)) or "time"


def runs_to_detail(places: Sequence[PlacedSeries]) -> list[tuple[int, Path]]:
    """All runs if they are few, else the first trial of the best step size of each method; series and file."""
    runs = [(index, result.path) for index, place in enumerate(places) for result in place.cell.results]
    if len(runs) <= MOST_DETAILS:
        return runs
    best = [(index, place.cell) for index, place in enumerate(places) if place.is_best]
    return [(index, (cell.finite or cell.results)[0].path) for index, cell in best][:MOST_DETAILS]


def details_of(runs: Sequence[tuple[int, Path]], window: Window) -> Iterator[Detail]:
    """The runs in detail, one file open at a time."""
    # All timelines together have a limit, so that a page of many runs stays small.
    most = int(np.clip(_UPDATES // max(len(runs), 1), _LEAST_UPDATES, _MOST_UPDATES))
    for series, path in runs:
        with open_run(path) as run:
            timeline = timeline_of(run, window, most)
            verdict = "unknown"
            diagnosis = ""
            participation = None
            try:
                found = diagnosis_of(run)
            except UserError as error:  # the run has no updates yet
                advice = str(error)
            else:
                verdict = found.verdict
                advice = found.advice
                diagnosis = diagnosis_text(found)
                participation = participation_of(found.clients)
            yield Detail(
                series=series,
                name=run.path.stem,
                file=str(run.path),
                seed=run.experiment.seed,
                state=run.status.state.text,
                reason=run.status.reason,
                end_s=run.status.end_s,
                timeline=timeline if isinstance(timeline, Timeline) else None,
                no_timeline=timeline if isinstance(timeline, str) else "",
                provenance=tuple(NamedValue(name, str(value)) for name, value in vars(run.provenance).items()),
                commands=tuple(_commands(run)),
                experiment=str(experiment_text(run.experiment)),
                verdict=verdict,
                advice=advice,
                diagnosis=diagnosis,
                participation=participation,
            )


def _commands(run: Run) -> Iterator[NamedValue]:
    """How the run was made, and how to repeat it."""
    warning = ""
    if named := ", ".join(unvouched(run.experiment)):  # somebody else may have written the file
        warning = f" (this executes code that the run file names: {named}; do so only if you trust it)"
    path = shlex.quote(str(run.path))
    toml = shlex.quote(f"{run.path.stem}-again.toml")
    output = shlex.quote(f"{run.path.stem}-again.h5")
    start = f"launch --ranks {run.provenance.ranks}"
    if run.provenance.transport == SIMULATOR:
        start = "simulate"
    yield NamedValue("made by", run.provenance.command)
    replay = command_on("replay", run.path, run.experiment)
    yield NamedValue(f"replay it from its file, and compare every bit{warning}", replay)
    new = f"areabench show {path} --toml > {toml}\nareabench {start} {toml} --output {output}"
    yield NamedValue(f"make it again from its file alone{warning}", new)


# ---------------------------------------------------------------------------------------------------- timeline


def timeline_of(run: Run, window: Window, most: int) -> Timeline | str:
    """The first `most` updates that came in within the window, or why there are none.

    Times are relative to the window's beginning, so that they keep their digits late in a long run.
    """
    if not run.experiment.record.events:
        return "This run kept no event log. Run it with record.events = true to see who sent what when."
    sent = ends_of(run.events_array)
    begin_s, end_s = window
    updates = sent[(sent["time_s"] >= begin_s) & (sent["time_s"] <= end_s)][:most]
    if not len(updates):
        return f"No update came in between {begin_s:g} s and {min(end_s, run.status.end_s):g} s."
    until_s = float(updates["time_s"][-1])
    step_s, version = steps_shown(run.events_array, updates["base_version"], (begin_s, until_s))
    return Timeline(
        clock=clock_words([run.provenance.transport]),
        begin_s=begin_s,
        until_s=until_s - begin_s,
        run_s=run.status.end_s,
        clients=run.experiment.clients.count,
        shown=len(updates),
        of=len(sent),
        start_s=beginnings_s(updates) - begin_s,
        end_s=updates["time_s"] - begin_s,
        client=updates["client"],
        base=updates["base_version"],
        staleness=updates["staleness"],
        used=(updates["kind"] == Kind.UPDATE).astype(np.int64),
        step_s=step_s - begin_s,
        version=version,
    )


def steps_shown(
    events: NDArray[Any], bases: NDArray[np.int64], window: Window
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When the server made the versions of the window and those that its rounds began from; 0 is there from the start.

    Not all since the oldest of them: a slow client's version may be hundreds of thousands of steps old.
    """
    # All steps of the window, and before it only those whose versions its rounds hold.
    steps = events[events["kind"] == Kind.STEP]
    begin_s, end_s = window
    inside = (steps["time_s"] >= begin_s) & (steps["time_s"] <= end_s)
    steps = steps[inside | np.isin(steps["version"], bases)]
    times_s = steps["time_s"]
    versions = steps["version"]
    if begin_s <= 0 or 0 in bases:
        return np.append(0.0, times_s), np.append(0, versions)
    return times_s, versions


# ---------------------------------------------------------------------------------------------------- clients


def participation_of(clients: NDArray[np.void]) -> Participation:
    """Rows of DIAGNOSIS_CLIENT for drawing; more than a few hundred clients are grouped, by expected updates."""
    # As many neighbours as bring the bars down to what the page has room for.
    group = -(-len(clients) // _MOST_ENTRIES)
    ordered = clients
    if group > 1:
        ordered = clients[np.argsort(clients["expected"], kind="stable")]
    starts = np.arange(0, len(ordered), group)
    sizes = np.diff(np.append(starts, len(ordered)))
    mean = {name: np.add.reduceat(ordered[name], starts) / sizes for name in ("served", "expected", "low", "high")}
    short = None
    if np.isfinite(clients["expected"]).all():  # client by client: a group's mean hides those served too little
        short = int(np.count_nonzero(clients["served"] < clients["low"]))
    return Participation(
        group=group,
        client=ordered["client"][starts],
        served=mean["served"],
        least=np.minimum.reduceat(ordered["served"], starts),
        most=np.maximum.reduceat(ordered["served"], starts),
        expected=mean["expected"],
        low=mean["low"],
        high=mean["high"],
        short=short,
    )


# ---------------------------------------------------------------------------------------------------- labels


def labels_of(comparisons: Sequence[Comparison], cache: Path) -> Iterator[Labels]:
    """Samples of each class that each client holds in the first run of each setting, or why they are not known.

    A split that several settings share is computed once.
    """
    # To compute a split may need the whole data set, so settings with the same one share it.
    shared: dict[tuple[Any, ...], list[int]] = {}
    for index, comparison in enumerate(comparisons):
        experiment = comparison.experiment
        key = (experiment.data, experiment.split, experiment.clients.count, experiment.seed)
        shared.setdefault(key, []).append(index)
    for settings in shared.values():
        first = comparisons[settings[0]]
        experiment = first.experiment
        counts = np.empty((0, 0), np.int64)
        reason = ""
        if experiment.data is None or experiment.split is None:
            reason = f"The problem {experiment.problem.name} has no labels to split."
        else:
            try:
                counts = recorded_labels(experiment, first.cells[0].results[0].path, cache)[:MOST_CLIENTS]
            except UserError as error:
                reason = str(error)
        title = f"{describe_data(experiment)}, seed {experiment.seed}"
        yield Labels(title, tuple(settings), reason, experiment.clients.count, counts)
