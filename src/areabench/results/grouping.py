"""Results arranged for figures: pages of rows of methods of step sizes of trials. Draws nothing.

A page is one figure: all that agrees in everything but method, rates and seed. A row of it is one rates setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import State
from areabench.experiment.labels import (
    METHOD_NAMES,
    describe_data,
    describe_rates,
    flatten,
    method_label,
    method_labels,
    titles,
    variant_words,
    without_step_size,
)
from areabench.experiment.records import (
    Area,
    Experiment,
    MethodSettings,
    RateSettings,
    UniformRates,
)
from areabench.results.cells import Cell
from areabench.results.retention import Choice, Rule
from areabench.results.statistics import DECIMALS
from areabench.sweeps.read import Result

Values = NDArray[np.float64]
Quantity = Literal["test_accuracy", "train_loss"]
_SHORT = {"clients.count": "n", "clients.local_steps": "M", "stop.horizon_s": "t"}


@dataclass(frozen=True)
class Trials:
    """The trials of one method at one step size."""

    step_size: float
    results: tuple[Result, ...]

    @cached_property
    def finished(self) -> tuple[Result, ...]:
        """The trials that did not diverge."""
        return tuple(result for result in self.results if not has_diverged(result))

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return len(self.results) - len(self.finished)

    @property
    def divergence(self) -> str:
        """How many trials diverged, in words; empty where none did."""
        if not self.diverged:
            return ""
        return f"{self.diverged} of {len(self.results)} diverged" if self.finished else "all diverged"

    def final(self, quantity: Quantity) -> Values:
        """Final values of the trials that did not diverge, NaN left out."""
        finals = [r.final_loss if quantity == "train_loss" else r.final_accuracy for r in self.finished]
        values = np.array(finals, dtype=np.float64)
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class Contender:
    """One method with all its step sizes, in ascending order."""

    method: MethodSettings  # its step size means nothing here
    variant: int  # counts the settings of one method that differ beside the step size
    label: str
    cells: tuple[Trials, ...]


@dataclass(frozen=True)
class Row:
    """One rates setting."""

    rates: RateSettings
    contenders: tuple[Contender, ...]


@dataclass(frozen=True)
class Page:
    """One figure: `experiment` stands for all its results, `differences` tell it from the other pages."""

    experiment: Experiment
    differences: tuple[tuple[str, Any], ...]  # keys of the experiment and their values
    rows: tuple[Row, ...]

    @property
    def slug(self) -> str:
        """Tells the page's file from the others', as in `-n4-iid`; empty where there is one page."""
        return "".join(f"-{_short(key)}{value}" for key, value in self.differences).replace("/", "-").replace(":", ".")

    @property
    def results(self) -> tuple[Result, ...]:
        """Everything on the page."""
        cells = [cell for row in self.rows for contender in row.contenders for cell in contender.cells]
        return tuple(result for cell in cells for result in cell.results)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What was measured: not every problem has an accuracy."""
        names: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
        return tuple(name for name in names if any(np.isfinite(getattr(r, name)).any() for r in self.results))


@dataclass(frozen=True)
class Band:
    """Several trials over time: mean, least and greatest value at each time."""

    time_s: Values
    mean: Values
    low: Values
    high: Values


def has_diverged(result: Result) -> bool:
    """Whether a run diverged, or ended with a loss beyond all numbers."""
    return result.status.state == State.DIVERGED or math.isinf(result.final_loss)


# ---------------------------------------------------------------------------------------------------- pages


def arrange(results: Iterable[Result]) -> tuple[Page, ...]:
    """Results as pages, in the order in which settings first appear; methods always in the same order."""
    groups: dict[Experiment, dict[RateSettings, list[Result]]] = {}
    for result in results:
        experiment = result.experiment
        groups.setdefault(_page_key(experiment), {}).setdefault(experiment.rates, []).append(result)
    return tuple(
        Page(next(iter(rows.values()))[0].experiment, differences, tuple(_row(*row) for row in rows.items()))
        for differences, rows in zip(_differences(list(groups)), groups.values(), strict=True)
    )


def _page_key(experiment: Experiment) -> Experiment:
    """What all results of a page share; where modules lie is told of runs of one's own code only."""
    return replace(experiment, name="", module_folders=None, method=Area(step_size=1.0), rates=UniformRates(), seed=0)


def _row(rates: RateSettings, results: Sequence[Result]) -> Row:
    variants: dict[MethodSettings, list[Result]] = {}
    for result in results:
        variants.setdefault(without_step_size(result.experiment.method), []).append(result)
    ordered = sorted(variants, key=lambda method: [*METHOD_NAMES, method.name].index(method.name))
    return Row(rates, tuple(_contender(method, ordered, variants[method]) for method in ordered))


def _contender(method: MethodSettings, rivals: Sequence[MethodSettings], results: Sequence[Result]) -> Contender:
    siblings = [rival for rival in rivals if rival.name == method.name]
    cells: dict[float, list[Result]] = {}
    for result in results:
        cells.setdefault(result.experiment.method.step_size, []).append(result)
    return Contender(
        method,
        siblings.index(method),
        _distinction(method, siblings),
        tuple(Trials(step_size, tuple(cells[step_size])) for step_size in sorted(cells)),
    )


