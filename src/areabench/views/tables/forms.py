"""A table of words as plain text, Markdown and LaTeX, which do not know what the words mean; and its numbers as CSV.

Words are written with the symbols α, ρ, λ, Δ, σ and –; each form has its own way to show them.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from areabench.results.table import CellValues
from areabench.views.styled import BEST, HEADING, RULE, Heading, Styled, align, joined, method_word

_TEXT_SYMBOLS = {"α": "alpha", "ρ": "rho", "λ": "lambda", "Δ": "diff", "σ": "sigma", "–": "-"}
_LATEX_SYMBOLS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"$\sim$", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$",
    "α": r"$\alpha$", "ρ": r"$\rho$", "λ": r"$\lambda$", "Δ": r"$\Delta$", "σ": r"$\sigma$", "–": "--",
}  # fmt: skip
_MARKDOWN_SPECIALS = re.compile(r"([\\`*_|<\[\]])")
_POWER_OF_TEN = re.compile(r"10+|1|0\.0*1")


@dataclass(frozen=True)
class TableCell:
    """One cell of a table: a value, bold where it is the best, slanted where it is tied, and what follows it."""

    value: str = ""
    tail: str = ""
    is_bold: bool = False
    is_tied: bool = False
    kind: Literal["plain", "method", "step size"] = "plain"  # LaTeX: small capitals, powers of ten


@dataclass(frozen=True)
class Sheet:
    """A table of words. A row without cells is a rule; one of a single cell is a heading of the rows below it."""

    title: str
    label: str  # for references in LaTeX
    headings: tuple[Heading, ...]  # above the columns; none, or together as wide as the table
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...]


# ---------------------------------------------------------------------------------------------------- plain text


def as_text(sheet: Sheet) -> Styled:
    """For a terminal; the best values carry a star, tied ones a tilde."""
    rows: list[Sequence[str]] = [[_text(column) for column in sheet.columns], RULE]
    rows += [[_text_cell(cell) for cell in row] for row in sheet.rows]
    headings = [Heading(_text(heading.text), heading.columns) for heading in sheet.headings]
    notes = [_text(note) for note in sheet.notes]
    return joined([Styled((_text(sheet.title), HEADING)), "", *align([*rows, RULE], headings), *notes])


def _text(words: str) -> str:
    return "".join(_TEXT_SYMBOLS.get(letter, letter) for letter in words)


def _text_cell(cell: TableCell) -> Styled:
    value = _text(cell.value)
    if cell.kind == "method":
        return method_word(value)
    if cell.is_bold:
        return Styled((f"{value}*", BEST), _text(cell.tail))
    return Styled(value + "~" * cell.is_tied + _text(cell.tail))


# ---------------------------------------------------------------------------------------------------- Markdown


def as_markdown(sheet: Sheet, level: int = 2) -> str:
    """GitHub's Markdown, under a heading of this level; a heading over several columns goes into the first of them."""
    columns = [markdown(column) for column in sheet.columns]
    # Markdown has no heading over several columns.
    start = 0
    for heading in sheet.headings:
        if heading.text:
            columns[start] = f"{markdown(heading.text)}: {columns[start]}"
        start += heading.columns
    empty = [""] * (len(columns) - 1)
    lines = [f"{'#' * level} {markdown(sheet.title)}", "", markdown_line(columns)]
    lines.append(markdown_line(["---", *("---:" for _ in empty)]))
    for row in sheet.rows:
        if len(row) == 1:
            lines.append(markdown_line([f"**{markdown(row[0].value)}**", *empty]))
        elif row:
            lines.append(markdown_line([markdown_cell(cell) for cell in row]))
    if sheet.notes:
        lines += ["", *(f"- {markdown(note)}" for note in sheet.notes)]
    return "\n".join([*lines, ""])


def markdown(words: str) -> str:
    """Words as Markdown that shows them as they are."""
    return _MARKDOWN_SPECIALS.sub(r"\\\1", words.replace("\n", " "))


def markdown_cell(cell: TableCell) -> str:
    """A cell as Markdown."""
    around = "**" if cell.is_bold else "*" * cell.is_tied
    return around + markdown(cell.value) + around + markdown(cell.tail)


def markdown_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


# ---------------------------------------------------------------------------------------------------- LaTeX


def as_latex(sheet: Sheet) -> str:
    r"""A floating table in the paper's style; needs \usepackage{booktabs}."""
    caption = " ".join([f"{latex(sheet.title)}.", *(f"{latex(note)}." for note in sheet.notes)])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[t] \tiny \setlength\tabcolsep{3pt}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}",
        r"\toprule",
    ]
    if sheet.headings:
        words = []
        rules = []
        start = 1
        for heading in sheet.headings:
            word = ""
            if heading.text:
                word = rf"\multicolumn{{{heading.columns}}}{{c}}{{\textbf{{{latex(heading.text)}}}}}"
                rules.append(rf"\cmidrule(lr){{{start}-{start + heading.columns - 1}}}")
            words.append(word)
            start += heading.columns
        lines += [_latex_line(words), " ".join(rules)]
    lines += [_latex_line(map(latex, sheet.columns)), r"\midrule"]
    for row in sheet.rows:
        if not row:
            lines.append(r"\midrule")
        elif len(row) == 1:
            lines.append(rf"\multicolumn{{{len(sheet.columns)}}}{{l}}{{\textit{{{latex(row[0].value)}}}}} \\")
        else:
            lines.append(_latex_line(map(_latex_cell, row)))
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', sheet.label)}}}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def latex(words: str) -> str:
    """Words as LaTeX that shows them as they are."""
    return "".join(_LATEX_SYMBOLS.get(letter, letter) for letter in words)


def _latex_cell(cell: TableCell) -> str:
    value = latex(cell.value)
    if cell.kind == "step size" and _POWER_OF_TEN.fullmatch(cell.value):  # as in the paper
        value = f"$10^{{{round(math.log10(float(cell.value)))}}}$"
    if cell.kind == "method" and value:
        value = rf"\textsc{{{value}}}"
    if cell.is_bold:
        value = rf"\textbf{{{value}}}"
    elif cell.is_tied:
        value = rf"\textit{{{value}}}"
    return value + latex(cell.tail)


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


# ---------------------------------------------------------------------------------------------------- CSV


def as_csv(columns: Sequence[str], cells: Iterable[CellValues]) -> str:
    """Cells by column. Empty: there is no such number. Numbers are the shortest texts that read back as the same."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for values in cells:
        words: list[object] = []
        for name, value in values.items():
            if isinstance(value, bool):
                value = "yes" if value else "no"
            elif name.endswith("rho") and value == math.inf:
                value = ">1"
            elif isinstance(value, float):
                value = repr(float(value)) if math.isfinite(value) else ""
            words.append(value)  # None is empty
        writer.writerow(words)
    return buffer.getvalue()
