"""The figure of the cost benchmark: time per update and peak memory against n, d and M."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cost_point import Cost, Letter, Measured, memories_bytes, versions_bytes
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.methods import METHODS
from areabench.views.figures.style import (
    label_axes,
    label_log_axis,
    line_look,
    save,
    styled,
)

_ACROSS: dict[Letter, str] = {"n": "clients n", "d": "parameters d", "M": "local steps M"}
_FIXED: dict[Letter, str] = {"n": "d = 7,840, M = 1", "d": "n = 128, M = 1", "M": "n = 128, d = 7,840"}
_LEAST_MB = 10.0  # models that take less are negligible beside the program itself


def draw_files(measured: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the figure as PNG and SVG."""
    figure = draw(measured)
    paths = [folder / "cost.png", folder / "cost.svg"]
    for path in paths:
        save(figure, path)
    return paths


@styled
def draw(measured: Sequence[Measured]) -> Figure:
    """One column per axis; above the time per update, below the peak memory."""
    figure = Figure(figsize=(11.0, 6.4), layout="constrained")
    axes = figure.subplots(2, len(_ACROSS), sharex="col", sharey="row")
    for column, letter in enumerate(_ACROSS):
        chosen = [one for one in measured if one.point.letter == letter]
        _draw_lines(axes[0, column], chosen, lambda cost: 1e6 * cost.update_s)
        _draw_lines(axes[1, column], chosen, lambda cost: cost.peak_bytes / 1e6)
        if letter != "M":
            _draw_models(axes[1, column], chosen)
    _finish(axes)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize="small")
    return figure


def _draw_lines(axes: Axes, measured: Sequence[Measured], height: Callable[[Cost], float]) -> None:
    for method, label in ((name, record.label) for name, record in METHODS.items()):
        points = [(one.point.value, height(one.cost)) for one in measured if one.point.method == method and one.cost]
        if points:
            axes.loglog(*zip(*points, strict=True), **line_look(method), label=label)


def _draw_models(axes: Axes, measured: Sequence[Measured]) -> None:
    """What the models alone take."""
    experiments = {one.point.value: one.point.experiment for one in measured}
    memories = [memories_bytes(experiment) / 1e6 for experiment in experiments.values()]
    versions = [versions_bytes(experiment) / 1e6 for experiment in experiments.values()]
    axes.plot(list(experiments), memories, color="0.25", linewidth=0.9, label="AREA's memories, n·d floats")
    axes.plot(list(experiments), versions, color="0.6", linewidth=0.9, label="models in use, 0.52·n·d floats")


def _finish(axes: Any) -> None:
    """Label all panels; `axes` has the shape (2, columns)."""
    for column, (letter, across) in enumerate(_ACROSS.items()):
        axes[0, column].set_title(_FIXED[letter], fontsize="small")
        label_axes(axes[0, column], "", "" if column else "time per update (µs)")
        label_axes(axes[1, column], across, "" if column else "peak memory (MB)")
    low, high = axes[1, 0].get_ylim()
    axes[1, 0].set_ylim(max(low, _LEAST_MB), high)
    for panel in [panel for panel in axes.flat if panel.lines]:  # all points of an axis may be left out
        panel.tick_params(axis="x", labelsize="small")
        for axis in (panel.xaxis, panel.yaxis):
            label_log_axis(axis)
            axis.set_major_formatter("{x:,.10g}")
