"""Figures of runs: accuracy and loss over time with one line per run, and two runs compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.experiment.labels import describe_setting, method_colour, method_label
from areabench.results.comparison import Floats, Pair, RunComparison, arrivals, curve_of, time_shifts
from areabench.results.statistics import Quantity
from areabench.runfile.read import Run
from areabench.views.figures.style import (
    LIMIT_LINE,
    entitle,
    grid,
    label_axes,
    label_log_axis,
    legend,
    line_look,
    mark_every,
    styled,
)
from areabench.views.figures.sweeps import finish
from areabench.views.styled import number
from areabench.views.text import run_names

_COLUMNS: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
_LINES = ("-", "--", ":", "-.")
_BINS = 60  # of the time axis, for the shift
_OVER: dict[str, Any] = {  # the second run, over the first
    "color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2)), "label": "second",
}  # fmt: skip


@styled
def draw_runs(runs: Sequence[Run], target: float, *, width_in: float | None = None) -> Figure:
    """Accuracy and loss over time, one line per run; `target` in percent."""
    if width_in is not None:
        return _draw_paper(runs, target, width_in)
    figure = Figure(figsize=(10, 4), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    _draw_lines(runs, {"test_accuracy": accuracy, "train_loss": loss}, target)
    for axes, label in ((accuracy, "test accuracy (%)"), (loss, "training loss")):
        label_axes(axes, "time (s)", label)
        axes.margins(x=0.01)
    accuracy.legend(frameon=False, loc="lower right")
    loss.set_yscale("log")
    label_log_axis(loss.yaxis)
    return figure


def _draw_paper(runs: Sequence[Run], target: float, width_in: float) -> Figure:
    """The same for a paper: only what was measured, with a title that names the runs."""
    measured = [name for name in _COLUMNS if any(np.isfinite(run.metrics_array[name]).any() for run in runs)]
    if not measured:
        raise UserError(f"{runs[0].path}: no run was evaluated, so there is no quality to draw; look at its status")
    figure, axes = grid(len(measured), width_in, 2.5, 2.0)
    settings = {f"{run.experiment.name}: {describe_setting(run.experiment)}" for run in runs}
    transports = {run.provenance.transport for run in runs}
    entitle(figure, f"Quality over time\n{'; '.join(sorted(settings))}; {', '.join(sorted(transports))}")
    panels = dict(zip(measured, axes, strict=True))
    _draw_lines(runs, panels, target)
    for name, panel in panels.items():
        finish(panel, name, "time (s)")
    legend(axes[-1], axes[0].get_legend_handles_labels()[0])
    return figure


def _draw_lines(runs: Sequence[Run], panels: Mapping[Quantity, Axes], target: float) -> None:
    """The first run of a method has a solid line, the next ones have others; markers are kept apart."""
    seen: Counter[str] = Counter()
    for index, run in enumerate(runs):
        metrics = run.metrics_array
        method = run.experiment.method
        look = line_look(method.name) | {"linestyle": _LINES[seen[method.name] % len(_LINES)]}
        seen[method.name] += 1
        time_s = run.snapshot_index["time_s"][: len(metrics)]
        label = f"{method_label(method.name)}, α = {method.step_size:g}"
        for column, axes in panels.items() if len(metrics) else ():
            there = ~np.isnan(metrics[column])  # the loss may be evaluated on few snapshots only
            marked = mark_every(int(there.sum()), index / len(runs))
            axes.plot(time_s[there], metrics[column][there], **look, label=label, markevery=marked)
    if "test_accuracy" in panels:
        panels["test_accuracy"].axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)


# ---------------------------------------------------------------------------------------------------- two runs


@styled
def draw_comparison(first: Run, second: Run, found: RunComparison) -> Figure:
    """Four panels over time: loss, accuracy, updates so far, and the time shift of common arrivals."""
    experiment = first.experiment
    method = experiment.method
    setting = f"{describe_setting(experiment)}, rates {experiment.rates.describe()}, seed {experiment.seed}"
    heading = f"One experiment, two runs: {method_label(method.name)}, α = {method.step_size:g}\n{setting}"
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(heading, fontsize="medium")
    (loss, accuracy), (updates, shift) = figure.subplots(2, 2)
    _draw_quality(loss, first, second, "train_loss", found.loss.final)
    _draw_quality(accuracy, first, second, "test_accuracy", found.accuracy.final)
    _draw_updates(updates, first, second, found)
    _draw_shift(shift, first, second, found)
    handles, _ = updates.get_legend_handles_labels()
    updates.legend(handles, run_names(first, second), frameon=False, loc="upper left", handlelength=3.0)
    return figure


def _look_below(run: Run) -> dict[str, Any]:
    """Of the first of two lines that may cover each other: broad and pale."""
    colour = method_colour(run.experiment.method.name)
    return {"color": colour, "linewidth": 4.0, "alpha": 0.45, "solid_capstyle": "butt", "label": "first"}


def _draw_quality(axes: Axes, first: Run, second: Run, column: Any, final: Pair) -> None:
    for run, look in ((first, _look_below(first)), (second, _OVER)):
        curve = curve_of(run, column)
        axes.plot(curve.time_s, curve.values, **look)
    finish(axes, column, "time (s)")
    digits = 3 if column == "train_loss" else 2
    if not (np.isnan(final.first) or np.isnan(final.second)):
        ends = f"{number(final.first, digits)} and {number(final.second, digits)}"
        _note(axes, f"at the end {ends}{_percent_beyond(final)}")


def _draw_updates(axes: Axes, first: Run, second: Run, found: RunComparison) -> None:
    """Updates used so far, at the times of the snapshots: events before each less the server steps among them."""
    for run, look in ((first, _look_below(first)), (second, _OVER)):
        index = run.snapshot_index
        axes.plot(index["time_s"], (index["event"] - index["version"]).astype(np.float64), **look)
    label_axes(axes, "time (s)", "updates so far")
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    pair = found.updates
    _note(axes, f"in all {pair.first:,.0f} and {pair.second:,.0f}{_percent_beyond(pair)}")


def _draw_shift(axes: Axes, first: Run, second: Run, found: RunComparison) -> None:
    """Median and 5 to 95 % of the shift of common arrivals, in bins of equal length."""
    names = run_names(first, second)
    label_axes(axes, f"time of the arrival, {names[0]} (s)", "shift of arrivals (ms)")
    axes.margins(x=0.02)
    if found.shift is None or found.order is None or not found.order.common:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no events in common", color="0.45", ha="center", va="center", transform=axes.transAxes)
        return
    centre_s, low, middle, high = binned(*time_shifts(arrivals(first.events_array), arrivals(second.events_array)))
    colour = method_colour(first.experiment.method.name)
    axes.fill_between(centre_s, 1e3 * low, 1e3 * high, color=colour, alpha=0.25, linewidth=0, label="5 to 95 %")
    axes.plot(centre_s, 1e3 * middle, color=colour, linewidth=1.6, label="median")
    axes.axhline(0.0, **LIMIT_LINE, zorder=1)
    low_ms, high_ms = axes.get_ylim()
    axes.set_ylim(low_ms, high_ms + 0.12 * (high_ms - low_ms))  # room for the legend
    axes.legend(frameon=False, loc="upper left", ncols=2)
    line = f"{1e3 * found.shift.offset_s:+.0f} ms and {found.shift.drift_percent:+.2f} % of the time"
    _note(axes, f"{names[1]} minus {names[0]}: {line}")


def binned(time_s: Floats, shift_s: Floats, bins: int = _BINS) -> tuple[Floats, ...]:
    """Middles of the bins that are not empty, and the 5th, 50th and 95th percentile of the shifts in each."""
    edges = np.linspace(0.0, time_s.max() or 1.0, bins + 1)
    places = np.clip(np.digitize(time_s, edges) - 1, 0, bins - 1)
    filled = np.unique(places)
    low, middle, high = np.array([np.percentile(shift_s[places == place], (5, 50, 95)) for place in filled]).T
    return (edges[filled] + edges[filled + 1]) / 2, low, middle, high


def _percent_beyond(pair: Pair) -> str:
    return f" ({pair.difference_percent:+.2f} %)" if np.isfinite(pair.difference_percent) else ""


def _note(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize="small")
