"""Tables of a sweep: runs grouped by setting, rates, method and step size, with what a table says of each group.

A table belongs to one setting: everything of an experiment but method, rates, seed and name. Its rows are methods and
the step sizes that a rule keeps (`retention`), its column blocks are the rates settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from areabench.experiment import Area, Experiment, MethodSettings, RateSettings, UniformRates
from areabench.schema import State
from areabench.sweeps.results import Result
from areabench.tables.cells import Cell
from areabench.tables.retention import Choice, Rule
from areabench.tables.spread import DECIMALS
from areabench.tables.words import describe_rates, method_labels, titles, without_step_size


@dataclass(frozen=True)
class Row:
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
    rows: tuple[Row, ...]  # by method, then by step size
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
    rows: list[Row] = []
    skipped: list[str] = []
    for method, label in zip(methods, method_labels(methods), strict=True):
        groups = [_group(planned, results, one, method, rule) for one in rates]
        columns = [group.cells(target) for group in groups]
        sizes = sorted({cell.step_size for column in columns for cell in column})
        for size in sizes:
            found = (next((cell for cell in column if cell.step_size == size), None) for column in columns)
            rows.append(Row(label, size, tuple(found)))
        rows += [] if sizes else [Row(label, None, (None,) * len(rates))]
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
