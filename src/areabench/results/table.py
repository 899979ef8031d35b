"""The numbers of tables, in full and by column: one row per cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from areabench.experiment.labels import describe_rates, describe_split
from areabench.results.cells import Cell
from areabench.results.grouping import Page, build_tables
from areabench.results.ranking import QUALITIES, Standing
from areabench.results.retention import RuleName, named_rule, rule_of
from areabench.results.statistics import Spread
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
    rule = rule_of(sweep, named_rule(keep, target=target))
    tables = build_tables(sweep.plan.experiments, sweep.results, rule, target, sweep.tuned_keys)
    cells = cell_values([(sweep.plan.name, table) for table in tables])
    rows = [{name: math.nan if value is None else value for name, value in cell.items()} for cell in cells]
    return frame_of(rows, columns=list(CELL_COLUMNS))


def table_columns(sweep: Sweep, target: float = 80.0) -> Columns:
    """The cells of a sweep's table by column, with all of its step sizes."""
    rule = rule_of(sweep, named_rule("all", target=target))
    tables = build_tables(sweep.plan.experiments, sweep.results, rule, target, sweep.tuned_keys)
    return columns_of(list(cell_values([(sweep.plan.name, table) for table in tables])))


def cell_values(tables: Sequence[tuple[str, Page]]) -> Iterator[CellValues]:
    """The cells of tables by column; each table comes with the name of its sweep."""
    for sweep, table in tables:
        for contender in table.methods:
            for cell in (cell for line in table.lines(contender) for cell in line if cell is not None):
                yield dict(zip(CELL_COLUMNS, _values(sweep, table, contender.label, cell), strict=True))


def _values(sweep: str, table: Page, method: str, cell: Cell) -> list[object]:
    experiment, reach = cell.experiment, cell.reach
    clients, horizon_s = experiment.clients, experiment.stop.horizon_s
    return [
        sweep, table.title, clients.count, clients.local_steps, describe_split(experiment.split),
        describe_rates(experiment.rates), horizon_s, experiment.record.interval_s, method, cell.step_size,
        cell.tuned or None, table.rule.name, cell.planned, len(cell.results), cell.diverged, cell.target,
        reach.reached, reach.mean_s, reach.rho, *_spread(cell.accuracy), *_spread(cell.loss),
        *_interval(cell.accuracy), *_interval(cell.loss), *_interval(cell.rho),
        *(value for quality in QUALITIES for value in _standing(table.standing(cell, quality))),
    ]  # fmt: skip


def _interval(spread: Spread | None) -> list[float | None]:
    return [None] * 2 if spread is None or math.isnan(spread.low) else [spread.low, spread.high]


def _standing(standing: Standing) -> list[object]:
    """Mark, and the difference from the best mean."""
    found = standing.difference
    return [standing.mark or None, *([None] * 4 if found is None else [found.mean, found.low, found.high, found.p])]


def _spread(spread: Spread | None) -> list[float | None]:
    return [None] * 3 if spread is None else [spread.mean, spread.minimum, spread.maximum]
