"""Figures of runs. Colours belong to methods and are the same everywhere (Okabe and Ito's, told apart by all)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.reading import Run

METHOD_COLOURS = {"area": "#0072B2", "fedbuff": "#E69F00", "as-fedavg": "#009E73", "s-fedavg": "#CC79A7"}
METHOD_NAMES = {"area": "AREA", "fedbuff": "FedBuff", "as-fedavg": "AS-FedAvg", "s-fedavg": "S-FedAvg"}
_LINES = ("-", "--", ":", "-.")


def plot_runs(runs: Sequence[Run], path: Path, target: float) -> None:
    """Accuracy and loss over time, a line a run, into one picture."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 4), layout="constrained")
        accuracy, loss = figure.subplots(1, 2)
        for run, style in zip(runs, _styles(runs), strict=True):
            _draw(run, style, accuracy, loss)
        _dress(accuracy, "test accuracy (%)")
        _dress(loss, "training loss")
        accuracy.axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        accuracy.legend(frameon=False, loc="lower right")
        loss.set_yscale("log")
        loss.yaxis.set_major_formatter("{x:g}")
        loss.yaxis.set_minor_formatter("{x:g}")
        _save(figure, path)


def _styles(runs: Sequence[Run]) -> list[str]:
    """A line style a run: solid for a method's first run, others for its next ones."""
    seen: dict[str, int] = {}
    styles = []
    for run in runs:
        method = run.experiment.method.name
        styles.append(_LINES[seen.get(method, 0) % len(_LINES)])
        seen[method] = seen.get(method, 0) + 1
    return styles


def _draw(run: Run, style: str, accuracy: Axes, loss: Axes) -> None:
    metrics, time_s = run.metrics_array, run.snapshot_index["time_s"]
    method = run.experiment.method
    if not len(metrics):
        return
    label = f"{METHOD_NAMES[method.name]}, α = {method.step_size:g}"
    for axes, column in ((accuracy, "test_accuracy"), (loss, "train_loss")):
        axes.plot(time_s, metrics[column], style, color=METHOD_COLOURS[method.name], label=label, linewidth=1.6)


def _dress(axes: Axes, label: str) -> None:
    axes.set_xlabel("time (s)")
    axes.set_ylabel(label)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)


def _save(figure: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the plot cannot be written: {error}") from error
