"""The cells of a sweep's tables, every number in full; as CSV one row a cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

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


Values = dict[str, object]  # by column; None where there is no number, infinity for a rho that was not reached


def to_csv(tables: Sequence[tuple[str, SweepTable]], *, with_paper: bool) -> str:
    """Tables, each with the name of its sweep, under one heading. Empty: there is no such number."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CELL_COLUMNS + (PAPER_COLUMNS if with_paper else ()))
    for values in cell_values(tables, with_paper=with_paper):
        writer.writerow([_word(name, value) for name, value in values.items()])
    return buffer.getvalue()


def cell_values(tables: Sequence[tuple[str, SweepTable]], *, with_paper: bool) -> Iterator[Values]:
    """The cells of tables, by column."""
    for sweep, table in tables:
        for row in table.rows:
            for cell in row.cells:
                if cell is not None:
                    ours = dict(zip(CELL_COLUMNS, _cell_values(sweep, table, row.method, cell), strict=True))
                    yield {**ours, **_paper_values(cell.comparison)} if with_paper else ours


def _cell_values(sweep: str, table: SweepTable, method: str, cell: Cell) -> list[object]:
    experiment, reach = cell.experiment, cell.reach
    clients, horizon_s = experiment.clients, experiment.stop.horizon_s
    return [
        sweep, table.title, clients.count, clients.local_steps, describe_split(experiment.split),
        describe_rates(experiment.rates), horizon_s, experiment.record.interval_s, method, cell.step_size,
        table.rule.name, cell.planned, len(cell.results), cell.diverged, cell.target, reach.reached, reach.mean_s,
        reach.rho, *_spread(cell.accuracy), *_spread(cell.loss),
    ]  # fmt: skip


def _paper_values(beside: Comparison | None) -> Values:
    if beside is None:
        return dict.fromkeys(PAPER_COLUMNS)
    theirs = beside.published
    values: list[object] = [
        theirs.table, theirs.horizon_s, theirs.rho, *_spread(theirs.accuracy), *_spread(theirs.loss),
        _in_range(beside, beside.accuracy_in_range), _in_range(beside, beside.loss_in_range),
        *_exact_differences(beside),
    ]  # fmt: skip
    return dict(zip(PAPER_COLUMNS, values, strict=True))


def _in_range(beside: Comparison, answer: bool) -> bool | None:
    """None where trials are missing."""
    return None if beside.ours.missing else answer


def _exact_differences(beside: Comparison) -> list[float | None]:
    """Ours minus published, ours not rounded."""
    ours, theirs = beside.ours, beside.published
    return [
        None if ours.accuracy is None else ours.accuracy.mean - theirs.accuracy.mean,
        None if ours.loss is None else ours.loss.mean - theirs.loss.mean,
        ours.reach.rho - theirs.rho if math.isfinite(ours.reach.rho) else None,
    ]


def _spread(spread: Spread | None) -> list[float | None]:
    return [None] * 3 if spread is None else [spread.mean, spread.minimum, spread.maximum]


def _word(name: str, value: object) -> object:
    """A value as CSV has it: a number as the shortest text that reads back as the same."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("rho") and value == math.inf:
        return ">1"
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return "" if value is None else value
