"""The panels that the figures of a sweep are made of: a row a rates setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.figures.data import Cell, Contender, Page, Quantity, Row, choose
from areabench.figures.paper import entitle
from areabench.figures.style import dress, label_log_axis, look_of
from areabench.figures.words import rates_name, title_of

_UPWARD = {"test_accuracy": "test accuracy (%)", "train_loss": "training loss"}
_WIDEST = 1e4  # a loss beyond this many times the least one is off the axis: it would flatten all others


@dataclass(frozen=True)
class Pick:
    """A method and the step size that is drawn of it; no cell where the wished one was not run."""

    contender: Contender
    cell: Cell | None

    @property
    def label(self) -> str:
        """The method, its step size, and how many trials are left out."""
        if self.cell is None:
            return f"{self.contender.label}: not run"
        label = f"{self.contender.label}, α = {self.cell.step_size:g}"
        return f"{label}\n({self.cell.divergence})" if self.cell.diverged else label


def picks_of(row: Row, wished: Mapping[str, float]) -> list[Pick]:
    """One step size a method: the wished one or the best."""
    return [Pick(contender, choose(contender, wished)) for contender in row.contenders]


def panels(
    page: Page, columns: int, width: float, heading: str, paper: tuple[float, float] | None = None
) -> tuple[Figure, Any]:
    """A figure (width in inches) with a row of panels a rates setting, and its axes, shape (rows, columns).

    For a paper, its width and the least one of a panel: what does not fit into a line goes into the next one.
    """
    words = f"{heading}\n{title_of(page)}"
    if paper is None:
        figure = Figure(figsize=(width, 0.8 + 2.9 * len(page.rows)), layout="constrained")
        figure.suptitle(words, fontsize="medium")
        axes = figure.subplots(len(page.rows), columns, squeeze=False)
    else:
        figure, axes = _paper_panels(len(page.rows), columns, *paper)
        entitle(figure, words)
    for row, row_axes in zip(page.rows, axes, strict=True):
        row_axes[0].set_title(rates_name(row.rates), loc="left", fontsize="small")
    return figure, axes


def _paper_panels(rows: int, columns: int, width_in: float, least_in: float) -> tuple[Figure, Any]:
    """The same with as many panels in a line as fit; those that are too many are not shown."""
    across = min(columns, max(1, int(width_in / least_in)))
    lines = -(-columns // across)
    figure = Figure(figsize=(width_in, 0.6 + 1.9 * rows * lines), layout="constrained")
    axes = figure.subplots(rows * lines, across, squeeze=False).reshape(rows, lines * across)
    for panel in axes[:, columns:].ravel():
        panel.set_axis_off()
    return figure, axes[:, :columns]


def quality_panels(page: Page, what: str, width_in: float | None = None) -> tuple[Figure, Any]:
    """Panels with a column for accuracy and one for loss, as far as they were measured."""
    heading = f"{what}: mean, and range over trials" if _several_trials(page) else what
    columns = max(len(page.quantities), 1)
    return panels(page, columns, 4.0 * columns + 2.5, heading, None if width_in is None else (width_in, 2.5))


def _several_trials(page: Page) -> bool:
    return any(len(cell.results) > 1 for row in page.rows for one in row.contenders for cell in one.cells)


def finish(axes: Axes, quantity: Quantity, across: str, before: str = "") -> None:
    """Label a panel of accuracy or loss; the loss is logarithmic where all of it is above zero."""
    dress(axes, across, before + _UPWARD[quantity])
    axes.margins(x=0.02)
    if is_empty(axes):
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no values", color="0.45", ha="center", va="center", transform=axes.transAxes)
    elif quantity == "train_loss" and axes.dataLim.y0 > 0:
        axes.set_yscale("log")
        if axes.dataLim.y1 > _WIDEST * axes.dataLim.y0:
            axes.set_ylim(axes.dataLim.y0 / 1.5, _WIDEST * axes.dataLim.y0)
        label_log_axis(axes.yaxis)


def is_empty(axes: Axes) -> bool:
    """Whether nothing was drawn."""
    return not np.isfinite(axes.dataLim.y0)


def line_style(contender: Contender) -> dict[str, Any]:
    """The look of a method as matplotlib takes it."""
    look = look_of(contender.method.name, contender.variant)
    return {"color": look.colour, "marker": look.marker, "linestyle": look.line, "linewidth": 1.6, "markersize": 4.5}
