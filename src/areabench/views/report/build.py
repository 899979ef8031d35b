"""Runs arranged for the page: settings, and in each the series that are drawn."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from areabench.figures.data import Cell, Contender, Page, Quantity, Row, arrange, choose, staleness_shares
from areabench.figures.words import title_of
from areabench.looks import method_colour
from areabench.report.curves import axes_of
from areabench.report.outcomes import median_reached_s, outcome_of
from areabench.report.records import Count, Histogram, Series, Setting
from areabench.report.sources import Sources, Trial, without_seed
from areabench.schema import ENDED
from areabench.sweeps.results import Result
from areabench.tables.spread import Spread, spread_of
from areabench.tables.words import describe_rates

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
        titles = Counter(map(title_of, self.pages))
        return tuple(_setting(page, titles[title_of(page)] > 1) for page in self.pages)


def arranged(sources: Sources) -> Arranged:
    """Everything that has a result."""
    trials = {trial.result.path: trial for trial in sources.trials}
    pages = arrange(trial.result for trial in sources.trials)
    return Arranged(pages, tuple(place for index, page in enumerate(pages) for place in _places(index, page, trials)))


def _setting(page: Page, ambiguous: bool) -> Setting:
    told = ", ".join(f"{key} = {'none' if value is None else value}" for key, value in page.differences)
    title = f"{title_of(page)}, {told}" if ambiguous else title_of(page)
    rates = tuple(describe_rates(row.rates) for row in page.rows)
    return Setting(title, told, rates, page.experiment.stop.horizon_s)


def _places(setting: int, page: Page, trials: Mapping[Path, Trial]) -> Iterator[Place]:
    for row_index, row in enumerate(page.rows):
        for contender, cell in _cells(row):
            best = choose(contender, {}) is cell
            for part in _by_remark(trials[result.path] for result in cell.results):
                inner = Cell(cell.step_size, tuple(trial.result for trial in part))
                yield Place(setting, row_index, contender, inner, part, best)


def _cells(row: Row) -> Iterator[tuple[Contender, Cell]]:
    return ((contender, cell) for contender in row.contenders for cell in contender.cells)


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
        yield replace(_series(place, asked, target, most), label=name)


def _names(places: Sequence[Place]) -> dict[tuple[str, str], str]:
    """Labels by method and label: those of methods from outside that are called alike say where they come from."""
    pairs = {(place.contender.method.name, place.contender.label) for place in places}
    seen = Counter(label for _, label in pairs)
    return {(name, label): label if seen[label] == 1 else f"{label} ({name})" for name, label in pairs}


def _series(place: Place, planned: int, target: float, most: int) -> Series:
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
        planned=max(planned, len(results)),
        diverged=cell.diverged,
        may_be_best=may_be_best(cell, planned),
        states=_counted(result.status.state.text for result in results),
        verdicts=_counted(trial.verdict for trial in place.trials if trial.verdict),
        accuracy=_spread(cell, "test_accuracy"),
        loss=_spread(cell, "train_loss"),
        outcomes=outcomes,
        target_s=median_reached_s(outcomes),
        updates=statistics.fmean(result.status.updates for result in results),
        server_steps=statistics.fmean(result.status.server_steps for result in results),
        staleness=_histogram(cell.finished or results),
        curves=axes_of(cell.finished or results, most),
        files=tuple(str(result.path) for result in results),
    )


def may_be_best(cell: Cell, planned: int) -> bool:
    """As in tables: a mean over the trials that went well would flatter a series."""
    ended = all(result.status.state in ENDED for result in cell.results)
    return ended and not cell.diverged and len(cell.results) >= planned


def _counted(words: Iterable[str]) -> tuple[Count, ...]:
    return tuple(Count(word, count) for word, count in Counter(words).items())


def _spread(cell: Cell, quantity: Quantity) -> Spread | None:
    """Mean and range at the end, over the trials that did not diverge."""
    values = cell.final(quantity)
    return spread_of([float(value) for value in values]) if len(values) else None


def _histogram(results: Sequence[Result]) -> Histogram | None:
    shares = 100 * staleness_shares(results)
    if not len(shares):
        return None
    width = -(-len(shares) // _MOST_BARS)
    padded = np.pad(shares, (0, -len(shares) % width))
    p95 = int(np.searchsorted(np.cumsum(shares), 95.0 - 1e-9))
    mean = float(np.arange(len(shares)) @ shares) / 100
    return Histogram(width, padded.reshape(-1, width).sum(axis=1), mean, p95, len(shares) - 1)
