"""The clients of a frame as bars: as many as there is room for, the worst first where there is not room for all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from areabench.watching.frame import ClientFrame
from areabench.watching.glyphs import Glyphs, filled
from areabench.watching.spans import Line, Size, Span

_BAR, _GAP = 10, 3


def client_lines(clients: Sequence[ClientFrame], room: Size, glyphs: Glyphs) -> list[Line]:
    """A heading and the bars, in columns, each of which goes down."""
    cells_across = max(1, (room.columns + _GAP) // (_width(clients) + _GAP))
    below = room.rows - 1
    if below < 1:
        return []
    shown = list(clients)
    if fold := len(shown) > below * cells_across:
        below -= 1  # for a line about the others
        shown = sorted(shown, key=_order)[: max(0, below * cells_across)]
    lines = [_heading(clients, folded=fold), *_columns(shown, below, cells_across, _width(clients), glyphs)]
    return lines + ([_others(clients, len(shown))] if fold else [])


def _heading(clients: Sequence[ClientFrame], *, folded: bool) -> Line:
    short = sum(client.is_short for client in clients)
    words = "updates used of those expected by now" + (", the worst first" if folded else "")
    said = Span(f"; {short:,} of {len(clients):,} served less than chance allows", "doubtful") if short else Span("")
    return (Span(f"{'clients':<12}", "label"), Span(words), said)


def _order(client: ClientFrame) -> tuple[bool, float, int]:
    """Lost ones first, then by what they lack."""
    return (not client.lost, math.inf if math.isnan(client.share) else client.share, client.client)


def _columns(shown: Sequence[ClientFrame], rows: int, across: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Cells one below the other, then in the next column; no more rows than needed."""
    height = min(rows, -(-len(shown) // across)) if shown else 0
    lines: list[Line] = []
    for row in range(height):
        cells = [(*_cell(client, width, glyphs), Span(" " * _GAP)) for client in shown[row::height]]
        lines.append(tuple(span for cell in cells for span in cell)[:-1])
    return lines


def _width(clients: Sequence[ClientFrame]) -> int:
    """Characters of a cell."""
    return len(str(max(client.client for client in clients))) + 1 + _BAR + 1 + 6


def _cell(client: ClientFrame, width: int, glyphs: Glyphs) -> tuple[Span, ...]:
    number, share = f"{client.client:>{width - _BAR - 8}} ", client.share
    full = filled(share, _BAR)
    look = "bad" if client.lost or client.is_short else "good"
    told = "  lost" if client.lost else f"{'-':>6}" if math.isnan(share) else f"{min(100 * share, 9999):>4.0f} %"
    return (
        Span(number, "dim"),
        Span(glyphs.full * full, look),
        Span(glyphs.empty * (_BAR - full), "dim"),
        Span(f" {told}", look if look == "bad" else ""),
    )


def _others(clients: Sequence[ClientFrame], shown: int) -> Line:
    rest = [100 * client.share for client in sorted(clients, key=_order)[shown:] if not math.isnan(client.share)]
    if not rest:
        return (Span(f"and {len(clients) - shown:,} more", "dim"),)
    return (Span(f"and {len(clients) - shown:,} more, {min(rest):.0f} to {max(rest):.0f} %", "dim"),)
