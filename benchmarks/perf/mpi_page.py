"""The tables of the MPI benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from bench_page import markdown_table
from mpi_plan import DEPTHS, PAPER_BYTES, Measured, Report

_MEASURED = tuple(name for depth in DEPTHS for name in (depth, f"{depth}/bare"))
_CROWD_HEAD = ("clients", "bare", "it waits", *_MEASURED, "others")
_SIZE_HEAD = ("message", "clients", "bare", "it waits", "bare MB/s", *_MEASURED[:4], "others")
_LEGEND = """\
Messages that the server takes in and answers, a second, with no delays; medians of short pieces measured in turns in
one launch. *Bare*: a loop in mpi4py with one persistent receive and one persistent send a client and no Python object
made for a message, in the way of waiting that was the fastest here. *Server*: areabench's link and server loop, asked
by the clients of the bare loop and sending the same model back. *Wire*: with areabench's own clients, which compute
nothing. *Rule*: with AREA's rule. *All*: with event log and run file too. Per cents are medians of the turns' ratios to
the bare loop; the goal is 80 % for the server.
*Others*: the share of the cores that other processes used meanwhile; where it is not small, the numbers say little.
Both MPIs send messages of up to 64 kB without a handshake, on both sides, as areabench sets them.
"""


def page(mpis: Sequence[Sequence[Report]]) -> str:
    """All tables, those of an MPI after those of the other."""
    return "\n".join([_LEGEND, *(mpi_section(reports) for reports in mpis)])


def mpi_section(reports: Sequence[Report]) -> str:
    """The two tables of one MPI."""
    cells = [cell for report in reports for cell in report.cells]
    crowds = [crowd_row(cell) for cell in cells if cell.size == PAPER_BYTES]
    sizes = [size_row(cell) for cell in cells if cell.size != PAPER_BYTES]
    text = f"## {reports[0].library}\n\nMessages of {PAPER_BYTES:,} bytes.\n\n{markdown_table([_CROWD_HEAD, *crowds])}"
    if sizes:
        text += f"\nOther sizes; MB/s count both directions.\n\n{markdown_table([_SIZE_HEAD, *sizes])}"
    return text


def crowd_row(cell: Measured) -> list[str]:
    """A row: one number of clients at the paper's message size."""
    style = best_style(cell)
    row = [str(cell.clients), number(median(cell.bare[style])), style]
    return [*row, *_against(cell, style), percent(cell.others)]


def size_row(cell: Measured) -> list[str]:
    """A row: one message size."""
    style = best_style(cell)
    rate = median(cell.bare[style])
    row = [bytes_text(cell.size), str(cell.clients), number(rate), style, number(2e-6 * rate * cell.size)]
    return [*row, *_against(cell, style), percent(cell.others)]


def _against(cell: Measured, style: str) -> list[str]:
    """What was measured of areabench, and the ratios to the bare loop."""
    pairs = [(number(median(rates)), percent(ratio(rates, cell.bare[style]))) for rates in cell.depths.values()]
    return [text for pair in pairs for text in pair]


def best_style(cell: Measured) -> str:
    """How the fastest bare loop waits."""
    return max(cell.bare, key=lambda style: median(cell.bare[style]))


def ratio(rates: Sequence[float], bare: Sequence[float]) -> float:
    """The median of what the turns give, against the bare loop of the same turn."""
    pairs = [one / other for one, other in zip(rates, bare, strict=True) if other > 0]
    return median(pairs) if pairs else math.nan


def number(value: float) -> str:
    """A rate in words."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share in words; nothing where it is unknown."""
    return "" if math.isnan(share) else f"{100 * share:.0f} %"


def bytes_text(size: int) -> str:
    """A size in words."""
    for unit, name in ((10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"