def _distinction(method: MethodSettings, siblings: Sequence[MethodSettings]) -> str:
    """A method's name, with those of its settings in which it differs from its siblings."""
    settings = variant_words(method, siblings)
    return method_label(method.name) + (f" ({', '.join(settings)})" if settings else "")


def _differences(experiments: Sequence[Experiment]) -> list[tuple[tuple[str, Any], ...]]:
    """For each experiment, the keys in which not all that have them agree, with its values."""
    flat = [dict(flatten(experiment)) for experiment in experiments]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    differing = [key for key in keys if len({one[key] for one in flat if key in one}) > 1]
    return [tuple((key, one[key]) for key in differing if key in one) for one in flat]


def _short(key: str) -> str:
    """A key as it stands in a file name; the name of a variant speaks for itself."""
    return "" if key.endswith(".name") else _SHORT.get(key, key.rpartition(".")[2])


# ---------------------------------------------------------------------------------------------------- numbers


def choose(contender: Contender, wished: Mapping[str, float]) -> Trials | None:
    """The step size to draw: the wished one (None where it was not run), else the best.

    Best is, of the step sizes with the fewest diverged trials, the one with the highest mean final accuracy; where
    there is no accuracy, with the lowest mean final loss.
    """
    if contender.method.name in wished:
        return next((cell for cell in contender.cells if cell.step_size == wished[contender.method.name]), None)
    return min(contender.cells, key=_demerit)


def _demerit(cell: Trials) -> tuple[float, float, float]:
    accuracy, loss = cell.final("test_accuracy"), cell.final("train_loss")
    return (
        cell.diverged / len(cell.results),
        -float(accuracy.mean()) if len(accuracy) else math.inf,
        float(loss.mean()) if len(loss) else math.inf,
    )


