"""The figure of a split: which client holds how many samples of which class."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import describe_data
from areabench.views.figures.style import entitle, label_axes, styled

MOST_CLIENTS = 256  # more dots would be too small to see
_MOST_TICKS = 20
_ALL_NAMED = 10  # clients whose numbers have room in any figure
_BESIDE_IN = 1.5  # what labels and legend take of the width
_COLOUR = "#0072B2"
Integers = NDArray[np.int64]


@styled
def draw_labels(counts: Integers, experiment: Experiment, *, width_in: float | None = None) -> Figure:
    """Clients across, classes upward, a dot's area as the count; above it the samples of each client."""
    shown = counts[:MOST_CLIENTS]
    clients, classes = shown.shape
    width = float(np.clip(0.095 * clients, 4.2, 14.0)) if width_in is None else width_in - _BESIDE_IN
    height = float(np.clip((0.27 if width_in is None else 0.18) * classes, 1.2, 12.0))
    figure = Figure(figsize=(width + 1.9 if width_in is None else width_in, height + 2.1), layout="constrained")
    part = f" (the first {MOST_CLIENTS} shown)" if len(counts) > MOST_CLIENTS else ""
    setting = f"n = {len(counts)}{part}, {describe_data(experiment)}, seed {experiment.seed}"
    entitle(figure, f"Labels of the clients\n{setting}")
    totals, dots = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, height))
    label_axes(totals, "", "samples")
    totals.bar(np.arange(clients), shown.sum(axis=1), width=0.75, color="0.45")
    totals.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    totals.yaxis.set_major_formatter("{x:,.0f}")
    totals.grid(visible=False, axis="x")
    _draw_dots(dots, shown, width / clients, height / classes)
    return figure


def _draw_dots(axes: Axes, counts: Integers, column: float, row: float) -> None:
    """Dots as large as fit; `column` and `row` are the room of a dot in inches."""
    label_axes(axes, "client", "class")
    points = 72.0**2 * _largest_area(counts, column, row)
    client, label = np.nonzero(counts)
    areas = points * counts[client, label] / counts.max()
    axes.scatter(client, label, s=areas, color=_COLOUR, linewidth=0)
    axes.set_xlim(-0.7, len(counts) - 0.3)
    axes.set_ylim(-0.7, counts.shape[1] - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if len(counts) <= _ALL_NAMED:
        axes.set_xticks(range(len(counts)))
    axes.set_yticks(np.arange(0, counts.shape[1], -(-counts.shape[1] // _MOST_TICKS)))
    _explain_areas(axes, int(counts.max()), points)


def _largest_area(counts: Integers, column: float, row: float) -> float:
    """Square of the largest dot's diameter in inches: neighbours in a row may touch, not overlap."""
    radii = np.sqrt(counts / counts.max()) / 2  # in diameters of the largest dot
    closest = float((radii[1:] + radii[:-1]).max(initial=0.5))
    return min(0.95 * row, column / closest) ** 2


def _explain_areas(axes: Axes, most: int, points: float) -> None:
    """A legend right of the dots, with round counts."""
    sizes = sorted({_rounded(most * share) for share in (1.0, 0.3, 0.1)} - {0})
    for size in sizes:
        axes.scatter([], [], s=points * size / most, color=_COLOUR, linewidth=0, label=f"{size:,}")
    axes.legend(
        title="samples", frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize="small",
        title_fontsize="small", labelspacing=0.9,
    )  # fmt: skip


def _rounded(value: float) -> int:
    """Down to 1, 2 or 5 times a power of ten; 0 below 1."""
    unit = 10 ** int(np.log10(max(value, 1.0)))
    return max((unit * digit for digit in (1, 2, 5) if unit * digit <= value), default=0)
