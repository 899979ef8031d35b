"""The figure of a few runs: accuracy and loss over time, a line a run. Figures of sweeps are in `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.figures.style import dress, label_log_axis, look_of, mark_every, save, styled
from areabench.looks import method_label
from areabench.reading import Run

_LINES = ("-", "--", ":", "-.")


def plot_runs(runs: Sequence[Run], path: Path, target: float) -> None:
    """Accuracy and loss over time, a line a run, into one picture; `target` in percent."""
    save(draw_runs(runs, target), path)


@styled
def draw_runs(runs: Sequence[Run], target: float) -> Figure:
    """Accuracy and loss over time, a line a run; `target` in percent."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    for index, (run, style) in enumerate(zip(runs, _styles(runs), strict=True)):
        _draw(run, style, index / len(runs), (accuracy, loss))
    for axes, label in ((accuracy, "test accuracy (%)"), (loss, "training loss")):
        dress(axes, "time (s)", label)
        axes.margins(x=0.01)
    accuracy.axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    accuracy.legend(frameon=False, loc="lower right")
    loss.set_yscale("log")
    label_log_axis(loss.yaxis)
    return figure


def _styles(runs: Sequence[Run]) -> list[str]:
    """A line style a run: solid for a method's first run, others for its next ones."""
    seen: dict[str, int] = {}
    styles = []
    for run in runs:
        method = run.experiment.method.name
        styles.append(_LINES[seen.get(method, 0) % len(_LINES)])
        seen[method] = seen.get(method, 0) + 1
    return styles


def _draw(run: Run, style: str, shift: float, panels: tuple[Axes, Axes]) -> None:
    """One run; `shift` keeps its markers apart from those of others, as a share of their distance."""
    metrics, method = run.metrics_array, run.experiment.method
    if not len(metrics):
        return
    time_s = run.snapshot_index["time_s"][: len(metrics)]
    look, label = look_of(method.name), f"{method_label(method.name)}, α = {method.step_size:g}"
    for axes, column in zip(panels, ("test_accuracy", "train_loss"), strict=True):
        there = ~np.isnan(metrics[column])  # the loss may be asked for on few snapshots only
        axes.plot(
            time_s[there], metrics[column][there], style, color=look.colour, label=label, linewidth=1.6,
            marker=look.marker, markevery=mark_every(int(there.sum()), shift), markersize=4.5,
        )  # fmt: skip
