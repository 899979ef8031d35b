"""The figure of a few runs: accuracy and loss over time, a line a run. Figures of sweeps are in `figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench.errors import UserError
from areabench.figures.data import Quantity
from areabench.figures.panels import finish
from areabench.figures.paper import entitle, grid, legend
from areabench.figures.style import dress, label_log_axis, look_of, mark_every, save, styled
from areabench.looks import method_label
from areabench.reading import Run
from areabench.tables.words import describe_setting

_COLUMNS: tuple[Quantity, ...] = ("test_accuracy", "train_loss")
_LINES = ("-", "--", ":", "-.")


def plot_runs(runs: Sequence[Run], path: Path, target: float) -> None:
    """Accuracy and loss over time, a line a run, into one picture; `target` in percent."""
    save(draw_runs(runs, target), path)


@styled
def draw_runs(runs: Sequence[Run], target: float, *, width_in: float | None = None) -> Figure:
    """Accuracy and loss over time, a line a run; `target` in percent."""
    if width_in is not None:
        return _draw_paper(runs, target, width_in)
    figure = Figure(figsize=(10, 4), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    for index, (run, style) in enumerate(zip(runs, _styles(runs), strict=True)):
        _draw(run, style, index / len(runs), {"test_accuracy": accuracy, "train_loss": loss})
    for axes, label in ((accuracy, "test accuracy (%)"), (loss, "training loss")):
        dress(axes, "time (s)", label)
        axes.margins(x=0.01)
    accuracy.axhline(target, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    accuracy.legend(frameon=False, loc="lower right")
    loss.set_yscale("log")
    label_log_axis(loss.yaxis)
    return figure


def _draw_paper(runs: Sequence[Run], target: float, width_in: float) -> Figure:
    """The same for a paper: what was measured, and a title that names the runs."""
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
    """What the runs are of, and on which clocks."""
    settings = {f"{run.experiment.name}: {describe_setting(run.experiment)}" for run in runs}
    return f"{'; '.join(sorted(settings))}; {', '.join(sorted({run.provenance.transport for run in runs}))}"


def _styles(runs: Sequence[Run]) -> list[str]:
    """A line style a run: solid for a method's first run, others for its next ones."""
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
    look, label = look_of(method.name), f"{method_label(method.name)}, α = {method.step_size:g}"
    for column, axes in panels.items():
        there = ~np.isnan(metrics[column])  # the loss may be asked for on few snapshots only
        axes.plot(
            time_s[there], metrics[column][there], style, color=look.colour, label=label, linewidth=1.6,
            marker=look.marker, markevery=mark_every(int(there.sum()), shift), markersize=4.5,
        )  # fmt: skip
