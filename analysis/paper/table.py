"""A sweep's table beside the paper's: in words, and as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from paper.published import BesidePaper, beside_paper, spread_word
from paper.rules import PUBLISHED

from areabench.results.cells import Cell
from areabench.results.grouping import Comparison, comparisons_of
from areabench.results.retention import Rule
from areabench.results.statistics import Spread
from areabench.results.table import CELL_COLUMNS, CellValues, cell_values
from areabench.runfile.read import frame_of
from areabench.sweeps.read import Sweep
from areabench.views.styled import RULE
from areabench.views.tables.forms import Sheet, TableCell
from areabench.views.tables.sheets import (
    has_gaps,
    own_notes,
    quality_cells,
    rho_cell,
    rho_word,
    shared_notes,
    step_size_cell,
    trials_word,
    with_sign,
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


def paper_tables(sweep: Sweep, rule: Rule = PUBLISHED) -> tuple[Comparison, ...]:
    """The tables of a sweep with the step sizes that the paper shows, or those that another rule keeps."""
    return comparisons_of(sweep, rule)


# ---------------------------------------------------------------------------------------------------- words


def paper_sheet(comparison: Comparison) -> Sheet:
    """Each cell beside the published one, with the blocks of rates below each other.

    The spread is the range over trials, since the paper has no other.
    """
    columns = ["method", "α", "ρ", "paper", "Δ", "test accuracy %", "paper", "in range", "Δ"]
    columns += ["loss", "paper", "in range", "Δ"]
    if has_gaps(comparison):
        columns.append("trials")
    rows: list[tuple[TableCell, ...]] = []
    for rates, entries in comparison.rows.items():
        if rows:
            rows.append(RULE)
        rows.append((TableCell(rates.describe()),))
        rows += [_row(comparison, entry.label, cell) for entry in entries for cell in entry.cells]
    notes = (*notes_for_all(comparison), *notes_of(comparison))
    return Sheet(comparison.heading, comparison.sweep, (), tuple(columns), tuple(rows), notes)


def notes_for_all(comparison: Comparison) -> tuple[str, ...]:
    """The notes that tables of one rule share."""
    return (*shared_notes(comparison, "range"), LEGEND)


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """The notes of this table, and the printed horizon where ours is another one."""
    printed = {beside.published.horizon_s for cell in comparison.cells if (beside := beside_paper(cell)) is not None}
    others = sorted(printed - {comparison.experiment.stop.horizon_s})
    horizons = [f"the paper prints a horizon of {value:g} s for this table" for value in others]
    return (*own_notes(comparison), *horizons)


def _row(comparison: Comparison, label: str, cell: Cell) -> tuple[TableCell, ...]:
    accuracy, loss = quality_cells(comparison, cell, "range")
    beside = beside_paper(cell)
    trials = [TableCell(trials_word(cell))] if has_gaps(comparison) else []
    return (
        TableCell(label, kind="method"), step_size_cell(cell), rho_cell(comparison, cell, "range"), *_rho(beside),
        accuracy, *_quality(beside, "accuracy"), loss, *_quality(beside, "loss"), *trials,
    )  # fmt: skip


def _rho(beside: BesidePaper | None) -> list[TableCell]:
    if beside is None:
        return [TableCell(_NOTHING)] * 2
    return [TableCell(rho_word(beside.published.rho)), TableCell(with_sign(beside.rho_difference))]


def _quality(beside: BesidePaper | None, quality: Literal["accuracy", "loss"]) -> list[TableCell]:
    if beside is None:
        return [TableCell(_NOTHING)] * 3
    theirs: Spread = getattr(beside.published, quality)
    answer = "yes" if getattr(beside, f"{quality}_in_range") else "no"
    if beside.ours.missing:
        answer = "incomplete"
    difference = with_sign(getattr(beside, f"{quality}_difference"))
    return [TableCell(spread_word(theirs)), TableCell(answer), TableCell(difference)]


# ---------------------------------------------------------------------------------------------------- numbers


def paper_frame(sweep: Sweep) -> pd.DataFrame:
    """The cells that the paper shows beside its values; a rho that was not reached is infinite."""
    cells = cells_beside_paper(paper_tables(sweep))
    return frame_of(
        [{name: math.nan if value is None else value for name, value in cell.items()} for cell in cells],
        columns=list(ALL_COLUMNS),
    )


def cells_beside_paper(comparisons: Sequence[Comparison]) -> Iterator[CellValues]:
    """The cells of comparisons by column, with the paper's."""
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    for cell, values in zip(cells, cell_values(comparisons), strict=True):
        yield {**values, **_paper_values(beside_paper(cell))}


def _paper_values(beside: BesidePaper | None) -> CellValues:
    if beside is None:
        return dict.fromkeys(PAPER_COLUMNS)
    ours = beside.ours
    theirs = beside.published
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
