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
from areabench.tables.words import method_labels, titles, without_step_size


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
    """Smaller is better; infinite for a cell that cannot be the best: one with a diverged trial or none to show.

    For rho also one in which a trial did not reach the target: the mean over the others would flatter it.
    """
    if cell.diverged or cell.loss is None:
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
    """What all runs of a table share: the experiment with method, rates, seed and name put out of the way."""
    return replace(experiment, method=Area(step_size=1.0), rates=UniformRates(), seed=0, name="")


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
    for method, label in zip(methods, method_labels(methods), strict=True):
        columns = [_kept_cells(planned, results, one, method, rule, target) for one in rates]
        sizes = sorted({cell.step_size for column in columns for cell in column})
        for size in sizes:
            found = (next((cell for cell in column if cell.step_size == size), None) for column in columns)
            rows.append(Row(label, size, tuple(found)))
        rows += [] if sizes else [Row(label, None, (None,) * len(rates))]
    return SweepTable(title, setting, tuple(rates), tuple(rows), rule, target, len(planned), len(results))


def _kept_cells(
    planned: Sequence[Experiment],
    results: Sequence[Result],
    rates: RateSettings,
    method: MethodSettings,
    rule: Rule,
    target: float,
) -> list[Cell]:
    """What the rule keeps of one method under one rates setting."""
    of_group = [result for result in results if _belongs(result.experiment, rates, method)]
    if not of_group:
        return []
    choice = rule.choose(of_group)
    asked = [experiment for experiment in planned if _belongs(experiment, rates, method)]
    return [
        _cell(size, choice, asked, of_group, target) for size in choice.step_sizes if _shown(of_group, size, choice)
    ]


def _shown(results: Sequence[Result], size: float, choice: Choice) -> tuple[Result, ...]:
    return tuple(
        result
        for result in results
        if result.experiment.method.step_size == size and result.experiment.seed in choice.seeds
    )


def _cell(size: float, choice: Choice, asked: Sequence[Experiment], results: Sequence[Result], target: float) -> Cell:
    seeds = {experiment.seed for experiment in asked if experiment.method.step_size == size}
    not_shown = {result.experiment.seed for result in results} - set(choice.seeds)
    return Cell(_shown(results, size, choice), len(seeds - not_shown), target)


def _belongs(experiment: Experiment, rates: RateSettings, method: MethodSettings) -> bool:
    return experiment.rates == rates and without_step_size(experiment.method) == method


def _is_judged(result: Result) -> bool:
    """Whether a run has ended by itself and has a quality to show, be it that it diverged."""
    ended = result.status.state in (State.DONE, State.TARGET) and len(result.train_loss) > 0
    return ended or result.status.state == State.DIVERGED
