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
from areabench.experiment.labels import method_label
from areabench.results.rounds import (
    Round,
    ServerStep,
    lanes_of,
    rounds_between,
    steps_between,
)
from areabench.runfile.read import Run
from areabench.views.figures.style import entitle, is_narrow, method_style, styled

_ROUNDS_PER_INCH = 5.0
_SQUARES_PER_INCH = 6.0  # of the server's steps; more of them are ticks
_LETTER_IN = 0.07  # of a version's number
_ACROSS = 0.7  # what the lanes have of the width of the figure
_COLOURS = "cividis_r"  # distinguishable by all readers, also in grey: darker is staler
_MOST_COLOURS = 12  # of staleness, with ticks at each


@styled
def draw_timeline(run: Run, start_s: float, end_s: float | None, *, width_in: float) -> Figure:
    """The server's lane on top, one lane per client below it, fastest first; one bar per round, with its version."""
    lanes = lanes_of(run.clients_array["rate"])
    window = (start_s, _end(run, lanes, start_s, width_in) if end_s is None else end_s)
    rounds = _shown_rounds(run, lanes, window)
    figure = Figure(figsize=(width_in, 1.3 + 0.24 * (len(lanes) + 1) + 0.5 * (width_in < 5)), layout="constrained")
    entitle(figure, _title(run, lanes))
    axes = figure.subplots()
    _draw_rounds(axes, rounds, lanes, window)
    _draw_server(axes, run, rounds, window)
    _finish(axes, run, lanes, window)
    return figure


def _end(run: Run, lanes: Sequence[int], start_s: float, width_in: float) -> float:
    """The arrival up to which about as many rounds of these clients fit as the width has room for."""
    rows = run.events_array
    ours = rows["time_s"][(rows["kind"] == Kind.UPDATE) & (rows["time_s"] > start_s) & np.isin(rows["client"], lanes)]
    return float(ours[: int(_ROUNDS_PER_INCH * width_in)][-1]) if len(ours) else run.status.end_s


def _shown_rounds(run: Run, lanes: Sequence[int], window: tuple[float, float]) -> list[Round]:
    if not run.experiment.record.events:
        raise UserError(f"{run.path}: has no event log to draw; run it with record.events=true")
    rounds = [one for one in rounds_between(run.events_array, *window) if one.client in lanes]
    if not rounds or window[0] >= window[1]:
        span = f"from {window[0]:g} to {window[1]:g} s"
        raise UserError(f"{run.path}: no round {span}; the run lasts {run.status.end_s:g} s")
    return rounds


def _title(run: Run, lanes: Sequence[int]) -> str:
    count, experiment = len(run.clients_array), run.experiment
    part = f" ({len(lanes)} shown)" if len(lanes) < count else ""
    clock = "virtual" if run.provenance.transport == "simulator" else "real"
    return (
        "Who worked on which version of the model\n"
        f"{experiment.name}: {method_label(experiment.method.name)}, n = {count}{part}, {clock} time, "
        f"seed {experiment.seed}"
    )


# ---------------------------------------------------------------------------------------------------- drawing


def _draw_rounds(axes: Axes, rounds: Sequence[Round], lanes: Sequence[int], window: tuple[float, float]) -> None:
    """One bar per round, dark where the update was stale, and a thin line up to the server where it arrived."""
    most = max((one.staleness for one in rounds if one.end_s <= window[1]), default=0)
    scale = ScalarMappable(BoundaryNorm(np.arange(-0.5, max(most, 1) + 1.5), colormaps[_COLOURS].N), _COLOURS)
    for one in rounds:
        lane = lanes.index(one.client) + 1
        _draw_round(axes, one, lane, window, _colour(one, window[1], scale))
        if one.end_s <= window[1]:
            axes.plot([one.end_s, one.end_s], [0, lane], color="0.72", linewidth=0.5, zorder=1)
    if most:
        _explain_colours(axes, scale, most)


