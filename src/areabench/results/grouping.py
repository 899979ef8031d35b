"""Runs grouped for tables, figures and reports: comparisons of entries of cells of trials.

A comparison is one table or one figure: all runs that agree in everything but method, aggregation, rates, what is
recorded and seed. A rule of `results.retention` says which step sizes of a method are kept, and which trials of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from areabench.engine.events import State
from areabench.experiment.experiment import Experiment, Record
from areabench.experiment.labels import contender_labels, describe_data, flatten, titles, without_step_size, word
from areabench.methods import METHODS
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryUpdates
from areabench.results.cells import Cell
from areabench.results.ranking import QUALITIES, Rank, RankedQuality, rank_cells
from areabench.results.retention import Rule, Selection, named_rule, rule_of
from areabench.results.statistics import Quantity
from areabench.sweeps.read import Sweep
from areabench.sweeps.result import Result
from areabench.timing.rates import RateSettings, UniformRates

Key = TypeVar("Key", bound=Hashable)

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
            accuracy = -math.inf
            if cell.accuracy is not None:
                accuracy = cell.accuracy.mean
            loss = math.inf
            if cell.loss is not None:
                loss = cell.loss.mean
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
        words = ""
        for key, value in self.differences:
            # the name of a variant needs no key
            short = "" if key.endswith(".name") else _SHORT.get(key, key.rpartition(".")[2])
            words += f"-{short}{value}"
        return words.replace("/", "-").replace(":", ".")

    @property
    def caption(self) -> str:
        """Number of clients, local steps, split, horizon, trials, and what else distinguishes it from others."""
        clients = self.experiment.clients
        stop = self.experiment.stop
        horizon = f"horizon {stop.horizon_s:g} s" if stop.horizon_s is not None else f"{stop.iterations:,} iterations"
        said = ("clients.", "split.", "stop.horizon_s", "stop.iterations")
        others = [f"{key} = {value}" for key, value in self.differences if not key.startswith(said)]
        shared = [f"n = {clients.count}", f"M = {clients.local_steps}", describe_data(self.experiment), horizon]
        return ", ".join([*shared, self.trial_count, *others])

    @property
    def trial_count(self) -> str:
        """How many trials the cells have, in words."""
        counts = [len(cell.results) for cell in self.cells] or [0]
        least = min(counts)
        most = max(counts)
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
    judged = [
        result
        for result in sweep.results
        if result.status.state == State.DIVERGED
        or (result.status.state in (State.DONE, State.TARGET) and len(result.train_loss))
    ]
    found = _compared(sweep.plan.experiments, judged, rule_of(sweep, rule), target, sweep.tuned_keys)
    title = sweep.plan.title
    note = ""
    if sweep.transport != "simulator":
        note = ", in real time"
    if failed := len(sweep.failures):
        note += f" ({failed:,} run{'s' * (failed > 1)} failed, see failures.csv)"
    return tuple(
        replace(
            one,
            sweep=sweep.plan.name,
            heading=(one.title if one.title.startswith(title) else f"{title}: {one.title}") + note,
        )
        for one in found
    )


def arrange(results: Iterable[Result], tuned: Sequence[str] = (), target: float = 80.0) -> tuple[Comparison, ...]:
    """All results to draw, with the methods that were run: settings and rates in their order, AREA always first."""
    found = list(results)
    arranged = []
    for one in _compared([result.experiment for result in found], found, named_rule("all"), target, tuned):
        entries: list[Entry] = []
        for row in one.rows.values():
            run = [entry for entry in row if entry.cells]
            entries += sorted(run, key=lambda entry: [*METHODS, entry.method.name].index(entry.method.name))
        arranged.append(replace(one, entries=tuple(entries)))
    return tuple(arranged)


def _compared(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float, tuned: Sequence[str]
) -> list[Comparison]:
    """One comparison per setting of the planned experiments, in their order."""
    setting = _settings_of([*planned, *(result.experiment for result in results)])
    groups = _grouped(planned, results, lambda experiment: setting[experiment])
    settings = list(groups)
    return [
        Comparison(
            title=title,
            experiment=runs.planned[0],
            differences=differences,
            entries=tuple(_entries(runs, rule, target, tuned)),
            rule=rule,
            target=target,
            planned=len(runs.planned),
            done=len(runs.results),
        )
        for runs, title, differences in zip(groups.values(), titles(settings), _differences(settings), strict=True)
    ]


class _Runs(NamedTuple):
    """Runs that have something in common: the experiments that were asked for, and the results that there are."""

    planned: list[Experiment]
    results: list[Result]


def _grouped(
    planned: Iterable[Experiment], results: Iterable[Result], key: Callable[[Experiment], Key]
) -> dict[Key, _Runs]:
    """The runs by key, in the order of the plan."""
    groups: dict[Key, _Runs] = defaultdict(lambda: _Runs([], []))
    for experiment in planned:
        groups[key(experiment)].planned.append(experiment)
    for result in results:
        groups[key(result.experiment)].results.append(result)
    return groups


def setting_of(experiment: Experiment) -> Experiment:
    """What runs of a comparison share: all but method, aggregation, rates, record, seed, name, module folders."""
    return replace(
        experiment, method=MethodSettings(step_size=1.0), aggregation=EveryUpdates(), rates=UniformRates(),
        record=Record(), seed=0, name="", module_folders=None,
    )  # fmt: skip


def _settings_of(experiments: Sequence[Experiment]) -> dict[Experiment, Experiment]:
    """The setting of each; with what is recorded only where the same run was made with several records."""
    # The same run with and without event log is twice in a sweep that measures what a log costs.
    different = set(experiments)
    bare = Counter(replace(one, record=Record(), name="", module_folders=None) for one in different)
    twice = {setting_of(one) for one, count in bare.items() if count > 1}
    plain = {one: setting_of(one) for one in different}
    return {one: replace(each, record=one.record) if each in twice else each for one, each in plain.items()}


def _entries(runs: _Runs, rule: Rule, target: float, tuned: Sequence[str]) -> Iterator[Entry]:
    """One entry per rates setting and method setting of a comparison."""
    first: dict[tuple[str, str], Any] = {}

    def setting_of_method(experiment: Experiment) -> MethodSetting:
        """What is compared; of tuned keys it has the value that the method had first, which `first` keeps."""
        method = without_step_size(experiment.method)
        aggregation = experiment.aggregation
        same = {}
        for key in tuned:
            section, _, name = key.partition(".")
            if section == "aggregation":
                aggregation = first.setdefault((method.name, section), aggregation)
            elif name != "step_size" and hasattr(method, name):
                same[name] = first.setdefault((method.name, name), getattr(method, name))
        return MethodSetting(replace(method, **same), aggregation)

    # Rates come first: the settings of a method are compared under the same rates only.
    groups = _grouped(*runs, lambda experiment: (experiment.rates, setting_of_method(experiment)))
    settings = list(dict.fromkeys(setting for _, setting in groups))
    labels = contender_labels([one.method for one in settings], [one.aggregation for one in settings])
    names = [setting.method.name for setting in settings]
    variants = [names[:index].count(name) for index, name in enumerate(names)]
    seeds = [experiment.seed for experiment in runs.planned]
    for rates in dict.fromkeys(rates for rates, _ in groups):
        for setting, label, variant in zip(settings, labels, variants, strict=True):
            group = groups.get((rates, setting), _Runs([], []))
            choice = rule.choose(group.results, seeds) if group.results else Selection((), ())
            cells = tuple(_cells(group, choice, target, tuned))
            yield Entry(rates, setting, variant, label, cells, choice.reason, choice.note)


def _cells(runs: _Runs, choice: Selection, target: float, tuned: Sequence[str]) -> Iterator[Cell]:
    """What the rule keeps of one method under one rates setting, as far as there are trials to show."""
    others = [key for key in tuned if key != "method.step_size"]

    def point_of(experiment: Experiment) -> tuple[float, str]:
        """The step size, and the other tuned settings that the experiment has, in words."""
        flat = dict(flatten(experiment)) if others else {}
        words = [f"{key.rpartition('.')[2]} = {word(flat[key])}" for key in others if key in flat]
        return experiment.method.step_size, ", ".join(words)

    planned = [one for one in set(runs.planned) if one.seed in choice.seeds]
    shown = [
        result
        for result in runs.results
        if result.experiment.method.step_size in choice.step_sizes and result.experiment.seed in choice.seeds
    ]
    for point, trials in sorted(_grouped(planned, shown, point_of).items()):
        # A point without any trial is no cell: there is nothing to show.
        if trials.results:
            most = max(len(trials.planned), len(trials.results))
            yield Cell(tuple(trials.results), most, target, point[1])


def _differences(experiments: Sequence[Experiment]) -> list[tuple[tuple[str, Any], ...]]:
    """For each experiment, the keys in which not all that have them agree, with its values."""
    flat = [dict(flatten(experiment)) for experiment in experiments]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    differing = [key for key in keys if len({one[key] for one in flat if key in one}) > 1]
    return [tuple((key, one[key]) for key in differing if key in one) for one in flat]
