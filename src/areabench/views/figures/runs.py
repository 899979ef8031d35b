"""Figures of runs: accuracy and loss over time with one line per run, and two runs compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.experiment.labels import describe_setting, method_colour, method_label
from areabench.results.comparison import Floats, Pair, RunComparison, arrivals, compare_runs, curve_of, time_shifts
from areabench.results.statistics import Quantity
from areabench.runfile.read import Run
from areabench.views.figures.style import (
    LIMIT_LINE,
    Width,
    entitle,
    grid,
    inches,
    label_axes,
    legend,
    line_look,
    mark_every,
    paper_style,
    say_nothing_there,
    styled,
)
from areabench.views.figures.sweeps import finish, runs_of
from areabench.views.styled import number
from areabench.views.text import run_names

_QUANTITIES: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
_LINES = ("-", "--", ":", "-.")
_BINS = 60  # of the time axis, for the shift


@paper_style()
def quality(runs: Run | Sequence[Run], target: float = 80.0, *, width: Width = "page", titled: bool = True) -> Figure:
    """Test accuracy and training loss over time, one line per run; `target` is an accuracy in percent.

    Only what was measured has a panel. The first run of a method has a solid line, the next ones have others.
    """
    runs = runs_of(runs)
    measured = [name for name in _QUANTITIES if any(np.isfinite(run.metrics_array[name]).any() for run in runs)]
    if not measured:
        raise UserError(f"{runs[0].path}: no run was evaluated, so there is no quality to draw; look at its status")
    figure, (panels,) = grid(len(measured), inches(width), 2.5, 2.0)
    settings = {f"{run.experiment.name}: {describe_setting(run.experiment)}" for run in runs}
    transports = {run.provenance.transport for run in runs}
    words = f"Quality over time\n{'; '.join(sorted(settings))}; {', '.join(sorted(transports))}"
    entitle(figure, words, titled=titled)
    # Runs of one method share its colour, so lines tell them apart.
    seen: Counter[str] = Counter()
    for index, run in enumerate(runs):
        metrics = run.metrics_array
        method = run.experiment.method
        look = line_look(method.name) | {"linestyle": _LINES[seen[method.name] % len(_LINES)]}
        seen[method.name] += 1
        time_s = run.snapshot_index["time_s"][: len(metrics)]
        for quantity, panel in zip(measured, panels, strict=True) if len(metrics) else ():
            there = ~np.isnan(metrics[quantity])  # the loss may be evaluated on few snapshots only
            marked = mark_every(int(there.sum()), index / len(runs))  # markers are kept apart
            label = f"{method_label(method.name)}, α = {method.step_size:g}"
            panel.plot(time_s[there], metrics[quantity][there], **look, label=label, markevery=marked)
    for quantity, panel in zip(measured, panels, strict=True):
        if quantity == "test_accuracy":
            panel.axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        finish(panel, quantity, "time (s)")
    legend(panels[-1], panels[0].get_legend_handles_labels()[0])
    return figure


# ---------------------------------------------------------------------------------------------------- two runs


def two_clocks(first: Run, second: Run) -> Figure:
    """Two runs of one experiment, such as a simulated and a real one, in four panels, ten inches wide."""
    return draw_comparison(first, second, compare_runs(first, second))


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
    panels: dict[Quantity, Axes] = {"train_loss": loss, "test_accuracy": accuracy}
    names = run_names(first, second)
    looks: tuple[dict[str, Any], dict[str, Any]] = (  # the two may cover each other: the first is broad and pale
        {"color": method_colour(method.name), "linewidth": 4.0, "alpha": 0.45, "solid_capstyle": "butt"},
        {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))},
    )
    for run, name, look in zip((first, second), names, looks, strict=True):
        for quantity, axes in panels.items():
            curve = curve_of(run, quantity)
            axes.plot(curve.time_s, curve.values, **look)
        # Updates used so far, at the times of the snapshots: events before each less the server steps among them.
        index = run.snapshot_index
        used = (index["event"] - index["version"]).astype(np.float64)
        updates.plot(index["time_s"], used, **look, label=name)
    finals = ((found.loss.final, 3), (found.accuracy.final, 2))
    for (quantity, axes), (pair, digits) in zip(panels.items(), finals, strict=True):
        finish(axes, quantity, "time (s)")
        if not (np.isnan(pair.first) or np.isnan(pair.second)):
            ends = f"{number(pair.first, digits)} and {number(pair.second, digits)}"
            _note(axes, f"at the end {ends}{_percent_beyond(pair)}")
    label_axes(updates, "time (s)", "updates so far")
    updates.margins(x=0.02)
    updates.yaxis.set_major_formatter("{x:,.0f}")
    updates.legend(frameon=False, loc="upper left", handlelength=3.0)
    _note(updates, f"in all {found.updates.first:,.0f} and {found.updates.second:,.0f}{_percent_beyond(found.updates)}")
    _draw_shift(shift, first, second, found)
    return figure


def _draw_shift(axes: Axes, first: Run, second: Run, found: RunComparison) -> None:
    """Median and 5 to 95 % of the shift of common arrivals, in bins of equal length."""
    names = run_names(first, second)
    label_axes(axes, f"time of the arrival, {names[0]} (s)", "shift of arrivals (ms)")
    axes.margins(x=0.02)
    if found.shift is None or found.order is None or not found.order.common:
        say_nothing_there(axes, "no events in common")
        return
    centre_s, low, middle, high = binned(*time_shifts(arrivals(first.events_array), arrivals(second.events_array)))
    colour = method_colour(first.experiment.method.name)
    axes.fill_between(centre_s, 1e3 * low, 1e3 * high, color=colour, alpha=0.25, linewidth=0, label="5 to 95 %")
    axes.plot(centre_s, 1e3 * middle, color=colour, linewidth=1.6, label="median")
    axes.axhline(0.0, **LIMIT_LINE, zorder=1)
    # The legend would cover the band.
    low_ms, high_ms = axes.get_ylim()
    axes.set_ylim(low_ms, high_ms + 0.12 * (high_ms - low_ms))  # room for the legend
    axes.legend(frameon=False, loc="upper left", ncols=2)
    line = f"{1e3 * found.shift.offset_s:+.0f} ms and {found.shift.drift_percent:+.2f} % of the time"
    _note(axes, f"{names[1]} minus {names[0]}: {line}")


def binned(time_s: Floats, shift_s: Floats, bins: int = _BINS) -> tuple[Floats, ...]:
    """Middles of the bins that are not empty, and the 5th, 50th and 95th percentile of the shifts in each."""
    # Arrivals at time 0 alone would give edges without width.
    edges = np.linspace(0.0, time_s.max() or 1.0, bins + 1)
    places = np.clip(np.digitize(time_s, edges) - 1, 0, bins - 1)
    filled = np.unique(places)
    low, middle, high = np.array([np.percentile(shift_s[places == place], (5, 50, 95)) for place in filled]).T
    return (edges[filled] + edges[filled + 1]) / 2, low, middle, high


def _percent_beyond(pair: Pair) -> str:
    if not np.isfinite(pair.difference_percent):
        return ""
    return f" ({pair.difference_percent:+.2f} %)"


def _note(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize="small")
