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
class Group:
    """Rows between two rules, with a line of their own above them where they need one."""

    rows: tuple[tuple[TableCell, ...], ...]
    heading: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table of words."""

    title: str
    label: str  # for references in LaTeX
    headings: tuple[Heading, ...]  # above the columns; none, or together as wide as the table
    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...]


# ---------------------------------------------------------------------------------------------------- plain text


def as_text(sheet: Sheet) -> Styled:
    """For a terminal; the best values carry a star, tied ones a tilde."""
    rows: list[Sequence[str]] = [[_text(column) for column in sheet.columns]]
    for group in sheet.groups:
        rows.append(RULE)
        if group.heading:
            rows.append((_text(group.heading),))
        rows += [[_text_cell(cell) for cell in row] for row in group.rows]
    headings = [Heading(_text(heading.text), heading.columns) for heading in sheet.headings]
    notes = [_text(note) for note in sheet.notes]
    return joined([Styled((_text(sheet.title), HEADING)), "", *align([*rows, RULE], headings), *notes])


def _text(words: str) -> str:
    return "".join(_TEXT_SYMBOLS.get(letter, letter) for letter in words)


def _text_cell(cell: TableCell) -> Styled:
    if cell.kind == "method":
        return method_word(_text(cell.value))
    value = (f"{_text(cell.value)}*", BEST) if cell.is_bold else _text(cell.value) + "~" * cell.is_tied
    return Styled(value, _text(cell.tail))


# ---------------------------------------------------------------------------------------------------- Markdown


def as_markdown(sheet: Sheet, level: int = 2) -> str:
    """GitHub's Markdown, under a heading of this level; a heading over several columns goes into the first of them."""
    columns = [markdown(column) for column in sheet.columns]
    start = 0
    for heading in sheet.headings:
        columns[start] = f"{markdown(heading.text)}: {columns[start]}" if heading.text else columns[start]
        start += heading.columns
    lines = [markdown_line(columns), markdown_line(["---", *("---:" for _ in columns[1:])])]
    for group in sheet.groups:
        if group.heading:
            lines.append(markdown_line([f"**{markdown(group.heading)}**", *("" for _ in columns[1:])]))
        lines += [markdown_line([markdown_cell(cell) for cell in row]) for row in group.rows]
    notes = "".join(f"- {markdown(note)}\n" for note in sheet.notes)
    table = "\n".join(lines) + "\n"
    return f"{'#' * level} {markdown(sheet.title)}\n\n{table}" + (f"\n{notes}" if notes else "")


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
    body = []
    for group in sheet.groups:
        body.append(r"\midrule")
        if group.heading:
            body.append(rf"\multicolumn{{{len(sheet.columns)}}}{{l}}{{\textit{{{latex(group.heading)}}}}} \\")
        body += [_latex_line(map(_latex_cell, row)) for row in group.rows]
    caption = " ".join([f"{latex(sheet.title)}.", *(f"{latex(note)}." for note in sheet.notes)])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[t] \tiny \setlength\tabcolsep{3pt}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(sheet.columns) - 1)}}}",
        r"\toprule",
        *_latex_headings(sheet.headings),
        _latex_line(map(latex, sheet.columns)),
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', sheet.label)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(words: str) -> str:
    """Words as LaTeX that shows them as they are."""
    return "".join(_LATEX_SYMBOLS.get(letter, letter) for letter in words)


def _latex_headings(headings: Sequence[Heading]) -> list[str]:
    words, rules = [], []
    start = 1
    for heading in headings:
        if heading.text:
            words.append(rf"\multicolumn{{{heading.columns}}}{{c}}{{\textbf{{{latex(heading.text)}}}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + heading.columns - 1}}}")
        else:
            words.append("")
        start += heading.columns
    return [_latex_line(words), " ".join(rules)] if headings else []


def _latex_cell(cell: TableCell) -> str:
    value = _latex_step_size(cell.value) if cell.kind == "step size" else latex(cell.value)
    if cell.kind == "method" and value:
        value = rf"\textsc{{{value}}}"
    if cell.is_bold or cell.is_tied:
        value = rf"\{'textbf' if cell.is_bold else 'textit'}{{{value}}}"
    return value + latex(cell.tail)


def _latex_step_size(value: str) -> str:
    """A power of ten as in the paper, any other number as it is."""
    if not _POWER_OF_TEN.fullmatch(value):
        return latex(value)
    exponent = len(value) - 1 if "." not in value else 2 - len(value)
    return f"$10^{{{exponent}}}$"


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


# ---------------------------------------------------------------------------------------------------- CSV


def as_csv(columns: Sequence[str], cells: Iterable[CellValues]) -> str:
    """Cells by column. Empty: there is no such number."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for values in cells:
        writer.writerow([_csv_word(name, value) for name, value in values.items()])
    return buffer.getvalue()


def _csv_word(name: str, value: object) -> object:
    """A value as CSV has it: a number as the shortest text that reads back as the same."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("rho") and value == math.inf:
        return ">1"
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return "" if value is None else value
