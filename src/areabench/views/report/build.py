"""Runs arranged for the page: settings, and in each the series that are drawn."""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.diagnosis import Diagnosis
from areabench.engine.events import ENDED, Kind, State
from areabench.engine.plugins.trust import command_on, unvouched
from areabench.errors import UserError
from areabench.experiment.labels import describe_data, describe_rates, method_colour
from areabench.experiment.parse import to_toml
from areabench.experiment.problem_records import DataSettings, SplitSettings
from areabench.experiment.records import Experiment
from areabench.results.cells import Cell
from areabench.results.diagnosis import diagnosis_of
from areabench.results.grouping import Contender, Page, arrange, choose
from areabench.results.label_counts import recorded_labels
from areabench.results.rounds import arrivals_of, beginnings_s
from areabench.results.statistics import Band, Quantity, band, staleness_shares
from areabench.runfile.read import Run, open_run
from areabench.sweeps.read import Result
from areabench.views.report.records import (
    Axes,
    Count,
    Curves,
    Detail,
    Entry,
    Histogram,
    Labels,
    Line,
    Numbers,
    Outcome,
    Participation,
    Series,
    Setting,
    Timeline,
)
from areabench.views.report.sources import SIMULATOR, Sources, Trial, without_seed
from areabench.views.text import diagnosis_text

Axis = Callable[[Result], NDArray[np.float64]]
_NOTHING = np.empty(0)


def axes_of(results: Sequence[Result], most: int) -> Axes:
    """Mean and range of some trials over time, updates received and server steps, at most so many points each."""
    return Axes(
        time=_curves(results, lambda result: result.time_s, most),
        updates=_curves(results, lambda result: result.updates.astype(np.float64), most),
        aggregations=_curves(results, lambda result: result.server_steps.astype(np.float64), most),
    )


def _curves(results: Sequence[Result], axis: Axis, most: int) -> Curves:
    return Curves(_line(results, axis, "test_accuracy", most), _line(results, axis, "train_loss", most))


def _line(results: Sequence[Result], axis: Axis, quantity: Quantity, most: int) -> Line | None:
    along = [_along(result, axis(result), quantity) for result in results if len(axis(result))]
    shown = band(along, quantity)
    if not len(shown.time_s):
        return None
    kept = thinned(shown, most)
    ranges = (shown.low[kept], shown.high[kept]) if len(results) > 1 else (_NOTHING, _NOTHING)
    return Line(shown.time_s[kept], shown.mean[kept], *ranges)


def _along(result: Result, x: NDArray[np.float64], quantity: Quantity) -> Result:
    """The result with another axis in place of time, and the last of the values that share a place on it."""
    values: NDArray[np.float64] = getattr(result, quantity)
    there = np.flatnonzero(np.isfinite(values))
    last = there[np.append(x[there][1:] > x[there][:-1], True)] if len(there) else there
    changed: Any = {quantity: values[last]}
    return replace(result, time_s=x[last], **changed)


