"""The series of the page: runs arranged by setting, and the numbers, outcomes and curves of each series."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import ENDED, State
from areabench.experiment.labels import method_colour
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, Entry, arrange
from areabench.results.ranking import QUALITIES, Rank, RankedQuality, rank_cells
from areabench.results.statistics import (
    Band,
    Quantity,
    ReachCurve,
    SpreadName,
    band,
    mean_and_p95,
    performance_profiles,
    reach_curve,
    staleness_shares,
)
from areabench.sweeps.result import Result
from areabench.views.report.records import (
    Axes,
    Curves,
    Histogram,
    Line,
    NamedCount,
    ProfileLine,
    ReportSetting,
    Series,
    Stair,
    TrialOutcome,
)
from areabench.views.report.sources import Sources, Trial, without_seed

_NOTHING = np.empty(0)
_MOST_BARS = 60  # of a histogram
_POINTS = 14_000  # of all curves along one axis together: keeps the page of a large sweep small
_LEAST_POINTS = 40  # of one curve
_MOST_POINTS = 300


@dataclass(frozen=True)
class PlacedSeries:
    """The trials of one series, with their setting and row on the page, and how it stands among those of the row."""

    setting: int
    row: int
    entry: Entry
    cell: Cell
    trials: tuple[Trial, ...]
    is_best: bool  # of the step sizes of its method
    ranks: dict[RankedQuality, Rank]


def place_series(sources: Sources, target: float = 80.0) -> tuple[tuple[Comparison, ...], list[PlacedSeries]]:
    """The settings of all runs, and their series in the order of the page; `target` in percent."""
    trials = {trial.result.path: trial for trial in sources.trials}
    # How many trials of each point the sweeps plan, so that the page can say how many are missing.
    asked = Counter(
        (sweep.folder, without_seed(member.experiment))
        for sweep in sources.sweeps
        for member in sweep.plan.members
        if member.experiment is not None
    )
    tuned = dict.fromkeys(key for sweep in sources.sweeps for key in sweep.tuned_keys)
    comparisons = arrange((trial.result for trial in sources.trials), tuple(tuned), target)
    places = []
    for setting, comparison in enumerate(comparisons):
        for row, entries in enumerate(comparison.rows.values()):
            in_row = []
            for entry in entries:
                best = entry.cell_to_draw({})
                for cell in entry.cells:
                    groups: dict[str, list[Trial]] = {}  # trials with the same remark are averaged
                    for result in cell.results:
                        trial = trials[result.path]
                        groups.setdefault(trial.remark, []).append(trial)
                    for group in groups.values():
                        results = tuple(trial.result for trial in group)
                        point = without_seed(cell.experiment)
                        planned = sum(asked[folder, point] for folder in {result.path.parent for result in results})
                        part = replace(cell, results=results, planned=max(planned, len(results)))
                        in_row.append(PlacedSeries(setting, row, entry, part, tuple(group), cell is best, {}))
            # Not the ranks of the comparison: a cell may have fallen into several series.
            ranks = {quality: rank_cells([place.cell for place in in_row], quality) for quality in QUALITIES}
            for index, place in enumerate(in_row):
                own = {quality: of_quality[index] for quality, of_quality in ranks.items()}
                places.append(replace(place, ranks=own))
    return comparisons, places


def settings_of(comparisons: Sequence[Comparison]) -> Iterator[ReportSetting]:
    """Settings in words; where two titles are the same, with the keys that differ."""
    titles = Counter(each.caption for each in comparisons)
    for each in comparisons:
        differing = ", ".join(f"{key} = {'none' if value is None else value}" for key, value in each.differences)
        title = each.caption
        if titles[title] > 1:
            title += f", {differing}"
        rates = tuple(rates.describe() for rates in each.rows)
        yield ReportSetting(title, differing, rates, each.experiment.stop.horizon_s)


# ---------------------------------------------------------------------------------------------------- numbers


def series_of(places: Sequence[PlacedSeries], target: float, spread: SpreadName = "interval") -> Iterator[Series]:
    """The series in the order of their places; `target` in percent.

    Diverged trials are counted, not averaged; where all diverged their curves are shown as they are.
    """
    most = int(np.clip(_POINTS // max(len(places), 1), _LEAST_POINTS, _MOST_POINTS))
    uses = Counter(label for _, label in {(place.entry.method.name, place.entry.label) for place in places})
    for place in places:
        cell = place.cell
        method = place.entry.method.name
        label = place.entry.label
        if uses[label] > 1:  # own methods may share a label
            label += f" ({method})"
        averaged = cell.finite or cell.results
        outcomes = tuple(outcome_of(result, target) for result in cell.results)
        yield Series(
            setting=place.setting,
            row=place.row,
            method=method,
            label=label,
            colour=method_colour(method),
            variant=place.entry.variant,
            step_size=cell.step_size,
            remark=", ".join(filter(None, (cell.tuned, place.trials[0].remark))),
            is_best=place.is_best,
            trials=len(cell.results),
            planned=cell.planned,
            diverged=cell.diverged,
            ranks=place.ranks,
            states=_word_counts(result.status.state.text for result in cell.results),
            verdicts=_word_counts(trial.verdict for trial in place.trials if trial.verdict),
            accuracy=cell.accuracy,
            loss=cell.loss,
            outcomes=outcomes,
            target_s=median_reached_s(outcomes),
            reached=_stair(reach_curve(cell.results, target)),
            updates=statistics.fmean(result.status.updates for result in cell.results),
            server_steps=statistics.fmean(result.status.server_steps for result in cell.results),
            staleness=_histogram(averaged),
            curves=axes_of(averaged, most, spread),
            files=tuple(str(result.path) for result in cell.results),
        )


def _stair(found: ReachCurve | None) -> Stair | None:
    if found is None:
        return None
    share, low, high = (100 * np.append(each, each[-1]) for each in (found.share, found.low, found.high))
    return Stair(np.append(found.time_s, found.end_s), share, low, high, found.censored_s)


def profile_of(series: Sequence[Series]) -> Iterator[ProfileLine]:
    """How often each method, at its best step size, is close to the fastest; nothing for a single setting."""
    best = [one for one in series if one.is_best and one.reached is not None]
    settings = list(dict.fromkeys((one.setting, one.row) for one in best))
    first = {one.label: one for one in reversed(best)}
    if len(settings) < 2:
        return
    times_s = np.full((len(settings), len(first)), math.nan)
    for one in best:
        place = settings.index((one.setting, one.row)), list(first).index(one.label)
        times_s[place] = np.fmin(times_s[place], one.target_s)
    for (label, one), found in zip(first.items(), performance_profiles(times_s), strict=True):
        # A profile has no interval and no trials that end.
        line = Stair(found.factor, 100 * found.share, _NOTHING, _NOTHING, _NOTHING)
        yield ProfileLine(label, one.method, one.colour, one.variant, line)


def _word_counts(words: Iterable[str]) -> tuple[NamedCount, ...]:
    return tuple(NamedCount(word, count) for word, count in Counter(words).items())


def _histogram(results: Sequence[Result]) -> Histogram | None:
    shares = 100 * staleness_shares(results)
    if not len(shares):
        return None
    width = -(-len(shares) // _MOST_BARS)
    padded = np.pad(shares, (0, -len(shares) % width))
    return Histogram(width, padded.reshape(-1, width).sum(axis=1), *mean_and_p95(shares), len(shares) - 1)


# ---------------------------------------------------------------------------------------------------- outcomes


def outcome_of(result: Result, target: float) -> TrialOutcome:
    """Whether one trial reached `target` percent, or why not; and when, or when the run ended."""
    time_s = result.time_to_accuracy(target)
    state = result.status.state
    if math.isfinite(time_s) and result.knows_time_to(target):
        return TrialOutcome("reached", time_s, result.experiment.seed)
    kind = "not measured"
    if result.has_diverged:
        kind = "diverged"
    elif state not in ENDED:
        kind = "unfinished"
    elif result.is_done and (state == State.TARGET or result.ended_early):
        kind = "ended early"
    elif result.is_done and result.knows_time_to(target):
        kind = "not reached"
    return TrialOutcome(kind, result.status.end_s, result.experiment.seed)


def median_reached_s(outcomes: Sequence[TrialOutcome]) -> float:
    """Median over all trials; a trial that did not reach the target counts as infinite.

    The mean over those that reached it would favour a method whose slow trials did not.
    """
    return statistics.median(outcome.time_s if outcome.kind == "reached" else math.inf for outcome in outcomes)


# ---------------------------------------------------------------------------------------------------- curves


def axes_of(results: Sequence[Result], most: int, spread: SpreadName = "interval") -> Axes:
    """Mean and spread of some trials over time, updates received and server steps, with at most `most` points each."""
    curves = []
    for axis in ("time_s", "updates", "server_steps"):
        curves.append(Curves(*(_line(results, axis, quantity, most, spread) for quantity in get_args(Quantity))))
    return Axes(*curves)


def _line(results: Sequence[Result], axis: str, quantity: Quantity, most: int, spread: SpreadName) -> Line | None:
    evaluated = [result for result in results if len(getattr(result, axis))]
    along = [_along(result, getattr(result, axis).astype(np.float64), quantity) for result in evaluated]
    trials = band(along, quantity, "range")
    if not len(trials.time_s):
        return None
    # Points are chosen by the mean, so that all lines of a chart keep their peaks.
    kept = thinned(trials, most)
    limits = (float(trials.low.min()), float(trials.high.max()))
    if len(results) == 1:
        return Line(trials.time_s[kept], trials.mean[kept], _NOTHING, _NOTHING, limits)
    shown = band(along, quantity, spread)
    return Line(shown.time_s[kept], shown.mean[kept], shown.low[kept], shown.high[kept], limits)


def _along(result: Result, x: NDArray[np.float64], quantity: Quantity) -> Result:
    """The result with another axis instead of time; of values at the same place the last one is kept."""
    values: NDArray[np.float64] = getattr(result, quantity)
    there = np.flatnonzero(np.isfinite(values))
    last = there[np.diff(x[there], append=np.inf) > 0]
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
