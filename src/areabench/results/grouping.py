"""Runs grouped for tables, figures and reports: pages of rates settings of methods of step sizes of trials.

A page is one table or one figure: all runs that agree in everything but method, aggregation, rates, what is recorded
and seed. A rule of `results.retention` says which step sizes of a method are kept, and which trials of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from areabench.engine.events import State
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.labels import contender_labels, describe_data, flatten, titles, without_step_size, word
from areabench.methods import METHODS
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryUpdates
from areabench.results.cells import Cell
from areabench.results.ranking import QUALITIES, RankedQuality, Standing, standings
from areabench.results.retention import Choice, Rule, named_rule
from areabench.results.statistics import Quantity
from areabench.sweeps.read import Result
from areabench.timing.rates import RateSettings, UniformRates

_SHORT = {"clients.count": "n", "clients.local_steps": "M", "stop.horizon_s": "t"}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Competitor:
    """What is compared on a page: a method and when its server steps; step size and tuned keys mean nothing here."""

    method: MethodSettings
    aggregation: AggregationSettings


_Part = tuple[RateSettings, Competitor]  # of a page


@dataclass(frozen=True)
class Contender:
    """One competitor under one rates setting, with the step sizes that are kept."""

    competitor: Competitor
    variant: int  # counts the settings of one method that differ beside the step size
    label: str
    cells: tuple[Cell, ...]  # by step size, ascending
    reason: str = ""  # why there is no step size, where the runs are not to blame
    note: str = ""  # what else to say about the choice

    @property
    def method(self) -> MethodSettings:
        """The method; its step size means nothing."""
        return self.competitor.method


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
        first: dict[Competitor, Contender] = {}
        for row in self.rows:
            for contender in row.contenders:
                first.setdefault(contender.competitor, contender)
        return tuple(first.values())

    def lines(self, contender: Contender) -> list[tuple[Cell | None, ...]]:
        """The cells of a competitor: one line per step size, one cell per rates setting, None where it is not kept."""
        same = [[one for one in row.contenders if one.competitor == contender.competitor] for row in self.rows]
        columns = [{(cell.step_size, cell.tuned): cell for one in found for cell in one.cells} for found in same]
        points = sorted({point for column in columns for point in column})
        return [tuple(column.get(point) for column in columns) for point in points]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells: by method, then step size, then rates setting."""
        lines = [line for contender in self.methods for line in self.lines(contender)]
        return tuple(cell for line in lines for cell in line if cell is not None)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What was measured: not every problem has an accuracy."""
        results = [result for cell in self.cells for result in cell.results]
        names: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
        return tuple(name for name in names if any(np.isfinite(getattr(r, name)).any() for r in results))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Methods and rates settings that the rule could not judge, with the reason; and what else it says."""
        found = [(row.rates, one) for row in self.rows for one in row.contenders if one.reason or one.note]
        order = [contender.competitor for contender in self.methods]
        found.sort(key=lambda pair: order.index(pair[1].competitor))
        said = tuple(f"{one.label}, {rates.describe()}: {one.reason or one.note}" for rates, one in found)
        return (*said, *self.rule.notes)

    def standing(self, cell: Cell, quality: RankedQuality) -> Standing:
        """Whether a cell is the best of its rates setting, tied with the best, or outside the noise around it."""
        return self._standings[id(cell), quality]

    @cached_property
    def _standings(self) -> dict[tuple[int, RankedQuality], Standing]:
        found = {}
        for row in self.rows:
            cells = [cell for one in row.contenders for cell in one.cells]
            for quality in QUALITIES:
                for cell, standing in zip(cells, standings(cells, quality), strict=True):
                    found[id(cell), quality] = standing
        return found


# ---------------------------------------------------------------------------------------------------- grouping


def build_tables(
    planned: Sequence[Experiment],
    results: Iterable[Result],
    rule: Rule,
    target: float = 80.0,
    tuned: Sequence[str] = (),
) -> tuple[Page, ...]:
    """The tables of the planned experiments, in their order, filled with the results that count.

    A method that differs only in `tuned` keys is one.
    """
    return _group(planned, [result for result in results if _is_judged(result)], rule, target, tuned)


def arrange(results: Iterable[Result], tuned: Sequence[str] = (), target: float = 80.0) -> tuple[Page, ...]:
    """All results as pages to draw: settings and rates in the order in which they first appear, AREA always first."""
    found = list(results)
    pages = _group([result.experiment for result in found], found, named_rule("all"), target, tuned)
    return tuple(replace(page, rows=tuple(map(_drawn, page.rows))) for page in pages)


def setting_of(experiment: Experiment) -> Experiment:
    """What all runs of a page share: all but method, aggregation, rates, record, seed, name and folders of modules."""
    return replace(
        experiment, method=Area(step_size=1.0), aggregation=EveryUpdates(), rates=UniformRates(), record=Record(),
        seed=0, name="", module_folders=None,
    )  # fmt: skip


def _drawn(row: Row) -> Row:
    """Only methods that were run, in the order of legends."""
    run = [contender for contender in row.contenders if contender.cells]
    return replace(row, contenders=tuple(sorted(run, key=lambda one: _legend_place(one.method.name))))