def band(results: Sequence[Result], quantity: Quantity) -> Band:
    """Mean and range over trials, at the times of the trial that ends first; empty where nothing was measured.

    Snapshots without a value are left out. Trials of a sweep share their time grid; where one does not, its values
    are interpolated linearly.
    """
    curves = [curve for result in results if len((curve := _measured(result, quantity))[0])]
    if not curves:
        return Band(*np.empty((4, 0)))
    start_s = max(time_s[0] for time_s, _ in curves)
    first_to_end = min(curves, key=lambda curve: float(curve[0][-1]))[0]
    grid = first_to_end[first_to_end >= start_s]
    values = np.stack([np.interp(grid, time_s, value) for time_s, value in curves])
    return Band(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _measured(result: Result, quantity: Quantity) -> tuple[Values, Values]:
    """Times and values of the snapshots that have one."""
    values: Values = getattr(result, quantity)
    there = np.isfinite(values)
    return result.time_s[there], values[there]


def staleness_shares(results: Sequence[Result]) -> Values:
    """Mean over trials of the share of updates that were 0, 1, 2, ... server steps old; empty where there are none."""
    counts = [result.staleness for result in results if result.staleness.sum() > 0]
    shares = np.zeros((len(counts), max(map(len, counts), default=0)))
    for share, count in zip(shares, counts, strict=True):
        share[: len(count)] = count / count.sum()
    return np.trim_zeros(shares.mean(axis=0), "b") if len(counts) else np.empty(0)


@dataclass(frozen=True)
class TableRow:
    """One method and step size: a cell a rates setting, None where that setting does not keep the step size."""

    method: str
    step_size: float | None  # None where nothing is kept in any rates setting
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class SweepTable:
    """One table in the paper's form."""

    title: str
    setting: Experiment  # method, rates, seed and name stand for all of the table's
    rates: tuple[RateSettings, ...]  # a column block each
    rows: tuple[TableRow, ...]  # by method, then by step size
    rule: Rule
    target: float  # percent
    planned: int  # runs, those of step sizes that are not kept included
    done: int
    skipped: tuple[str, ...] = ()  # methods and rates that the rule could not judge, with the reason

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(cell for row in self.rows for cell in row.cells if cell is not None)

    def is_best(self, cell: Cell, quality: str) -> bool:
        """Whether a cell is the best of its rates setting in `accuracy`, `loss` or `rho`; equal as printed is equal."""
        rivals = [other for other in self.cells if other.experiment.rates == cell.experiment.rates]
        scores = [_score(rival, quality) for rival in rivals]
        score = _score(cell, quality)
        return math.isfinite(score) and score == min(scores)


def _score(cell: Cell, quality: str) -> float:
    """Smaller is better; infinite for a cell that cannot be the best: one with a missing or diverged trial.

    For rho also one in which a trial did not reach the target: the mean over the others would flatter it.
    """
    if not cell.is_eligible or cell.loss is None:
        return math.inf
    if quality == "loss":
        return round(cell.loss.mean, DECIMALS)
    if quality == "accuracy":
        return math.inf if cell.accuracy is None else -round(cell.accuracy.mean, DECIMALS)
    return round(cell.reach.rho, DECIMALS) if cell.reach.is_complete and not math.isnan(cell.reach.rho) else math.inf


def build_tables(
    planned: Sequence[Experiment], results: Sequence[Result], rule: Rule, target: float = 80.0
) -> tuple[SweepTable, ...]:
    """The tables of the planned experiments, in their order, filled with the results there are."""
    settings = list(dict.fromkeys(setting_of(experiment) for experiment in planned))
    return tuple(
        _build_table(
            setting,
            title,
            [experiment for experiment in planned if setting_of(experiment) == setting],
            [result for result in results if _is_judged(result) and setting_of(result.experiment) == setting],
            rule,
            target,
        )
        for setting, title in zip(settings, titles(settings), strict=True)
    )


def setting_of(experiment: Experiment) -> Experiment:
    """What all runs of a table share: method, rates, seed, name and where modules lie are put out of the way."""
    return replace(experiment, method=Area(step_size=1.0), rates=UniformRates(), seed=0, name="", module_folders=None)


def _build_table(
    setting: Experiment,
    title: str,
    planned: Sequence[Experiment],
    results: Sequence[Result],
    rule: Rule,
    target: float,
) -> SweepTable:
    rates = list(dict.fromkeys(experiment.rates for experiment in planned))
    methods = list(dict.fromkeys(without_step_size(experiment.method) for experiment in planned))
    rows: list[TableRow] = []
    skipped: list[str] = []
    for method, label in zip(methods, method_labels(methods), strict=True):
        groups = [_group(planned, results, one, method, rule) for one in rates]
        columns = [group.cells(target) for group in groups]
        sizes = sorted({cell.step_size for column in columns for cell in column})
        for size in sizes:
            found = (next((cell for cell in column if cell.step_size == size), None) for column in columns)
            rows.append(TableRow(label, size, tuple(found)))
        rows += [] if sizes else [TableRow(label, None, (None,) * len(rates))]
        reasons = [(one, group.choice.reason) for one, group in zip(rates, groups, strict=True)]
        skipped += [f"{label}, {describe_rates(one)}: {reason}" for one, reason in reasons if reason]
    counts = (len(planned), len(results))
    return SweepTable(title, setting, tuple(rates), tuple(rows), rule, target, *counts, tuple(skipped))


@dataclass(frozen=True)
class _Group:
    """One method under one rates setting: what was asked for, what there is, and what the rule makes of it."""

    asked: tuple[Experiment, ...]
    results: tuple[Result, ...]
    choice: Choice

    def cells(self, target: float) -> list[Cell]:
        """What the rule keeps, as far as there are trials to show."""
        sizes = self.choice.step_sizes
        return [Cell(shown, self._planned(size), target) for size in sizes if (shown := self._shown(size))]

    def _shown(self, size: float) -> tuple[Result, ...]:
        return tuple(result for result in self.results if self._shows(result.experiment, size))

    def _planned(self, size: float) -> int:
        return len({experiment.seed for experiment in self.asked if self._shows(experiment, size)})

    def _shows(self, experiment: Experiment, size: float) -> bool:
        return experiment.method.step_size == size and experiment.seed in self.choice.seeds


def _group(
    planned: Sequence[Experiment], results: Sequence[Result], rates: RateSettings, method: MethodSettings, rule: Rule
) -> _Group:
    """The runs of one method under one rates setting; the seeds are those of the whole table."""
    of_group = tuple(result for result in results if _belongs(result.experiment, rates, method))
    asked = tuple(experiment for experiment in planned if _belongs(experiment, rates, method))
    seeds = [experiment.seed for experiment in planned]
    return _Group(asked, of_group, rule.choose(of_group, seeds) if of_group else Choice((), ()))


def _belongs(experiment: Experiment, rates: RateSettings, method: MethodSettings) -> bool:
    return experiment.rates == rates and without_step_size(experiment.method) == method


def _is_judged(result: Result) -> bool:
    """Whether a run has ended by itself and has a quality to show, be it that it diverged."""
    ended = result.status.state in (State.DONE, State.TARGET) and len(result.train_loss) > 0
    return ended or result.status.state == State.DIVERGED


def title_of(page: Page) -> str:
    """Number of clients, local steps, split, horizon, and what else tells the page from others."""
    said = ("clients.", "split.", "stop.horizon_s", "stop.iterations")
    others = [f"{key} = {value}" for key, value in page.differences if not key.startswith(said)]
    return ", ".join([*_settings(page.experiment), _trials(page), *others])


def _settings(experiment: Experiment) -> list[str]:
    clients, stop = experiment.clients, experiment.stop
    horizon = f"horizon {stop.horizon_s:g} s" if stop.horizon_s is not None else f"{stop.iterations:,} iterations"
    return [f"n = {clients.count}", f"M = {clients.local_steps}", describe_data(experiment), horizon]


def _trials(page: Page) -> str:
    counts = {len(cell.results) for row in page.rows for one in row.contenders for cell in one.cells}
    least, most = min(counts), max(counts)
    number = f"{least}" if least == most else f"{least} to {most}"
    return f"{number} trial{'s' if most > 1 else ''}"
