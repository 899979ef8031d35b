"""Runs grouped for tables, figures and reports: pages of rates settings of methods of step sizes of trials.

A page is one table or one figure: all runs that agree in everything but method, rates and seed. A rule of
`results.retention` says which step sizes of a method are kept, and which trials of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from areabench.engine.events import State
from areabench.experiment.labels import (
    METHOD_NAMES,
    describe_data,
    describe_rates,
    flatten,
    method_labels,
    titles,
    without_step_size,
)
from areabench.experiment.method_records import Area, MethodSettings
from areabench.experiment.records import Experiment, RateSettings, UniformRates
from areabench.results.cells import Cell
from areabench.results.retention import Choice, Rule, named_rule
from areabench.results.statistics import DECIMALS, Quantity
from areabench.sweeps.read import Result

_SHORT = {"clients.count": "n", "clients.local_steps": "M", "stop.horizon_s": "t"}
_Part = tuple[RateSettings, MethodSettings]  # of a page
_T = TypeVar("_T")


@dataclass(frozen=True)
class Contender:
    """One method under one rates setting, with the step sizes that are kept."""

    method: MethodSettings  # its step size means nothing here
    variant: int  # counts the settings of one method that differ beside the step size
    label: str
    cells: tuple[Cell, ...]  # by step size, ascending
    reason: str = ""  # why there is no step size, where the runs are not to blame


@dataclass(frozen=True)
class Row:
    """One rates setting: a row of panels, or a block of a table."""

    rates: RateSettings
    contenders: tuple[Contender, ...]


@dataclass(frozen=True)
class Page:
    """One table or one figure."""

    title: str  # what the runs share; distinguishes the page from the others
    experiment: Experiment  # of the first run; its method, rates, seed and name are examples
    differences: tuple[tuple[str, Any], ...]  # keys that distinguish the page from others, and their values
    rows: tuple[Row, ...]
    rule: Rule
    target: float  # test accuracy in percent
    planned: int  # runs, those of step sizes that are not kept included
    done: int

    @property
    def slug(self) -> str:
        """Distinguishes the page's file from the others, as in `-n4-iid`; empty where there is one page."""
        return "".join(f"-{_short(key)}{value}" for key, value in self.differences).replace("/", "-").replace(":", ".")

    @property
    def caption(self) -> str:
        """Number of clients, local steps, split, horizon, trials, and what else distinguishes the page from others."""
        clients, stop = self.experiment.clients, self.experiment.stop
        horizon = f"horizon {stop.horizon_s:g} s" if stop.horizon_s is not None else f"{stop.iterations:,} iterations"
        said = ("clients.", "split.", "stop.horizon_s", "stop.iterations")
        others = [f"{key} = {value}" for key, value in self.differences if not key.startswith(said)]
        shared = [f"n = {clients.count}", f"M = {clients.local_steps}", describe_data(self.experiment), horizon]
        return ", ".join([*shared, self.trial_count, *others])

    @property
    def trial_count(self) -> str:
        """How many trials the cells have, in words."""
        counts = {len(cell.results) for cell in self.cells} or {0}
        least, most = min(counts), max(counts)
        number = f"{least}" if least == most else f"{least} to {most}"
        return f"{number} trial{'' if most == 1 else 's'}"

    @property
    def methods(self) -> tuple[Contender, ...]:
        """The methods, each as in the first rates setting that has it."""
        first: dict[MethodSettings, Contender] = {}
        for row in self.rows:
            for contender in row.contenders:
                first.setdefault(contender.method, contender)
        return tuple(first.values())

    def lines(self, method: MethodSettings) -> list[tuple[Cell | None, ...]]:
        """The cells of a method: one line per step size, one cell per rates setting, None where it is not kept."""
        columns = [
            {cell.step_size: cell for one in row.contenders if one.method == method for cell in one.cells}
            for row in self.rows
        ]
        sizes = sorted({size for column in columns for size in column})
        return [tuple(column.get(size) for column in columns) for size in sizes]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells: by method, then step size, then rates setting."""
        lines = [line for contender in self.methods for line in self.lines(contender.method)]
        return tuple(cell for line in lines for cell in line if cell is not None)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What was measured: not every problem has an accuracy."""
        results = [result for cell in self.cells for result in cell.results]
        names: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
        return tuple(name for name in names if any(np.isfinite(getattr(r, name)).any() for r in results))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Methods and rates settings that the rule could not judge, with the reason."""
        found = [(row.rates, one) for row in self.rows for one in row.contenders if one.reason]
        order = [contender.method for contender in self.methods]
        found.sort(key=lambda pair: order.index(pair[1].method))
        return tuple(f"{one.label}, {describe_rates(rates)}: {one.reason}" for rates, one in found)

    def is_best(self, cell: Cell, quality: str) -> bool:
        """Whether a cell is the best of its rates setting in `accuracy`, `loss` or `rho`; equal as printed is equal."""
        rivals = [other for other in self.cells if other.experiment.rates == cell.experiment.rates]
        scores = [_score(rival, quality) for rival in rivals]
        score = _score(cell, quality)
        return math.isfinite(score) and score == min(scores)


def _score(cell: Cell, quality: str) -> float:
    """Smaller is better; infinite for a cell that cannot be the best.

    For rho also one in which a trial did not reach the target: the mean over the others would flatter it.
    """
    if not cell.is_eligible or cell.loss is None:
        return math.inf
    if quality == "loss":
        return round(cell.loss.mean, DECIMALS)
    if quality == "accuracy":
        return math.inf if cell.accuracy is None else -round(cell.accuracy.mean, DECIMALS)
    return round(cell.reach.rho, DECIMALS) if cell.reach.is_complete and not math.isnan(cell.reach.rho) else math.inf


# ---------------------------------------------------------------------------------------------------- grouping


def build_tables(
    planned: Sequence[Experiment], results: Iterable[Result], rule: Rule, target: float = 80.0
) -> tuple[Page, ...]:
    """The tables of the planned experiments, in their order, filled with the results that count."""
    return _group(planned, [result for result in results if _is_judged(result)], rule, target)


def arrange(results: Iterable[Result]) -> tuple[Page, ...]:
    """All results as pages to draw: settings and rates in the order in which they first appear, AREA always first."""
    found = list(results)
    pages = _group([result.experiment for result in found], found, named_rule("all"))
    return tuple(replace(page, rows=tuple(map(_drawn, page.rows))) for page in pages)


def setting_of(experiment: Experiment) -> Experiment:
    """What all runs of a page share: the settings without method, rates, seed, name and folders of modules."""
    return replace(experiment, method=Area(step_size=1.0), rates=UniformRates(), seed=0, name="", module_folders=None)


def _drawn(row: Row) -> Row:
    """Only methods that were run, in the order of legends."""
    run = [contender for contender in row.contenders if contender.cells]
    return replace(row, contenders=tuple(sorted(run, key=lambda one: _legend_place(one.method.name))))


def _legend_place(name: str) -> int:
    return [*METHOD_NAMES, name].index(name)


def _is_judged(result: Result) -> bool:
    """Whether a run ended by itself and has a quality to show, or diverged."""
    ended = result.status.state in (State.DONE, State.TARGET) and len(result.train_loss) > 0
    return ended or result.status.state == State.DIVERGED


def _group(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float = 80.0
) -> tuple[Page, ...]:
    """One page per setting of the planned experiments, in their order."""
    asked: dict[Experiment, list[Experiment]] = {}
    for experiment in planned:
        asked.setdefault(setting_of(experiment), []).append(experiment)
    done: dict[Experiment, list[Result]] = {setting: [] for setting in asked}
    for result in results:
        done.get(setting_of(result.experiment), []).append(result)
    return tuple(
        Page(title, asked[setting][0], differences, _rows(asked[setting], done[setting], rule, target), rule, target,
             len(asked[setting]), len(done[setting]))
        for setting, title, differences in zip(asked, titles(list(asked)), _differences(list(asked)), strict=True)
    )  # fmt: skip


def _rows(planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float) -> tuple[Row, ...]:
    """One row per rates setting, with all methods of the page."""
    methods = list(dict.fromkeys(without_step_size(experiment.method) for experiment in planned))
    labels = dict(zip(methods, method_labels(methods), strict=True))
    seeds = [experiment.seed for experiment in planned]

    asked, there = _by_part(planned, planned), _by_part([result.experiment for result in results], results)

    def contender(rates: RateSettings, method: MethodSettings) -> Contender:
        runs = there.get((rates, method), [])
        choice = rule.choose(runs, seeds) if runs else Choice((), ())
        cells = _cells(asked.get((rates, method), []), runs, choice, target)
        variant = [other for other in methods if other.name == method.name].index(method)
        return Contender(method, variant, labels[method], cells, choice.reason)

    rates_settings = dict.fromkeys(experiment.rates for experiment in planned)
    return tuple(Row(rates, tuple(contender(rates, method) for method in methods)) for rates in rates_settings)


def _by_part(experiments: Iterable[Experiment], things: Iterable[_T]) -> dict[_Part, list[_T]]:
    """Things by the rates and the method of their experiments."""
    parts: dict[_Part, list[_T]] = {}
    for experiment, thing in zip(experiments, things, strict=True):
        parts.setdefault((experiment.rates, without_step_size(experiment.method)), []).append(thing)
    return parts


def _cells(planned: Sequence[Experiment], results: Sequence[Result], choice: Choice, target: float) -> tuple[Cell, ...]:
    """What the rule keeps of one method under one rates setting, as far as there are trials to show."""
    cells = []
    for size in choice.step_sizes:
        seeds = {one.seed for one in planned if one.method.step_size == size and one.seed in choice.seeds}
        kept = [result for result in results if result.experiment.method.step_size == size]
        shown = tuple(result for result in kept if result.experiment.seed in choice.seeds)
        if shown:
            cells.append(Cell(shown, max(len(seeds), len(shown)), target))
    return tuple(cells)


def _differences(experiments: Sequence[Experiment]) -> list[tuple[tuple[str, Any], ...]]:
    """For each experiment, the keys in which not all that have them agree, with its values."""
    flat = [dict(flatten(experiment)) for experiment in experiments]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    differing = [key for key in keys if len({one[key] for one in flat if key in one}) > 1]
    return [tuple((key, one[key]) for key in differing if key in one) for one in flat]


def _short(key: str) -> str:
    """A key in a file name; the name of a variant needs no key."""
    return "" if key.endswith(".name") else _SHORT.get(key, key.rpartition(".")[2])


# ---------------------------------------------------------------------------------------------------- step sizes


def choose(contender: Contender, wanted: Mapping[str, float]) -> Cell | None:
    """The step size to draw: the one that is wanted of the method (None where it was not run), else the best.

    Best is the eligible one, or else the one with the fewest diverged trials, with the highest mean final accuracy;
    where there is no accuracy, with the lowest mean final loss.
    """
    if contender.method.name in wanted:
        return next((cell for cell in contender.cells if cell.step_size == wanted[contender.method.name]), None)
    return min(contender.cells, key=_demerit)


def _demerit(cell: Cell) -> tuple[bool, float, tuple[float, float]]:
    accuracy = -cell.accuracy.mean if cell.accuracy else math.inf
    loss = cell.loss.mean if cell.loss else math.inf
    return not cell.is_eligible, cell.diverged / len(cell.results), (accuracy, loss)
