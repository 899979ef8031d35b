"""The figure of who worked on which version of the model and when, and when the server stepped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from areabench.engine.events import Kind
from areabench.errors import UserError
from areabench.experiment.labels import method_colour, method_label
from areabench.results.rounds import Round, lanes_of, rounds_between, steps_between
from areabench.runfile.read import Run
from areabench.views.figures.style import Width, entitle, inches, is_narrow, paper_style

_ROUNDS_PER_INCH = 5.0
_SQUARES_PER_INCH = 6.0  # of the server's steps; more of them are ticks
_LETTER_IN = 0.07  # of a version's number
_ACROSS = 0.7  # what the lanes have of the width of the figure
_COLOURS = "cividis_r"  # distinguishable by all readers, also in grey: darker is staler
_MOST_COLOURS = 12  # of staleness, with ticks at each


@paper_style()
def timeline(
    run: Run, start_s: float = 0.0, end_s: float | None = None, *, width: Width = "page", titled: bool = True
) -> Figure:
    """Who worked on which version of the model and when, and when the server stepped: the paper's figure 1.

    The server's lane is on top, one lane per client below it, fastest first; one bar per round, with its version.
    """
    width_in = inches(width)
    experiment = run.experiment
    rates = run.clients_array["rate"]
    lanes = lanes_of(rates)
    rows = run.events_array
    if end_s is None:  # the arrival up to which about as many rounds of these clients fit as there is room for
        is_ours = (rows["kind"] == Kind.UPDATE) & (rows["time_s"] > start_s) & np.isin(rows["client"], lanes)
        arrivals_s = rows["time_s"][is_ours][: int(_ROUNDS_PER_INCH * width_in)]
        end_s = run.status.end_s
        if len(arrivals_s):
            end_s = float(arrivals_s[-1])
    window = (start_s, end_s)
    if not experiment.record.events:
        raise UserError(f"{run.path}: has no event log to draw; run it with record.events=true")
    rounds = [one for one in rounds_between(rows, *window) if one.client in lanes]
    if not rounds or start_s >= end_s:
        raise UserError(f"{run.path}: no round from {start_s:g} to {end_s:g} s; the run lasts {run.status.end_s:g} s")
    figure = Figure(figsize=(width_in, 1.3 + 0.24 * (len(lanes) + 1) + 0.5 * (width_in < 5)), layout="constrained")
    part = ""
    if len(lanes) < len(rates):
        part = f" ({len(lanes)} shown)"
    clock = "real"
    if run.provenance.transport == "simulator":
        clock = "virtual"
    entitle(
        figure,
        "Who worked on which version of the model\n"
        f"{experiment.name}: {method_label(experiment.method.name)}, n = {len(rates)}{part}, {clock} time, "
        f"seed {experiment.seed}",
        titled=titled,
    )
    axes = figure.subplots()
    _draw_rounds(figure, axes, rounds, lanes, window)
    _draw_server(figure, axes, run, rounds, window)
    axes.set_yticks(range(len(lanes) + 1), ["server", *(f"client {lane} ({rates[lane]:.3g}/s)" for lane in lanes)])
    axes.tick_params(axis="y", length=0, labelsize="small")
    axes.set_ylim(len(lanes) + 0.6, -0.9)
    axes.set_xlim(*window)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time (s)")
    return figure


def _draw_rounds(
    figure: Figure, axes: Axes, rounds: Sequence[Round], lanes: Sequence[int], window: tuple[float, float]
) -> None:
    """One bar per round, dark where the update was stale, and a thin line up to the server where it arrived.

    A round has its base version where there is room for the number. Its staleness is not known yet where the update
    arrives after the window.
    """
    most = max((one.staleness for one in rounds if one.end_s <= window[1]), default=0)
    # One colour per whole number of steps, so that the legend is exact.
    scale = ScalarMappable(BoundaryNorm(np.arange(-0.5, max(most, 1) + 1.5), colormaps[_COLOURS].N), _COLOURS)
    for one in rounds:
        lane = lanes.index(one.client) + 1
        # Grey: the round has no staleness that means anything.
        colour: tuple[float, ...] = (0.55, 0.55, 0.55, 1.0)
        if one.end_s > window[1]:
            colour = (0.87, 0.87, 0.87, 1.0)
        elif one.used:
            colour = tuple(map(float, scale.to_rgba(np.array(one.staleness))))
        begin_s = max(one.begin_s, window[0])
        end_s = min(one.end_s, window[1])
        axes.barh(lane, end_s - begin_s, left=begin_s, height=0.62, color=colour, edgecolor="white", linewidth=0.6,
                  hatch=None if one.used else "////", zorder=3)  # fmt: skip
        if end_s - begin_s > _room_s(figure, window, one.base_version):
            # Numbers must be readable on dark and on light bars.
            ink = "black"
            if sum(colour[:3]) < 1.5:
                ink = "white"
            axes.text((begin_s + end_s) / 2, lane, str(one.base_version), ha="center", va="center_baseline",
                      color=ink, fontsize="x-small", zorder=4)  # fmt: skip
        if one.end_s <= window[1]:
            axes.plot([one.end_s, one.end_s], [0, lane], color="0.72", linewidth=0.5, zorder=1)
    if most:
        place: dict[str, Any] = {"location": "right", "aspect": 18}
        if is_narrow(figure):
            place = {"location": "bottom", "aspect": 40}
        ticks = _MOST_COLOURS
        if most >= 100:  # whose numbers are wider
            ticks //= 2
        bar = figure.colorbar(scale, ax=axes, ticks=list(range(0, most + 1, -(-most // ticks))), pad=0.02, **place)
        bar.minorticks_off()
        bar.ax.tick_params(length=0, labelsize="small")
        bar.outline.set_visible(False)
        bar.set_label("staleness (server steps)", fontsize="small")


def _room_s(figure: Figure, window: tuple[float, float], version: int) -> float:
    """What the number of a version takes, with some space, in seconds of the axis."""
    letters = len(str(version)) + 1
    return letters * _LETTER_IN * (window[1] - window[0]) / (_ACROSS * figure.get_figwidth())


def _draw_server(figure: Figure, axes: Axes, run: Run, rounds: Sequence[Round], window: tuple[float, float]) -> None:
    """The server's lane: a tick where an update arrived, a square where it stepped, with the new version."""
    colour = method_colour(run.experiment.method.name)
    steps = steps_between(run.events_array, *window)
    arrivals = [one.end_s for one in rounds if one.end_s <= window[1]]
    axes.plot(window, [0, 0], color="0.3", linewidth=0.8, zorder=2)
    axes.plot(arrivals, [0] * len(arrivals), "|", color="0.3", markersize=4, zorder=3)
    mark = "|"
    if len(steps) <= _SQUARES_PER_INCH * figure.get_figwidth():
        mark = "s"
    times_s = [step.time_s for step in steps]
    axes.plot(times_s, [0] * len(steps), mark, color=colour, markersize=4, zorder=4, clip_on=False)
    last_s = -np.inf
    for step in steps:
        if step.time_s - last_s >= _room_s(figure, window, steps[-1].version):  # numbers that do not overlap
            last_s = step.time_s
            axes.annotate(str(step.version), (step.time_s, 0), (0, 4), textcoords="offset points", ha="center",
                          fontsize="x-small", color=colour)  # fmt: skip
