"""The figure of final quality over the step size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from areabench.figures.data import Cell, Contender, Page, Quantity, Row
from areabench.figures.panels import finish, line_style, quality_panels
from areabench.figures.paper import legend
from areabench.figures.style import label_log_axis, look_of, styled

_STRIP = 0.05  # height of one line of marks at the top edge, of the height of the axes
_MARGIN = 2.5  # factor by which the axis of step sizes reaches beyond them


@styled
def draw_sensitivity(page: Page, *, width_in: float | None = None) -> Figure:
    """Final accuracy and loss over the step size: mean and range over trials; what diverged at the top edge."""
    figure, axes = quality_panels(page, "Final quality over step size", width_in)
    for row, row_axes in zip(page.rows, axes, strict=True):
        for quantity, panel in zip(page.quantities, row_axes, strict=False):
            _draw_finals(panel, row, quantity, 9 if width_in is None else 5)
        handles = [Line2D([], [], **line_style(one), label=one.label) for one in row.contenders]
        legend(row_axes[-1], handles + _divergence_handles(row))
    return figure


def _draw_finals(axes: Axes, row: Row, quantity: Quantity, labels: int) -> None:
    """One panel; `labels` is the most that there is room for across."""
    step_sizes = [cell.step_size for cell in _cells(row)]
    axes.set_xscale("log")
    axes.set_xlim(min(step_sizes) / _MARGIN, max(step_sizes) * _MARGIN)  # first: one point gives no limits by itself
    for contender, factor in _side_by_side(row):
        _draw_contender(axes, contender, quantity, factor)
    finish(axes, quantity, "step size α", "final ")
    label_log_axis(axes.xaxis, labels)
    if any(cell.diverged for cell in _cells(row)):
        _draw_divergence(axes, row)


def _cells(row: Row) -> list[Cell]:
    return [cell for contender in row.contenders for cell in contender.cells]


def _side_by_side(row: Row) -> Iterator[tuple[Contender, float]]:
    """Methods, each with the factor that moves it a little sideways, so that whiskers do not hide each other.

    All methods of a step size take a third of the distance between the two closest step sizes.
    """
    step_sizes = np.unique([cell.step_size for cell in _cells(row)])
    width = float(np.diff(np.log(step_sizes)).min(initial=1.0)) / 3
    count = len(row.contenders)
    for index, contender in enumerate(row.contenders):
        yield contender, float(np.exp(width * ((index + 0.5) / count - 0.5)))


def _draw_contender(axes: Axes, contender: Contender, quantity: Quantity, factor: float) -> None:
    finals = [(cell.step_size * factor, values) for cell in contender.cells if len(values := cell.final(quantity))]
    if not finals:
        return
    mean = np.array([values.mean() for _, values in finals])
    below = mean - [values.min() for _, values in finals]
    above = [values.max() for _, values in finals] - mean
    reach = np.maximum((below, above), 0.0)  # a mean may be rounded beyond its range
    step_sizes = [step_size for step_size, _ in finals]
    axes.errorbar(step_sizes, mean, yerr=reach, **line_style(contender), elinewidth=1.0, capsize=2.0)


# ---------------------------------------------------------------------------------------------------- divergence


def _mark(colour: str, *, some: bool) -> dict[str, Any]:
    """The look of a step size that diverged: a filled cross, or a thin one where some trials did not."""
    return {"color": colour, "marker": "x" if some else "X", "markersize": 5.5, "linestyle": "none"}


def _divergence_handles(row: Row) -> list[Line2D]:
    diverged = [cell for cell in _cells(row) if cell.diverged]
    handles = []
    if any(not cell.finished for cell in diverged):
        handles.append(Line2D([], [], **_mark("black", some=False), label="all trials diverged"))
    if any(cell.finished for cell in diverged):
        handles.append(Line2D([], [], **_mark("black", some=True), label="some trials diverged"))
    return handles


def _draw_divergence(axes: Axes, row: Row) -> None:
    """Marks in a strip above the data, a line of them a method."""
    _make_room(axes, len(row.contenders) * _STRIP)
    for index, (contender, factor) in enumerate(_side_by_side(row)):
        height = 1 - (index + 0.5) * _STRIP
        for some in (False, True):
            across = [c.step_size * factor for c in contender.cells if c.diverged and bool(c.finished) == some]
            mark = _mark(look_of(contender.method.name).colour, some=some)
            mark |= {"transform": axes.get_xaxis_transform(), "zorder": 3, "gid": "diverged"}
            axes.plot(across, [height] * len(across), **mark)


def _make_room(axes: Axes, share: float) -> None:
    """Raise the upper limit so that this share of the height is free: shaded, without ticks, above all lines."""
    transform, bottom, top = axes.yaxis.get_transform(), *axes.get_ylim()
    for minor in (False, True):
        ticks = axes.yaxis.get_ticklocs(minor=minor)
        axes.set_yticks(ticks[(ticks >= bottom) & (ticks <= top)], minor=minor)
    low, high = transform.transform(np.array([bottom, top]))
    raised = transform.inverted().transform(np.array([low + (high - low) / (1 - share)]))
    axes.set_ylim(bottom, float(raised[0]))
    axes.add_patch(Rectangle((0, 1 - share), 1, share, color="0.95", linewidth=0, zorder=2.5, transform=axes.transAxes))