def _legend_place(name: str) -> int:
    return [*METHODS, name].index(name)


def _is_judged(result: Result) -> bool:
    """Whether a run ended by itself and has a quality to show, or diverged."""
    ended = result.status.state in (State.DONE, State.TARGET) and len(result.train_loss) > 0
    return ended or result.status.state == State.DIVERGED


def _group(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float, tuned: Sequence[str]
) -> tuple[Page, ...]:
    """One page per setting of the planned experiments, in their order."""
    setting = _settings_of([*planned, *(result.experiment for result in results)])
    asked: dict[Experiment, list[Experiment]] = {}
    for experiment in planned:
        asked.setdefault(setting[experiment], []).append(experiment)
    done: dict[Experiment, list[Result]] = {each: [] for each in asked}
    for result in results:
        done.get(setting[result.experiment], []).append(result)
    return tuple(
        Page(title, asked[each][0], differences, _rows(asked[each], done[each], rule, target, tuned), rule, target,
             len(asked[each]), len(done[each]))
        for each, title, differences in zip(asked, titles(list(asked)), _differences(list(asked)), strict=True)
    )  # fmt: skip


def _settings_of(experiments: Sequence[Experiment]) -> dict[Experiment, Experiment]:
    """The setting of each; with what is recorded only where the same run was made with several records."""
    different = set(experiments)
    bare = Counter(replace(one, record=Record(), name="", module_folders=None) for one in different)
    twice = {setting_of(one) for one, count in bare.items() if count > 1}
    plain = {one: setting_of(one) for one in different}
    return {one: replace(each, record=one.record) if each in twice else each for one, each in plain.items()}


def _rows(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float, tuned: Sequence[str]
) -> tuple[Row, ...]:
    """One row per rates setting, with all methods of the page."""
    competitor = partial(_competitor, tuned=tuned, examples={})
    competitors = list(dict.fromkeys(map(competitor, planned)))
    methods, aggregations = [one.method for one in competitors], [one.aggregation for one in competitors]
    labels = dict(zip(competitors, contender_labels(methods, aggregations), strict=True))
    seeds = [experiment.seed for experiment in planned]

    def by_part(experiments: Iterable[Experiment], things: Iterable[_T]) -> dict[_Part, list[_T]]:
        """Things by the rates and the competitor of their experiments."""
        parts: dict[_Part, list[_T]] = {}
        for experiment, thing in zip(experiments, things, strict=True):
            parts.setdefault((experiment.rates, competitor(experiment)), []).append(thing)
        return parts

    asked, there = by_part(planned, planned), by_part([result.experiment for result in results], results)

    def contender(rates: RateSettings, one: Competitor) -> Contender:
        runs = there.get((rates, one), [])
        choice = rule.choose(runs, seeds) if runs else Choice((), ())
        cells = _cells(asked.get((rates, one), []), runs, choice, target, tuned)
        variant = [other for other in competitors if other.method.name == one.method.name].index(one)
        return Contender(one, variant, labels[one], cells, choice.reason, choice.note)

    rates_settings = dict.fromkeys(experiment.rates for experiment in planned)
    return tuple(Row(rates, tuple(contender(rates, one) for one in competitors)) for rates in rates_settings)


def _competitor(experiment: Experiment, tuned: Sequence[str], examples: dict[tuple[str, str], Any]) -> Competitor:
    """What is compared; of tuned keys it has the value that the method had first, which `examples` keeps."""
    method, aggregation = without_step_size(experiment.method), experiment.aggregation
    names = [key.removeprefix("method.") for key in tuned if key.startswith("method.")]
    values = {name: getattr(method, name) for name in names if name != "step_size" and hasattr(method, name)}
    first = {name: examples.setdefault((method.name, name), value) for name, value in values.items()}
    if any(key.startswith("aggregation.") for key in tuned):
        aggregation = examples.setdefault((method.name, "aggregation"), aggregation)
    return Competitor(replace(method, **first), aggregation)


def _cells(
    planned: Sequence[Experiment], results: Sequence[Result], choice: Choice, target: float, tuned: Sequence[str]
) -> tuple[Cell, ...]:
    """What the rule keeps of one competitor under one rates setting, as far as there are trials to show."""
    points: dict[tuple[float, str], list[Result]] = {}
    for result in results:
        point = (result.experiment.method.step_size, _tuned_words(result.experiment, tuned))
        if point[0] in choice.step_sizes and result.experiment.seed in choice.seeds:
            points.setdefault(point, []).append(result)
    asked = Counter(
        (one.method.step_size, _tuned_words(one, tuned)) for one in set(planned) if one.seed in choice.seeds
    )
    return tuple(
        Cell(tuple(shown), max(asked[point], len(shown)), target, point[1]) for point, shown in sorted(points.items())
    )


def _tuned_words(experiment: Experiment, tuned: Sequence[str]) -> str:
    """The tuned settings of an experiment that has them, beside the step size."""
    flat = dict(flatten(experiment)) if len(tuned) > ("method.step_size" in tuned) else {}
    others = [key for key in tuned if key in flat and key != "method.step_size"]
    return ", ".join(f"{key.rpartition('.')[2]} = {word(flat[key])}" for key in others)


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