def _draw_round(axes: Axes, one: Round, lane: int, window: tuple[float, float], colour: tuple[float, ...]) -> None:
    """The part of a round that is in the window, with its base version where there is room for the number."""
    begin_s, end_s = max(one.begin_s, window[0]), min(one.end_s, window[1])
    hatch = None if one.used else "////"
    axes.barh(lane, end_s - begin_s, left=begin_s, height=0.62, color=colour, edgecolor="white", linewidth=0.6,
              hatch=hatch, zorder=3)  # fmt: skip
    if end_s - begin_s > _room_s(axes, window, one.base_version):
        ink = "white" if sum(colour[:3]) < 1.5 else "black"
        axes.text((begin_s + end_s) / 2, lane, str(one.base_version), ha="center", va="center_baseline", color=ink,
                  fontsize="x-small", zorder=4)  # fmt: skip


def _room_s(axes: Axes, window: tuple[float, float], version: int) -> float:
    """What the number of a version takes, with some space, in seconds of the axis."""
    letters = len(str(version)) + 1
    return letters * _LETTER_IN * (window[1] - window[0]) / (_ACROSS * _figure(axes).get_figwidth())


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _colour(one: Round, end_s: float, scale: ScalarMappable) -> tuple[float, ...]:
    """By staleness; pale where it is not known yet, because the update arrives after the window."""
    if one.end_s > end_s:
        return (0.87, 0.87, 0.87, 1.0)
    return tuple(map(float, scale.to_rgba(np.array(one.staleness)))) if one.used else (0.55, 0.55, 0.55, 1.0)


def _explain_colours(axes: Axes, scale: ScalarMappable, most: int) -> None:
    figure = _figure(axes)
    place: dict[str, Any] = {"location": "right", "aspect": 18}
    if is_narrow(figure):
        place = {"location": "bottom", "aspect": 40}
    ticks = range(0, most + 1, max(1, -(-most // (_MOST_COLOURS if most < 100 else _MOST_COLOURS // 2))))
    bar = figure.colorbar(scale, ax=axes, ticks=list(ticks), pad=0.02, **place)
    bar.minorticks_off()
    bar.ax.tick_params(length=0, labelsize="small")
    bar.outline.set_visible(False)
    bar.set_label("staleness (server steps)", fontsize="small")


def _draw_server(axes: Axes, run: Run, rounds: Sequence[Round], window: tuple[float, float]) -> None:
    """The server's lane: a tick where an update arrived, a square where it stepped, with the new version."""
    colour = method_style(run.experiment.method.name).colour
    steps = steps_between(run.events_array, *window)
    arrivals = [one.end_s for one in rounds if one.end_s <= window[1]]
    axes.plot(window, [0, 0], color="0.3", linewidth=0.8, zorder=2)
    axes.plot(arrivals, [0] * len(arrivals), "|", color="0.3", markersize=4, zorder=3)
    mark = "s" if len(steps) <= _SQUARES_PER_INCH * _figure(axes).get_figwidth() else "|"
    times_s = [step.time_s for step in steps]
    axes.plot(times_s, [0] * len(steps), mark, color=colour, markersize=4, zorder=4, clip_on=False)
    for step in _apart(steps, _room_s(axes, window, steps[-1].version if steps else 0)):
        axes.annotate(str(step.version), (step.time_s, 0), (0, 4), textcoords="offset points", ha="center",
                      fontsize="x-small", color=colour)  # fmt: skip


def _apart(steps: Sequence[ServerStep], distance_s: float) -> list[ServerStep]:
    """The steps that are at least so far apart, so that their numbers do not overlap."""
    chosen: list[ServerStep] = []
    for step in steps:
        if not chosen or step.time_s - chosen[-1].time_s >= distance_s:
            chosen.append(step)
    return chosen


def _finish(axes: Axes, run: Run, lanes: Sequence[int], window: tuple[float, float]) -> None:
    rates = run.clients_array["rate"]
    axes.set_yticks(range(len(lanes) + 1), ["server", *(f"client {lane} ({rates[lane]:.3g}/s)" for lane in lanes)])
    axes.tick_params(axis="y", length=0, labelsize="small")
    axes.set_ylim(len(lanes) + 0.6, -0.9)
    axes.set_xlim(*window)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time (s)")
