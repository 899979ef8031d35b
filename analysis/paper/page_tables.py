"""The small tables and the paragraphs of the results page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

from paper.agreement import Kept, Match
from paper.published import METHOD_LABELS, spread_word

from areabench.experiment.labels import describe_setting, method_label
from areabench.views.tables.forms import TableCell, markdown, markdown_cell, markdown_line
from areabench.views.tables.sheets import fixed, rho_word


def paragraph(words: str) -> str:
    """A paragraph, wrapped at the width of the documents."""
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def bullets(notes: Iterable[str]) -> str:
    """A list, wrapped at the width of the documents."""
    return "".join(textwrap.indent(paragraph(f"- {note}"), "  ").removeprefix("  ") for note in notes)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of words, the first column flush left."""
    return entry_table(columns, [[TableCell(word) for word in row] for row in rows])


def entry_table(columns: Sequence[str], rows: Sequence[Sequence[TableCell]]) -> str:
    """A Markdown table of entries, the first column flush left."""
    lines = [markdown_line([markdown(column) for column in columns])]
    lines.append(markdown_line(["---", *("---:" for _ in columns[1:])]))
    return "\n".join([*lines, *(markdown_line([markdown_cell(entry) for entry in row]) for row in rows)]) + "\n"


def retention_table(groups: Sequence[Kept]) -> str:
    """One row per table, rates setting and method; what differs from the paper is bold."""
    columns = ["table", "rates", "method", "α run", "rule keeps", "in single precision", "paper keeps"]
    columns += ["loss at the next α", "best α"]
    return entry_table(columns, [_retention_row(group) for group in groups])


def _retention_row(group: Kept) -> list[TableCell]:
    experiment = group.experiment
    kept = group.by_rule()
    single = group.by_single_precision
    words = [describe_setting(experiment), experiment.rates.describe(), method_label(experiment.method.name)]
    return [
        *(TableCell(word) for word in words),
        TableCell(f"{group.run[0]:g} – {group.run[-1]:g} ({len(group.run)})"),
        TableCell(_sizes(kept), is_bold=kept != group.by_paper),
        TableCell(_sizes(single), is_bold=single != group.by_paper),
        TableCell(_sizes(group.by_paper)),
        TableCell(_loss(group.next_loss)),
        TableCell(_sizes(group.best)),
    ]


def _sizes(sizes: Sequence[float]) -> str:
    return ", ".join(f"{size:g}" for size in sizes) or "none"


def _loss(loss: float) -> str:
    if math.isnan(loss):
        return "not run"
    return "diverged" if math.isinf(loss) else fixed(loss)


def horizons_table(pairs: Sequence[tuple[Match, Match]]) -> str:
    """Published values beside ours at the recovered and at the printed horizon."""
    cell = pairs[0][0].published
    ends = [f"{cell.recovered_horizon_s:g} s", f"{cell.horizon_s:g} s"]
    columns = ["method, α, rates"]
    for quality in ("accuracy %", "loss", "ρ"):
        columns += [f"{quality}: paper", *ends]
    return entry_table(columns, [_horizons_row(recovered, printed) for recovered, printed in pairs])


def _horizons_row(recovered: Match, printed: Match) -> list[TableCell]:
    cell = recovered.published
    both = (recovered, printed)
    return [
        TableCell(cell_word(recovered)),
        TableCell(spread_word(cell.accuracy)), *(accuracy_entry(one) for one in both),
        TableCell(spread_word(cell.loss)), *(loss_entry(one) for one in both),
        TableCell(rho_word(cell.rho)), *(rho_entry(one) for one in both),
    ]  # fmt: skip


def cell_word(match: Match) -> str:
    """Method, step size and rates of a published cell."""
    cell = match.published
    rates = "uniform" if cell.rates == "uniform" else "non-uniform"
    return f"{METHOD_LABELS[cell.method]}, {cell.step_size:g}, {rates}"


def accuracy_entry(match: Match) -> TableCell:
    """Our accuracy, bold where its mean is in the published range."""
    one = match.beside
    if one is None or one.ours.accuracy is None:
        return TableCell("not run" if one is None else "diverged")
    return TableCell(spread_word(one.ours.accuracy), is_bold=one.accuracy_in_range)


def loss_entry(match: Match) -> TableCell:
    """Our loss, bold where its mean is in the published range."""
    one = match.beside
    if one is None or one.ours.loss is None:
        return TableCell("not run" if one is None else "diverged")
    return TableCell(spread_word(one.ours.loss), is_bold=one.loss_in_range)


def rho_entry(match: Match) -> TableCell:
    """Our rho, bold where it agrees."""
    one = match.beside
    return TableCell("not run") if one is None else TableCell(rho_word(one.ours.reach.rho), is_bold=one.rho_agrees())
