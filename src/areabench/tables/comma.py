"""A sweep's tables as CSV: one row a cell, every number in full."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from areabench.tables.build import SweepTable
from areabench.tables.cells import Cell, Comparison
from areabench.tables.spread import Spread
from areabench.tables.words import describe_rates, describe_split

CELL_COLUMNS = (
    "sweep", "table", "clients", "local_steps", "split", "rates", "horizon_s", "interval_s", "method", "step_size",
    "kept_by", "planned", "done", "diverged", "target_accuracy", "reached", "time_to_target_s", "rho", "accuracy_mean",
    "accuracy_min", "accuracy_max", "loss_mean", "loss_min", "loss_max",
)  # fmt: skip
PAPER_COLUMNS = (
    "paper_table", "paper_horizon_s", "paper_rho", "paper_accuracy_mean", "paper_accuracy_min", "paper_accuracy_max",
    "paper_loss_mean", "paper_loss_min", "paper_loss_max", "accuracy_in_range", "loss_in_range",
    "accuracy_difference", "loss_difference", "rho_difference",
)  # fmt: skip


def to_csv(tables: Sequence[tuple[str, SweepTable]], *, with_paper: bool) -> str:
    """Tables, each with the name of its sweep, under one heading. Empty: there is no such number."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CELL_COLUMNS + (PAPER_COLUMNS if with_paper else ()))
    for sweep, table in tables:
        for row in table.rows:
            for cell in row.cells:
                if cell is not None:
                    ours = _cell_values(sweep, table, row.method, cell)
                    writer.writerow(ours + (_paper_values(cell.comparison) if with_paper else []))
    return buffer.getvalue()


def _cell_values(sweep: str, table: SweepTable, method: str, cell: Cell) -> list[object]:
    experiment, reach = cell.experiment, cell.reach
    clients, horizon_s = experiment.clients, experiment.stop.horizon_s
    return [
        sweep, table.title, clients.count, clients.local_steps, describe_split(experiment.split),
        describe_rates(experiment.rates), _number(horizon_s), _number(experiment.record.interval_s), method,
        _number(cell.step_size), table.rule.name, cell.planned, len(cell.results), cell.diverged, _number(cell.target),
        reach.reached, _number(reach.mean_s), _rho(reach.rho), *_spread(cell.accuracy), *_spread(cell.loss),
    ]  # fmt: skip


def _paper_values(beside: Comparison | None) -> list[object]:
    if beside is None:
        return [""] * len(PAPER_COLUMNS)
    theirs = beside.published
    return [
        theirs.table, _number(theirs.horizon_s), _rho(theirs.rho), *_spread(theirs.accuracy), *_spread(theirs.loss),
        _in_range(beside, beside.accuracy_in_range), _in_range(beside, beside.loss_in_range),
        *_exact_differences(beside),
    ]  # fmt: skip


def _in_range(beside: Comparison, answer: bool) -> str:
    """Empty where trials are missing."""
    return "" if beside.ours.missing else "yes" if answer else "no"


def _exact_differences(beside: Comparison) -> list[str]:
    """Ours minus published, ours not rounded."""
    ours, theirs = beside.ours, beside.published
    accuracy = ours.accuracy.mean - theirs.accuracy.mean if ours.accuracy is not None else math.nan
    loss = ours.loss.mean - theirs.loss.mean if ours.loss is not None else math.nan
    rho = ours.reach.rho - theirs.rho if math.isfinite(ours.reach.rho) else math.nan
    return [_number(accuracy), _number(loss), _number(rho)]


def _spread(spread: Spread | None) -> list[str]:
    if spread is None:
        return [""] * 3
    return [_number(spread.mean), _number(spread.minimum), _number(spread.maximum)]


def _rho(rho: float) -> str:
    return ">1" if math.isinf(rho) else _number(rho)


def _number(value: float | None) -> str:
    """The shortest text that reads back as the same number."""
    return "" if value is None or not math.isfinite(value) else repr(float(value))
