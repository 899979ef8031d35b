"""The figure of a soak: memory of the ranks, size of the run file and reply latency, each over time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from soak_page import Soak
from soak_reading import SHARES

from areabench.experiment.labels import METHOD_COLOURS
from areabench.views.figures.style import dress, save, styled

_BLUE, _ORANGE, _GREEN, _PINK = METHOD_COLOURS.values()


def draw(soak: Soak, path: Path) -> None:
    """Write the figure; the suffix says as what."""
    save(_figure(soak), path)


@styled
def _figure(soak: Soak) -> Figure:
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    memory, size, latency = figure.subplots(1, 3)
    _draw_memory(memory, soak)
    _draw_size(size, soak)
    _draw_latency(latency, soak)
    return figure


def _draw_memory(axes: Axes, soak: Soak) -> None:
    for rank, series in soak.samples.memory.items():
        colour, width = (_BLUE, 1.8) if rank == 0 else ("0.6", 0.6)
        label = "server" if rank == 0 else f"{soak.ranks - 1} other ranks" if rank == 1 else None
        axes.plot(
            series.time_s / 60, series.value / 1e6, color=colour, linewidth=width, label=label, zorder=3 - (rank > 0)
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("memory of each rank")
    dress(axes, "time in minutes", "Pss in MB")


def _draw_size(axes: Axes, soak: Soak) -> None:
    samples = soak.samples
    axes.plot(samples.file.time_s / 60, samples.file.value / 1e6, color=_BLUE, label="run file")
    if samples.checkpoint.value.any():
        axes.plot(samples.checkpoint.time_s / 60, samples.checkpoint.value / 1e6, color=_ORANGE, label="checkpoint")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    axes.set_title("size of the files")
    dress(axes, "time in minutes", "MB")


def _draw_latency(axes: Axes, soak: Soak) -> None:
    minutes = [window.middle_s / 60 for window in soak.windows]
    for number, colour in enumerate((_BLUE, _GREEN, _PINK)):
        values = [1e3 * window.reply_s[number] for window in soak.windows]
        axes.plot(
            minutes, values, color=colour, marker="." if len(minutes) < 5 else None, label=f"{SHARES[number]:.0%}"
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, title="quantile")
    axes.set_title("reply latency, each minute")
    dress(axes, "time in minutes", "ms")