def thinned(line: Band, most: int) -> NDArray[np.int64]:
    """Which points to keep: both ends, and of each stretch between them the lowest and the highest."""
    count = len(line.mean)
    if count <= most:
        return np.arange(count)
    stretches = np.array_split(np.arange(1, count - 1), max((most - 2) // 2, 1))
    extremes = [part[[line.mean[part].argmin(), line.mean[part].argmax()]] for part in stretches]
    return np.unique(np.concatenate([[0, count - 1], *extremes]))


def outcome_of(result: Result, target: float) -> Outcome:
    """One trial; `target` in percent. The time is that of reaching it, else the end of what was seen."""
    time_s = result.time_to_accuracy(target)
    if math.isfinite(time_s) and result.knows_time_to(target):
        return Outcome("reached", time_s, result.experiment.seed)
    return Outcome(_other_end(result, target), result.status.end_s, result.experiment.seed)


def _other_end(result: Result, target: float) -> str:
    """Why the target was not reached: the run was long enough, or it ended otherwise."""
    state = result.status.state
    if result.has_diverged:
        return "diverged"
    if state not in ENDED:
        return "unfinished"
    if state == State.TARGET or result.ended_early:
        return "ended early"
    return "not reached" if result.knows_time_to(target) else "not measured"


def median_reached_s(outcomes: Sequence[Outcome]) -> float:
    """Median over all trials, those that are not known to have reached the target later than all; may be infinite.

    The mean of those that reached it would make a method look fast whose slow trials did not.
    """
    return statistics.median(outcome.time_s if outcome.kind == "reached" else math.inf for outcome in outcomes)


_MOST_BARS = 60  # of a histogram
_POINTS = 14_000  # of all curves along one axis together: keeps the page of a large sweep small
_LEAST_POINTS, _MOST_POINTS = 40, 300  # of one curve


@dataclass(frozen=True)
class Place:
    """Where a series belongs."""

    setting: int
    row: int
    contender: Contender
    cell: Cell
    trials: tuple[Trial, ...]
    is_best: bool


@dataclass(frozen=True)
class Arranged:
    """Settings, and the series of all of them in the order of the page."""

    pages: tuple[Page, ...]
    places: tuple[Place, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings in words; where two titles are the same, with what tells them apart."""
        titles = Counter(page.caption for page in self.pages)
        return tuple(_setting(page, titles[page.caption] > 1) for page in self.pages)


def arranged(sources: Sources) -> Arranged:
    """Everything that has a result."""
    trials = {trial.result.path: trial for trial in sources.trials}
    pages = arrange(trial.result for trial in sources.trials)
    return Arranged(pages, tuple(place for index, page in enumerate(pages) for place in _places(index, page, trials)))


def _setting(page: Page, ambiguous: bool) -> Setting:
    told = ", ".join(f"{key} = {'none' if value is None else value}" for key, value in page.differences)
    title = f"{page.caption}, {told}" if ambiguous else page.caption
    rates = tuple(describe_rates(row.rates) for row in page.rows)
    return Setting(title, told, rates, page.experiment.stop.horizon_s)


def _places(setting: int, page: Page, trials: Mapping[Path, Trial]) -> Iterator[Place]:
    for row_index, row in enumerate(page.rows):
        for contender, cell in ((one, cell) for one in row.contenders for cell in one.cells):
            best = choose(contender, {}) is cell
            for part in _by_remark(trials[result.path] for result in cell.results):
                inner = Cell(tuple(trial.result for trial in part), len(part))
                yield Place(setting, row_index, contender, inner, part, best)


def _by_remark(trials: Iterable[Trial]) -> list[tuple[Trial, ...]]:
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.remark, []).append(trial)
    return [tuple(group) for group in groups.values()]


# ---------------------------------------------------------------------------------------------------- numbers


def series_of(places: Sequence[Place], sources: Sources, target: float) -> Iterator[Series]:
    """The series in the order of their places; `target` in percent."""
    most = int(np.clip(_POINTS // max(len(places), 1), _LEAST_POINTS, _MOST_POINTS))
    planned, names = sources.planned, _names(places)
    for place in places:
        point = without_seed(place.cell.results[0].experiment)
        asked = sum(planned[folder, point] for folder in {result.path.parent for result in place.cell.results})
        name = names[place.contender.method.name, place.contender.label]
        cell = replace(place.cell, planned=max(asked, len(place.cell.results)))
        yield replace(_series(replace(place, cell=cell), target, most), label=name)


def _names(places: Sequence[Place]) -> dict[tuple[str, str], str]:
    """Labels by method and label: those of methods from outside that are called alike say where they come from."""
    pairs = {(place.contender.method.name, place.contender.label) for place in places}
    seen = Counter(label for _, label in pairs)
    return {(name, label): label if seen[label] == 1 else f"{label} ({name})" for name, label in pairs}


def _series(place: Place, target: float, most: int) -> Series:
    """Diverged trials are counted, not averaged; where all diverged their curves are shown as they are."""
    cell, first = place.cell, place.trials[0]
    results = cell.results
    outcomes = tuple(outcome_of(result, target) for result in results)
    return Series(
        setting=place.setting,
        row=place.row,
        method=place.contender.method.name,
        label=place.contender.label,
        colour=method_colour(place.contender.method.name),
        variant=place.contender.variant,
        step_size=cell.step_size,
        remark=first.remark,
        is_best=place.is_best,
        trials=len(results),
        planned=cell.planned,
        diverged=cell.diverged,
        may_be_best=cell.is_eligible,
        states=_counted(result.status.state.text for result in results),
        verdicts=_counted(trial.verdict for trial in place.trials if trial.verdict),
        accuracy=cell.accuracy,
        loss=cell.loss,
        outcomes=outcomes,
        target_s=median_reached_s(outcomes),
        updates=statistics.fmean(result.status.updates for result in results),
        server_steps=statistics.fmean(result.status.server_steps for result in results),
        staleness=_histogram(cell.finite or results),
        curves=axes_of(cell.finite or results, most),
        files=tuple(str(result.path) for result in results),
    )


def _counted(words: Iterable[str]) -> tuple[Count, ...]:
    return tuple(Count(word, count) for word, count in Counter(words).items())


def _histogram(results: Sequence[Result]) -> Histogram | None:
    shares = 100 * staleness_shares(results)
    if not len(shares):
        return None
    width = -(-len(shares) // _MOST_BARS)
    padded = np.pad(shares, (0, -len(shares) % width))
    p95 = int(np.searchsorted(np.cumsum(shares), 95.0 - 1e-9))
    mean = float(np.arange(len(shares)) @ shares) / 100
    return Histogram(width, padded.reshape(-1, width).sum(axis=1), mean, p95, len(shares) - 1)


@dataclass(frozen=True)
class Window:
    """A part of a run, in seconds since its start."""

    begin_s: float = 0.0
    end_s: float = float("inf")


def timeline_of(run: Run, window: Window, most: int) -> Timeline | str:
    """The first `most` updates that came in within the window, or why there are none."""
    if not run.experiment.record.events:
        return "This run kept no event log. Run it with record.events = true to see who sent what when."
    sent = arrivals_of(run.events_array)
    inside = sent[(sent["time_s"] >= window.begin_s) & (sent["time_s"] <= window.end_s)]
    if not len(inside):
        return f"No update came in between {window.begin_s:g} s and {min(window.end_s, run.status.end_s):g} s."
    return _drawn(run, inside[:most], len(sent), window)


def _drawn(run: Run, updates: NDArray[Any], of: int, window: Window) -> Timeline:
    """Times are relative to the window's beginning, so that they keep their digits late in a long run."""
    begin_s, until_s = window.begin_s, float(updates["time_s"][-1])
    step_s, version = steps_shown(run.events_array, updates["base_version"], Window(begin_s, until_s))
    return Timeline(
        begin_s=begin_s,
        until_s=until_s - begin_s,
        run_s=run.status.end_s,
        clients=run.experiment.clients.count,
        shown=len(updates),
        of=of,
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

    Not all since the oldest of them: a slow client's may lie hundreds of thousands of steps back.
    """
    steps = events[events["kind"] == Kind.STEP]
    inside = (steps["time_s"] >= window.begin_s) & (steps["time_s"] <= window.end_s)
    steps = steps[inside | np.isin(steps["version"], bases)]
    first = [0] if window.begin_s <= 0 or 0 in bases else []
    return np.append(np.array(first, float), steps["time_s"]), np.append(np.array(first, np.int64), steps["version"])


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
    return [(index, (place.cell.finite or place.cell.results)[0].path) for index, place in best][:MOST_DETAILS]


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


MOST_CLIENTS = 256
_NO_COUNTS = np.empty((0, 0), np.int64)


@dataclass(frozen=True)
class _Key:
    """What a split depends on."""

    data: DataSettings | None
    split: SplitSettings | None
    clients: int
    seed: int


def labels_of(pages: Sequence[Page], cache: Path) -> Iterator[Labels]:
    """The split of the first run of each setting; what several settings share is computed once."""
    shared: dict[_Key, list[int]] = {}
    for index, page in enumerate(pages):
        experiment = page.experiment
        key = _Key(experiment.data, experiment.split, experiment.clients.count, experiment.seed)
        shared.setdefault(key, []).append(index)
    for settings in shared.values():
        first = pages[settings[0]]
        yield _labels(tuple(settings), first.experiment, first.cells[0].results[0].path, cache)


def _labels(settings: tuple[int, ...], experiment: Experiment, path: Path, cache: Path) -> Labels:
    title, clients = f"{describe_data(experiment)}, seed {experiment.seed}", experiment.clients.count
    try:
        counts = _count(experiment, path, cache)
    except UserError as error:
        return Labels(title, settings, str(error), clients, _NO_COUNTS)
    return Labels(title, settings, "", clients, counts[:MOST_CLIENTS])


def _count(experiment: Experiment, path: Path, cache: Path) -> Numbers:
    """Samples of each class that each client holds; a UserError where there are none to know."""
    if experiment.data is None or experiment.split is None:  # said to somebody who looks at a page, not at a file
        raise UserError(f"The problem {experiment.problem.name} has no labels to split.")
    return recorded_labels(experiment, path, cache)
