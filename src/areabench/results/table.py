"""The numbers of tables, in full and by column: one row per cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from areabench.experiment.labels import describe_split
from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, comparisons_of
from areabench.results.ranking import QUALITIES
from areabench.results.retention import RuleName, named_rule
from areabench.runfile.export import Columns, columns_of
from areabench.runfile.read import frame_of
from areabench.sweeps.read import Sweep

if TYPE_CHECKING:
    import pandas as pd

CELL_COLUMNS = (
    "sweep", "table", "clients", "local_steps", "split", "rates", "horizon_s", "interval_s", "method", "step_size",
    "tuned", "kept_by", "planned", "done", "diverged", "target_accuracy", "reached", "time_to_target_s", "rho",
    "accuracy_mean", "accuracy_min", "accuracy_max", "loss_mean", "loss_min", "loss_max", "accuracy_low",
    "accuracy_high", "loss_low", "loss_high", "rho_low", "rho_high",
    *(f"{quality}_{word}" for quality in QUALITIES for word in ("mark", "to_best", "to_best_low", "to_best_high", "p")),
)  # fmt: skip

CellValues = dict[str, object]  # by column; None where there is no number, infinity for a rho that was not reached


def sweep_table(sweep: Sweep, keep: RuleName = "all", target: float = 80.0) -> pd.DataFrame:
    """What `areabench table` shows of a sweep, every number in full; one row per cell.

    A cell is one method, rates setting and step size. `keep` names the rule that says which step sizes are kept
    (docs/tables.md; a tuned sweep has chosen its own), `target` is the test accuracy in percent whose time is shown. A
    rho that was not reached is infinite; what is not known is missing.
    """
    cells = cell_values(comparisons_of(sweep, named_rule(keep, target=target), target))
    rows = [{name: math.nan if value is None else value for name, value in cell.items()} for cell in cells]
    return frame_of(rows, columns=list(CELL_COLUMNS))


def table_columns(sweep: Sweep, target: float = 80.0) -> Columns:
    """The cells of a sweep's table by column, with all of its step sizes."""
    return columns_of(list(cell_values(comparisons_of(sweep, named_rule("all"), target))))


def cell_values(comparisons: Sequence[Comparison]) -> Iterator[CellValues]:
    """The cells of comparisons by column."""
    for comparison in comparisons:
        for entry in comparison.methods:
            for line in comparison.lines(entry.setting):
                for cell in line:
                    if cell is not None:
                        yield dict(zip(CELL_COLUMNS, _values(comparison, entry.label, cell), strict=True))


def _values(comparison: Comparison, method: str, cell: Cell) -> Iterator[object]:
    """The values of a cell in the order of CELL_COLUMNS."""
    experiment = cell.experiment
    yield from (
        comparison.sweep, comparison.title, experiment.clients.count, experiment.clients.local_steps,
        describe_split(experiment.split), experiment.rates.describe(), experiment.stop.horizon_s,
        experiment.record.interval_s, method, cell.step_size, cell.tuned or None, comparison.rule.name, cell.planned,
        len(cell.results), cell.diverged, cell.target, cell.reach.reached, cell.reach.mean_s, cell.reach.rho,
    )  # fmt: skip
    for spread in (cell.accuracy, cell.loss):
        yield from (None, None, None) if spread is None else (spread.mean, spread.minimum, spread.maximum)
    for spread in (cell.accuracy, cell.loss, cell.rho):
        yield from (None, None) if spread is None or math.isnan(spread.low) else (spread.low, spread.high)
    for quality in QUALITIES:
        rank = comparison.rank(cell, quality)
        apart = rank.difference
        yield rank.mark or None
        yield from (None,) * 4 if apart is None else (apart.mean, apart.low, apart.high, apart.p)
