"""The figure of a split: which client holds how many samples of which class."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import describe_data
from areabench.problems.datasets import default_cache
from areabench.results.label_counts import recorded_labels
from areabench.runfile.read import Run
from areabench.views.figures.style import Width, entitle, inches, label_axes, paper_style

MOST_CLIENTS = 256  # more dots would be too small to see
_MOST_TICKS = 20
_ALL_NAMED = 10  # clients whose numbers have room in any figure
_BESIDE_IN = 1.5  # what labels and legend take of the width
_COLOUR = "#0072B2"


def class_shares(run: Run, *, cache: Path | None = None, width: Width = "page", titled: bool = True) -> Figure:
    """Which client holds how many samples of which class; `cache` has the data set, as for commands."""
    counts = recorded_labels(run.experiment, run.path, cache or default_cache(os.environ))
    return draw_labels(counts, run.experiment, width, titled=titled)


@paper_style()
def draw_labels(
    counts: NDArray[np.int64], experiment: Experiment, width: Width = "page", *, titled: bool = True
) -> Figure:
    """Clients across, classes upward, a dot's area as the count; above it the samples of each client."""
    shown = counts[:MOST_CLIENTS]
    clients, classes = shown.shape
    height_in = float(np.clip(0.18 * classes, 1.2, 12.0))
    figure = Figure(figsize=(inches(width), height_in + 2.1), layout="constrained")
    part = ""
    if len(counts) > MOST_CLIENTS:
        part = f" (the first {MOST_CLIENTS} shown)"
    setting = f"n = {len(counts)}{part}, {describe_data(experiment)}, seed {experiment.seed}"
    entitle(figure, f"Labels of the clients\n{setting}", titled=titled)
    totals, dots = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, height_in))
    label_axes(totals, "", "samples")
    totals.bar(np.arange(clients), shown.sum(axis=1), width=0.75, color="0.45")
    totals.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    totals.yaxis.set_major_formatter("{x:,.0f}")
    totals.grid(visible=False, axis="x")
    label_axes(dots, "client", "class")
    # Dots are as large as fits: neighbours in a row may touch, not overlap.
    radii = np.sqrt(shown / shown.max()) / 2  # in diameters of the largest dot
    closest = float((radii[1:] + radii[:-1]).max(initial=0.5))
    diameter_in = min(0.95 * height_in / classes, (inches(width) - _BESIDE_IN) / clients / closest)
    points_per_sample = (72.0 * diameter_in) ** 2 / shown.max()
    client, label = np.nonzero(shown)
    dots.scatter(client, label, s=points_per_sample * shown[client, label], color=_COLOUR, linewidth=0)
    dots.set_xlim(-0.7, clients - 0.3)
    dots.set_ylim(-0.7, classes - 0.3)
    dots.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if clients <= _ALL_NAMED:
        dots.set_xticks(range(clients))
    dots.set_yticks(np.arange(0, classes, -(-classes // _MOST_TICKS)))
    for count in sorted({_rounded(shown.max() * share) for share in (1.0, 0.3, 0.1)} - {0}):
        dots.scatter([], [], s=points_per_sample * count, color=_COLOUR, linewidth=0, label=f"{count:,}")
    dots.legend(
        title="samples", frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize="small",
        title_fontsize="small", labelspacing=0.9,
    )  # fmt: skip
    return figure


def _rounded(value: float) -> int:
    """Down to 1, 2 or 5 times a power of ten; 0 below 1."""
    unit = 10 ** int(np.log10(max(value, 1.0)))
    return max((unit * digit for digit in (1, 2, 5) if unit * digit <= value), default=0)
