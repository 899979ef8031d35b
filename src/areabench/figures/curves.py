"""Figures of a sweep: quality over time and staleness. A figure a page, a row a rates setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from areabench.figures.data import Page, Quantity, Values, band, staleness_shares
from areabench.figures.panels import Pick, finish, is_empty, line_style, panels, picks_of, quality_panels
from areabench.figures.paper import legend
from areabench.figures.style import dress, label_log_axis, look_of, mark_every, styled

_TARGET_LINE: dict[str, Any] = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (2, 2))}
_FEWEST_BARS = 5  # that a histogram has room for
_LOG_HELPS = 50.0  # a histogram whose greatest and least bars differ by more than this factor gets a logarithmic axis


@styled
def draw_curves(page: Page, wished: Mapping[str, float], target: float, *, width_in: float | None = None) -> Figure:
    """Accuracy and loss over time: the mean as a line, the range over trials as a band; `target` in percent."""
    figure, axes = quality_panels(page, "Quality over time", width_in)
    for row, row_axes in zip(page.rows, axes, strict=True):
        picks = picks_of(row, wished)
        handles = [Line2D([], [], **line_style(pick.contender), label=pick.label) for pick in picks]
        for quantity, panel in zip(page.quantities, row_axes, strict=False):
            _draw_lines(panel, picks, quantity)
            finish(panel, quantity, "time (s)")
            if quantity == "test_accuracy" and not is_empty(panel):
                panel.axhline(target, **_TARGET_LINE, zorder=1, gid="target")
                handles.append(Line2D([], [], **_TARGET_LINE, label=f"target, {target:g} %"))
        legend(row_axes[-1], handles)
    return figure


def _draw_lines(axes: Axes, picks: Sequence[Pick], quantity: Quantity) -> None:
    """Bands below all lines, so that none hides a line; markers of two lines at different times."""
    for index, pick in enumerate(picks):
        results = pick.cell.finished if pick.cell else ()
        shown = band(results, quantity)
        style = line_style(pick.contender)
        if len(results) > 1:
            look = {"color": style["color"], "alpha": 0.18, "linewidth": 0, "zorder": 2}
            axes.fill_between(shown.time_s, shown.low, shown.high, **look)
        marked = mark_every(len(shown.time_s), index / len(picks))
        axes.plot(shown.time_s, shown.mean, **style, markevery=marked, zorder=3)


# ---------------------------------------------------------------------------------------------------- staleness


@styled
def draw_staleness(page: Page, wished: Mapping[str, float], *, width_in: float | None = None) -> Figure:
    """How many server steps were made while an update was under way: a panel a method, mean share over trials."""
    columns = max(len(row.contenders) for row in page.rows)
    paper = None if width_in is None else (width_in, 1.6)
    width = 1.2 + 2.7 * max(columns, 2)
    figure, axes = panels(page, columns, width, "Staleness of updates: mean share over trials", paper)
    for row, row_axes in zip(page.rows, axes, strict=True):
        picks = picks_of(row, wished)
        shares = [100 * staleness_shares(pick.cell.finished if pick.cell else ()) for pick in picks]
        for pick, share, panel in zip(picks, shares, row_axes, strict=False):
            _draw_histogram(panel, pick, share, "staleness (server steps)" if width_in is None else "staleness (steps)")
        for panel in row_axes[len(picks) :]:
            panel.set_axis_off()
        _align(row_axes[: len(picks)], shares)
    return figure


def _draw_histogram(axes: Axes, pick: Pick, shares: Values, across: str) -> None:
    """One method; `shares` in percent."""
    dress(axes, across, "")
    above = axes.get_title(loc="left") + "\n"  # the rates stand over the first panel
    label = pick.label.replace("\n", " ")
    axes.set_title(f"{above}{label}\n{_describe(shares)}", loc="left", fontsize="small")
    if len(shares):
        colour = look_of(pick.contender.method.name).colour
        axes.stairs(shares, np.arange(len(shares) + 1) - 0.5, fill=True, color=colour)


def _describe(shares: Values) -> str:
    """Mean and 95th percentile of a histogram in percent."""
    if not len(shares):
        return "no updates"
    if len(shares) == 1:
        return "every update is fresh"
    mean = float(np.arange(len(shares)) @ shares) / 100
    most = int(np.searchsorted(np.cumsum(shares), 95.0 - 1e-9))
    return f"mean {mean:.3g}, 95 % up to {most}"


def _align(row_axes: Sequence[Axes], shares: Sequence[Values]) -> None:
    """The same limits for the panels of a row."""
    present = np.concatenate([share[share > 0] for share in shares])
    longest = max(len(share) for share in shares)
    for panel, share in zip(row_axes, shares, strict=True):
        right = longest if len(share) > 1 else _FEWEST_BARS  # a single bar would be too thin to see
        panel.set_xlim(-0.5 - 0.02 * right, max(right, _FEWEST_BARS) - 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        place = panel.get_subplotspec()
        first = place is None or place.is_first_col()
        panel.tick_params(labelleft=first)
        panel.set_ylabel("share of updates (%)" if first else "")
        if len(present) and present.max() > _LOG_HELPS * present.min():
            panel.set_yscale("log")
            panel.set_ylim(present.min() / 1.5, present.max() * 1.5)
            label_log_axis(panel.yaxis)
        elif len(present):
            panel.set_ylim(0.0, present.max() * 1.05)
