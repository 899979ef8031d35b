"""Runs grouped for tables, figures and reports: comparisons of entries of cells of trials.

A comparison is one table or one figure: all runs that agree in everything but method, aggregation, rates, what is
recorded and seed. A rule of `results.retention` says which step sizes of a method are kept, and which trials of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from areabench.engine.events import State
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.labels import contender_labels, describe_data, flatten, titles, without_step_size, word
from areabench.methods import METHODS
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryUpdates
from areabench.results.cells import Cell
from areabench.results.ranking import QUALITIES, Rank, RankedQuality, rank_cells
from areabench.results.retention import Rule, Selection, named_rule, rule_of
from areabench.results.statistics import Quantity
from areabench.sweeps.read import Result, Sweep
from areabench.timing.rates import RateSettings, UniformRates

_SHORT = {"clients.count": "n", "clients.local_steps": "M", "stop.horizon_s": "t"}


@dataclass(frozen=True)
class MethodSetting:
    """What is compared: a method and when its server steps; step size and tuned keys mean nothing here."""

    method: MethodSettings
    aggregation: AggregationSettings


@dataclass(frozen=True)
class Entry:
    """One method setting under one rates setting, with the step sizes that are kept."""

    rates: RateSettings
    setting: MethodSetting
    variant: int  # counts the settings of one method that differ beside the step size
    label: str
    cells: tuple[Cell, ...]  # by step size, ascending
    reason: str = ""  # why there is no step size, where the runs are not to blame
    note: str = ""  # what else to say about the choice

    @property
    def method(self) -> MethodSettings:
        """The method; its step size means nothing."""
        return self.setting.method

    def cell_to_draw(self, wanted: Mapping[str, float]) -> Cell | None:
        """The step size that is wanted of the method, None where it was not run; or else the best.

        Best is the eligible one, or else the one with the fewest diverged trials, with the highest mean final accuracy;
        where there is no accuracy, with the lowest mean final loss.
        """

        def demerit(cell: Cell) -> tuple[bool, float, float, float]:
            accuracy = cell.accuracy.mean if cell.accuracy else -math.inf
            loss = cell.loss.mean if cell.loss else math.inf
            return not cell.is_eligible, cell.diverged / len(cell.results), -accuracy, loss

        if self.method.name in wanted:
            return next((cell for cell in self.cells if cell.step_size == wanted[self.method.name]), None)
        return min(self.cells, key=demerit)


@dataclass(frozen=True)
class Comparison:
    """One table or one figure."""

    title: str  # what the runs share; distinguishes the comparison from the others
    experiment: Experiment  # of the first run; its method, rates, seed and name are examples
    differences: tuple[tuple[str, Any], ...]  # keys that distinguish it from others, and their values
    entries: tuple[Entry, ...]  # by rates setting, then method setting
    rule: Rule
    target: float  # test accuracy in percent
    planned: int  # runs, those of step sizes that are not kept included
    done: int
    sweep: str = ""  # name of the sweep, where the runs are of one
    heading: str = ""  # the sweep's own title before `title`, and what went wrong

    @cached_property
    def rows(self) -> Mapping[RateSettings, tuple[Entry, ...]]:
        """The entries of each rates setting: a row of panels, or a block of a table."""
        rates_settings = dict.fromkeys(entry.rates for entry in self.entries)
        return {rates: tuple(one for one in self.entries if one.rates == rates) for rates in rates_settings}

    @property
    def slug(self) -> str:
        """Distinguishes the figure's file from others, as in `-n4-iid`; empty where there is one comparison."""
        return "".join(f"-{_short(key)}{value}" for key, value in self.differences).replace("/", "-").replace(":", ".")

    @property
    def caption(self) -> str:
        """Number of clients, local steps, split, horizon, trials, and what else distinguishes it from others."""
        clients, stop = self.experiment.clients, self.experiment.stop
        horizon = f"horizon {stop.horizon_s:g} s" if stop.horizon_s is not None else f"{stop.iterations:,} iterations"
        said = ("clients.", "split.", "stop.horizon_s", "stop.iterations")
        others = [f"{key} = {value}" for key, value in self.differences if not key.startswith(said)]
        shared = [f"n = {clients.count}", f"M = {clients.local_steps}", describe_data(self.experiment), horizon]
        return ", ".join([*shared, self.trial_count, *others])

    @property
    def trial_count(self) -> str:
        """How many trials the cells have, in words."""
        counts = [len(cell.results) for cell in self.cells] or [0]
        least, most = min(counts), max(counts)
        number = f"{least}" if least == most else f"{least} to {most}"
        return f"{number} trial{'' if most == 1 else 's'}"

    @property
    def methods(self) -> tuple[Entry, ...]:
        """The method settings, each as in the first rates setting that has it."""
        first: dict[MethodSetting, Entry] = {}
        for entry in self.entries:
            first.setdefault(entry.setting, entry)
        return tuple(first.values())

    def lines(self, setting: MethodSetting) -> list[tuple[Cell | None, ...]]:
        """The cells of a method: one line per step size, one cell per rates setting, None where it is not kept."""
        columns = [
            {(cell.step_size, cell.tuned): cell for one in row if one.setting == setting for cell in one.cells}
            for row in self.rows.values()
        ]
        points = sorted({point for column in columns for point in column})
        return [tuple(column.get(point) for column in columns) for point in points]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells: by method, then step size, then rates setting."""
        lines = [line for entry in self.methods for line in self.lines(entry.setting)]
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
        by_method = [one for method in self.methods for one in self.entries if one.setting == method.setting]
        said = [(one, one.reason or one.note) for one in by_method]
        words = [f"{one.label}, {one.rates.describe()}: {what}" for one, what in said if what]
        return (*words, *self.rule.notes)

    def rank(self, cell: Cell, quality: RankedQuality) -> Rank:
        """Whether a cell is the best of its rates setting, tied with the best, or outside the noise around it."""
        return self._ranks[id(cell), quality]

    @cached_property
    def _ranks(self) -> dict[tuple[int, RankedQuality], Rank]:
        found = {}
        for row in self.rows.values():
            cells = [cell for entry in row for cell in entry.cells]
            for quality in QUALITIES:
                for cell, rank in zip(cells, rank_cells(cells, quality), strict=True):
                    found[id(cell), quality] = rank
        return found


# ---------------------------------------------------------------------------------------------------- grouping


def comparisons_of(sweep: Sweep, rule: Rule, target: float = 80.0) -> tuple[Comparison, ...]:
    """The tables of a sweep in the order of its plan, filled with the results that count; a tuned one has its own rule.

    Methods that differ only in tuned keys are one.
    """
    judged = [result for result in sweep.results if _is_judged(result)]
    found = _group(sweep.plan.experiments, judged, rule_of(sweep, rule), target, sweep.tuned_keys)
    title = sweep.plan.title or sweep.plan.name
    note = "" if sweep.transport == "simulator" else ", in real time"
    if failed := len(sweep.failures):
        note += f" ({failed:,} run{'' if failed == 1 else 's'} failed, see failures.csv)"
    headings = [one.title if one.title.startswith(title) else f"{title}: {one.title}" for one in found]
    return tuple(
        replace(one, sweep=sweep.plan.name, heading=heading + note)
        for one, heading in zip(found, headings, strict=True)
    )


def arrange(results: Iterable[Result], tuned: Sequence[str] = (), target: float = 80.0) -> tuple[Comparison, ...]:
    """All results to draw, with the methods that were run: settings and rates in their order, AREA always first."""
    found = list(results)
    comparisons = _group([result.experiment for result in found], found, named_rule("all"), target, tuned)
    return tuple(replace(one, entries=tuple(_in_legend_order(one))) for one in comparisons)


def _in_legend_order(comparison: Comparison) -> Iterable[Entry]:
    for row in comparison.rows.values():
        run = [entry for entry in row if entry.cells]
        yield from sorted(run, key=lambda entry: [*METHODS, entry.method.name].index(entry.method.name))


def _is_judged(result: Result) -> bool:
    """Whether a run ended by itself and has a quality to show, or diverged."""
    ended = result.status.state in (State.DONE, State.TARGET) and len(result.train_loss) > 0
    return ended or result.status.state == State.DIVERGED


def _group(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float, tuned: Sequence[str]
) -> tuple[Comparison, ...]:
    """One comparison per setting of the planned experiments, in their order."""
    setting = _settings_of([*planned, *(result.experiment for result in results)])
    asked: dict[Experiment, list[Experiment]] = {}
    for experiment in planned:
        asked.setdefault(setting[experiment], []).append(experiment)
    done: dict[Experiment, list[Result]] = defaultdict(list)
    for result in results:
        done[setting[result.experiment]].append(result)
    return tuple(
        Comparison(
            title=title,
            experiment=asked[each][0],
            differences=differences,
            entries=tuple(_entries(asked[each], done[each], rule, target, tuned)),
            rule=rule,
            target=target,
            planned=len(asked[each]),
            done=len(done[each]),
        )
        for each, title, differences in zip(asked, titles(list(asked)), _differences(list(asked)), strict=True)
    )


def setting_of(experiment: Experiment) -> Experiment:
    """What runs of a comparison share: all but method, aggregation, rates, record, seed, name, module folders."""
    return replace(
        experiment, method=Area(step_size=1.0), aggregation=EveryUpdates(), rates=UniformRates(), record=Record(),
        seed=0, name="", module_folders=None,
    )  # fmt: skip


def _settings_of(experiments: Sequence[Experiment]) -> dict[Experiment, Experiment]:
    """The setting of each; with what is recorded only where the same run was made with several records."""
    different = set(experiments)
    bare = Counter(replace(one, record=Record(), name="", module_folders=None) for one in different)
    twice = {setting_of(one) for one, count in bare.items() if count > 1}
    plain = {one: setting_of(one) for one in different}
    return {one: replace(each, record=one.record) if each in twice else each for one, each in plain.items()}


def _entries(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float, tuned: Sequence[str]
) -> Iterable[Entry]:
    """One entry per rates setting and method setting of a comparison."""
    first: dict[tuple[str, str], Any] = {}
    asked: dict[tuple[RateSettings, MethodSetting], list[Experiment]] = defaultdict(list)
    for experiment in planned:
        asked[experiment.rates, _method_setting(experiment, tuned, first)].append(experiment)
    done: dict[tuple[RateSettings, MethodSetting], list[Result]] = defaultdict(list)
    for result in results:
        done[result.experiment.rates, _method_setting(result.experiment, tuned, first)].append(result)
    settings = list(dict.fromkeys(setting for _, setting in asked))
    labels = contender_labels([one.method for one in settings], [one.aggregation for one in settings])
    seeds = [experiment.seed for experiment in planned]
    names: list[str] = []
    for rates in dict.fromkeys(rates for rates, _ in asked):
        names.clear()
        for setting, label in zip(settings, labels, strict=True):
            name = setting.method.name
            there = done[rates, setting]
            choice = rule.choose(there, seeds) if there else Selection((), ())
            cells = _cells(asked[rates, setting], there, choice, target, tuned)
            yield Entry(rates, setting, names.count(name), label, cells, choice.reason, choice.note)
            names.append(name)


def _method_setting(experiment: Experiment, tuned: Sequence[str], first: dict[tuple[str, str], Any]) -> MethodSetting:
    """What is compared; of tuned keys it has the value that the method had first, which `first` keeps."""
    method = without_step_size(experiment.method)
    aggregation = experiment.aggregation
    names = [key.removeprefix("method.") for key in tuned if key.startswith("method.")]
    values = {name: getattr(method, name) for name in names if name != "step_size" and hasattr(method, name)}
    same = {name: first.setdefault((method.name, name), value) for name, value in values.items()}
    if any(key.startswith("aggregation.") for key in tuned):
        aggregation = first.setdefault((method.name, "aggregation"), aggregation)
    return MethodSetting(replace(method, **same), aggregation)


def _cells(
    planned: Sequence[Experiment], results: Sequence[Result], choice: Selection, target: float, tuned: Sequence[str]
) -> tuple[Cell, ...]:
    """What the rule keeps of one method under one rates setting, as far as there are trials to show."""

    def point_of(experiment: Experiment) -> tuple[float, str]:
        return experiment.method.step_size, _tuned_words(experiment, tuned)

    shown: dict[tuple[float, str], list[Result]] = {}
    for result in results:
        if result.experiment.method.step_size in choice.step_sizes and result.experiment.seed in choice.seeds:
            shown.setdefault(point_of(result.experiment), []).append(result)
    asked = Counter(point_of(one) for one in set(planned) if one.seed in choice.seeds)
    return tuple(
        Cell(tuple(trials), max(asked[point], len(trials)), target, point[1]) for point, trials in sorted(shown.items())
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
