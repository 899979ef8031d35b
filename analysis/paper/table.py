"""A sweep's table beside the paper's: in words, and as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from paper.published import BesidePaper, beside_paper
from paper.rules import PUBLISHED

from areabench.experiment.labels import describe_rates
from areabench.results.cells import Cell
from areabench.results.grouping import Contender, Page, build_tables
from areabench.results.retention import Rule
from areabench.results.statistics import Spread
from areabench.results.table import CELL_COLUMNS, CellValues, cell_values
from areabench.runfile.read import frame_of
from areabench.sweeps.read import Sweep
from areabench.views.tables.forms import Entry, Group, Sheet
from areabench.views.tables.sheets import (
    has_gaps,
    own_notes,
    quality_entries,
    rho_entry,
    rho_word,
    shared_notes,
    signed,
    spread_word,
    step_size_entry,
    trials_entry,
)

if TYPE_CHECKING:
    import pandas as pd

_NOTHING = "–"
LEGEND = (
    "paper: the published value; in range: our mean, rounded to two decimals, lies in the published min – max and no "
    "trial diverged (incomplete: trials are missing); Δ: ours minus published, both rounded"
)
PAPER_COLUMNS = (
    "paper_table", "paper_horizon_s", "paper_rho", "paper_accuracy_mean", "paper_accuracy_min", "paper_accuracy_max",
    "paper_loss_mean", "paper_loss_min", "paper_loss_max", "accuracy_in_range", "loss_in_range",
    "accuracy_difference", "loss_difference", "rho_difference",
)  # fmt: skip
ALL_COLUMNS = (*CELL_COLUMNS, *PAPER_COLUMNS)


def paper_tables(sweep: Sweep, rule: Rule = PUBLISHED) -> tuple[Page, ...]:
    """The tables of a sweep with the step sizes that the paper shows, or those that another rule keeps."""
    return build_tables(sweep.plan.experiments, sweep.results, rule)


# ---------------------------------------------------------------------------------------------------- words


def paper_sheet(table: Page, title: str, label: str) -> Sheet:
    """Each cell beside the published one, with the blocks of rates below each other.

    The spread is the range over trials, since the paper has no other.
    """
    columns = ["method", "α", "ρ", "paper", "Δ", "test accuracy %", "paper", "in range", "Δ"]
    columns += ["loss", "paper", "in range", "Δ", *(["trials"] if has_gaps(table) else [])]
    groups = [
        Group(
            tuple(_row(table, contender, cell) for contender in row.contenders for cell in contender.cells),
            describe_rates(row.rates),
        )
        for row in table.rows
    ]
    return Sheet(title, label, (), tuple(columns), tuple(groups), (*notes_for_all(table), *notes_of(table)))


def notes_for_all(table: Page) -> tuple[str, ...]:
    """The notes that tables of one rule share."""
    return (*shared_notes(table, "range"), LEGEND)


def notes_of(table: Page) -> tuple[str, ...]:
    """The notes of this table, and the printed horizon where ours is another one."""
    printed = {beside.published.horizon_s for cell in table.cells if (beside := beside_paper(cell)) is not None}
    others = sorted(printed - {table.experiment.stop.horizon_s})
    horizons = [f"the paper prints a horizon of {value:g} s for this table" for value in others]
    return (*own_notes(table), *horizons)


def _row(table: Page, contender: Contender, cell: Cell) -> tuple[Entry, ...]:
    accuracy, loss = quality_entries(table, cell, "range")
    beside = beside_paper(cell)
    return (
        Entry(contender.label, kind="method"), step_size_entry(cell), rho_entry(table, cell, "range"), *_rho(beside),
        accuracy, *_quality(beside, "accuracy"), loss, *_quality(beside, "loss"), *trials_entry(table, cell),
    )  # fmt: skip


def _rho(beside: BesidePaper | None) -> list[Entry]:
    if beside is None:
        return [Entry(_NOTHING)] * 2
    return [Entry(rho_word(beside.published.rho)), Entry(signed(beside.rho_difference))]


def _quality(beside: BesidePaper | None, quality: Literal["accuracy", "loss"]) -> list[Entry]:
    if beside is None:
        return [Entry(_NOTHING)] * 3
    theirs: Spread = getattr(beside.published, quality)
    answer = "yes" if getattr(beside, f"{quality}_in_range") else "no"
    if beside.ours.missing:
        answer = "incomplete"
    return [Entry(spread_word(theirs)), Entry(answer), Entry(signed(getattr(beside, f"{quality}_difference")))]


# ---------------------------------------------------------------------------------------------------- numbers


def paper_frame(sweep: Sweep) -> pd.DataFrame:
    """The cells that the paper shows beside its values; a rho that was not reached is infinite."""
    cells = cells_beside_paper([(sweep.plan.name, table) for table in paper_tables(sweep)])
    return frame_of(
        [{name: math.nan if value is None else value for name, value in cell.items()} for cell in cells],
        columns=list(ALL_COLUMNS),
    )


def cells_beside_paper(tables: Sequence[tuple[str, Page]]) -> Iterator[CellValues]:
    """The cells of tables by column, with the paper's; each table comes with the name of its sweep."""
    cells = [cell for _, table in tables for cell in table.cells]
    for cell, values in zip(cells, cell_values(tables), strict=True):
        yield {**values, **_paper_values(beside_paper(cell))}


def _paper_values(beside: BesidePaper | None) -> CellValues:
    if beside is None:
        return dict.fromkeys(PAPER_COLUMNS)
    ours, theirs = beside.ours, beside.published
    values: list[object] = [
        theirs.table, theirs.horizon_s, theirs.rho,
        theirs.accuracy.mean, theirs.accuracy.minimum, theirs.accuracy.maximum,
        theirs.loss.mean, theirs.loss.minimum, theirs.loss.maximum,
        None if ours.missing else beside.accuracy_in_range,
        None if ours.missing else beside.loss_in_range,
        None if ours.accuracy is None else ours.accuracy.mean - theirs.accuracy.mean,  # ours not rounded
        None if ours.loss is None else ours.loss.mean - theirs.loss.mean,
        ours.reach.rho - theirs.rho if math.isfinite(ours.reach.rho) else None,
    ]  # fmt: skip
    return dict(zip(PAPER_COLUMNS, values, strict=True))
