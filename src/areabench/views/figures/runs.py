"""Figures of runs: accuracy and loss over time with one line per run, and two runs compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.experiment.labels import describe_setting, method_label
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
    mark_every,
    method_style,
    styled,
)
from areabench.views.figures.sweeps import finish
from areabench.views.styled import number
from areabench.views.text import run_names

_COLUMNS: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
_LINES = ("-", "--", ":", "-.")
_BINS = 60  # of the time axis, for the shift
_OVER: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))}  # the second run, over the first


@styled
def draw_runs(runs: Sequence[Run], target: float, *, width_in: float | None = None) -> Figure:
    """Accuracy and loss over time, one line per run; `target` in percent."""
    if width_in is not None:
        return _draw_paper(runs, target, width_in)
    figure = Figure(figsize=(10, 4), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    for index, (run, style) in enumerate(zip(runs, _styles(runs), strict=True)):
        _draw(run, style, index / len(runs), {"test_accuracy": accuracy, "train_loss": loss})
    for axes, label in ((accuracy, "test accuracy (%)"), (loss, "training loss")):
        label_axes(axes, "time (s)", label)
        axes.margins(x=0.01)
    accuracy.axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
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
    entitle(figure, f"Quality over time\n{_names(runs)}")
    panels = dict(zip(measured, axes, strict=True))
    for index, (run, style) in enumerate(zip(runs, _styles(runs), strict=True)):
        _draw(run, style, index / len(runs), panels)
    for name, panel in panels.items():
        finish(panel, name, "time (s)")
    if "test_accuracy" in panels:
        panels["test_accuracy"].axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    legend(axes[-1], axes[0].get_legend_handles_labels()[0])
    return figure


def _names(runs: Sequence[Run]) -> str:
    """The experiments of the runs, and their transports."""
    settings = {f"{run.experiment.name}: {describe_setting(run.experiment)}" for run in runs}
    return f"{'; '.join(sorted(settings))}; {', '.join(sorted({run.provenance.transport for run in runs}))}"


def _styles(runs: Sequence[Run]) -> list[str]:
    """One line style per run: solid for the first run of a method, others for its next ones."""
    seen: dict[str, int] = {}
    styles = []
    for run in runs:
        method = run.experiment.method.name
        styles.append(_LINES[seen.get(method, 0) % len(_LINES)])
        seen[method] = seen.get(method, 0) + 1
    return styles


def _draw(run: Run, style: str, shift: float, panels: Mapping[Quantity, Axes]) -> None:
    """One run; `shift` keeps its markers apart from those of others, as a share of their distance."""
    metrics, method = run.metrics_array, run.experiment.method
    if not len(metrics):
        return
    time_s = run.snapshot_index["time_s"][: len(metrics)]
    look, label = method_style(method.name), f"{method_label(method.name)}, α = {method.step_size:g}"
    for column, axes in panels.items():
        there = ~np.isnan(metrics[column])  # the loss may be evaluated on few snapshots only
        axes.plot(
            time_s[there], metrics[column][there], style, color=look.colour, label=label, linewidth=1.6,
            marker=look.marker, markevery=mark_every(int(there.sum()), shift), markersize=4.5,
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- two runs


@styled
def draw_comparison(first: Run, second: Run, found: RunComparison) -> Figure:
    """Four panels over time: loss, accuracy, updates so far, and the time shift of common arrivals."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(_title(first), fontsize="medium")
    (loss, accuracy), (updates, shift) = figure.subplots(2, 2)
    _draw_quality(loss, first, second, "train_loss", found.loss.final)
    _draw_quality(accuracy, first, second, "test_accuracy", found.accuracy.final)
    _draw_updates(updates, first, second, found)
    _draw_shift(shift, first, second, found)
    handles, _ = updates.get_legend_handles_labels()
    updates.legend(handles, run_names(first, second), frameon=False, loc="upper left", handlelength=3.0)
    return figure


def _title(run: Run) -> str:
    experiment, method = run.experiment, run.experiment.method
    name = f"{method_label(method.name)}, α = {method.step_size:g}"
    setting = f"{describe_setting(experiment)}, rates {experiment.rates.describe()}, seed {experiment.seed}"
    return f"One experiment, two runs: {name}\n{setting}"


def _draw_over(axes: Axes, first: Run, curves: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]) -> None:
    """Two lines that may cover each other: the first broad and pale, the second thin and dashed on top of it."""
    colour = method_style(first.experiment.method.name).colour
    axes.plot(*curves[0], color=colour, linewidth=4.0, alpha=0.45, solid_capstyle="butt", label="first")
    axes.plot(*curves[1], **_OVER, label="second")


def _draw_quality(axes: Axes, first: Run, second: Run, column: Any, final: Pair) -> None:
    one, other = curve_of(first, column), curve_of(second, column)
    _draw_over(axes, first, ((one.time_s, one.values), (other.time_s, other.values)))
    finish(axes, column, "time (s)")
    digits = 3 if column == "train_loss" else 2
    if not (np.isnan(final.first) or np.isnan(final.second)):
        _note(axes, f"at the end {number(final.first, digits)} and {number(final.second, digits)}{_percent(final)}")


def _draw_updates(axes: Axes, first: Run, second: Run, found: RunComparison) -> None:
    """Updates used so far, at the times of the snapshots: events before each less the server steps among them."""
    indices = [run.snapshot_index for run in (first, second)]
    one, other = [(index["time_s"], (index["event"] - index["version"]).astype(np.float64)) for index in indices]
    _draw_over(axes, first, (one, other))
    label_axes(axes, "time (s)", "updates so far")
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    pair = found.updates
    _note(axes, f"in all {pair.first:,.0f} and {pair.second:,.0f}{_percent(pair)}")


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
    colour = method_style(first.experiment.method.name).colour
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


def _percent(pair: Pair) -> str:
    return f" ({pair.difference_percent:+.2f} %)" if np.isfinite(pair.difference_percent) else ""


def _note(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize="small")
