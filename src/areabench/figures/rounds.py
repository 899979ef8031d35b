"""The timeline of a run: who worked on which version of the model and when, and when the server stepped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from areabench.errors import UserError
from areabench.figures.paper import entitle, is_narrow
from areabench.figures.style import look_of, styled
from areabench.looks import method_label
from areabench.reading import Run
from areabench.schema import Kind

_ARRIVALS = (Kind.UPDATE, Kind.DISCARDED, Kind.REFUSED)
_MOST_LANES = 12  # clients that a bar has room for
_ROUNDS_AN_INCH = 5.0
_LETTER_IN = 0.07  # of a version's number
_COLOURS = "cividis_r"  # told apart by all, also in grey: the staler the darker
_MOST_COLOURS = 12  # of staleness, with ticks at each


@dataclass(frozen=True)
class Round:
    """One round of a client: it took version `base_version` at `begin_s`, and its update arrived at `end_s`."""

    client: int
    begin_s: float
    end_s: float
    base_version: int
    staleness: int
    used: bool  # not where the update was refused, or came after the end


@dataclass(frozen=True)
class Step:
    """A step of the server, to this version."""

    time_s: float
    version: int


def rounds_between(events: NDArray[Any], start_s: float, end_s: float) -> list[Round]:
    """All rounds that are under way at some time of the window and that came back, in the order of arrival."""
    rows = events[np.isin(events["kind"], _ARRIVALS)]
    begin_s = rows["time_s"] - rows["realised_delay_s"]
    shown = (rows["time_s"] > start_s) & (begin_s < end_s)
    return [
        Round(int(row["client"]), float(begin), float(row["time_s"]), int(row["base_version"]), int(row["staleness"]),
              bool(row["kind"] == Kind.UPDATE))
        for row, begin in zip(rows[shown], begin_s[shown], strict=True)
    ]  # fmt: skip


def steps_between(events: NDArray[Any], start_s: float, end_s: float) -> list[Step]:
    """The server's steps in the window, both ends included."""
    rows = events[events["kind"] == Kind.STEP]
    shown = rows[(rows["time_s"] >= start_s) & (rows["time_s"] <= end_s)]
    return [Step(float(row["time_s"]), int(row["version"])) for row in shown]


def lanes_of(rates: NDArray[np.float64], most: int = _MOST_LANES) -> list[int]:
    """The clients to show, the fastest first: all, or so many that they run evenly from the fastest to the slowest."""
    order = np.argsort(-rates, kind="stable")
    places = np.arange(len(order)) if len(order) <= most else np.linspace(0, len(order) - 1, most).round().astype(int)
    return [int(client) for client in order[places]]


@styled
def draw_timeline(run: Run, start_s: float, end_s: float | None, *, width_in: float) -> Figure:
    """The server's lane on top, a lane a client below it, the fastest first; a bar a round, with its base version."""
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
    return float(ours[: int(_ROUNDS_AN_INCH * width_in)][-1]) if len(ours) else run.status.end_s


def _shown_rounds(run: Run, lanes: Sequence[int], window: tuple[float, float]) -> list[Round]:
    if not run.experiment.record.events:
        raise UserError(f"{run.path}: has no event log to draw; run it with record.events=true")
    rounds = [one for one in rounds_between(run.events_array, *window) if one.client in lanes]
    if not rounds or window[0] >= window[1]:
        span = f"from {window[0]:g} to {window[1]:g} s"
        raise UserError(f"{run.path}: no round is under way {span}; the run lasts {run.status.end_s:g} s")
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
    """A bar a round, dark where the update was stale, and a thin line up to the server where it arrived."""
    most = max((one.staleness for one in rounds if one.end_s <= window[1]), default=0)
    scale = ScalarMappable(BoundaryNorm(np.arange(-0.5, max(most, 1) + 1.5), colormaps[_COLOURS].N), _COLOURS)
    figure = axes.get_figure(root=True)
    assert figure is not None
    inch = (window[1] - window[0]) / (0.8 * figure.get_figwidth())
    for one in rounds:
        lane, begin_s, end_s = lanes.index(one.client) + 1, max(one.begin_s, window[0]), min(one.end_s, window[1])
        colour = _colour(one, window[1], scale)
        axes.barh(lane, end_s - begin_s, left=begin_s, height=0.62, color=colour, edgecolor="white", linewidth=0.6,
                  hatch=None if one.used else "////", zorder=3)  # fmt: skip
        if one.end_s <= window[1]:
            axes.plot([one.end_s, one.end_s], [0, lane], color="0.72", linewidth=0.5, zorder=1)
        if end_s - begin_s > inch * _LETTER_IN * (len(str(one.base_version)) + 1):
            dark = sum(colour[:3]) < 1.5
            words: dict[str, Any] = {"color": "white" if dark else "black", "fontsize": "x-small", "zorder": 4}
            axes.text((begin_s + end_s) / 2, lane, str(one.base_version), ha="center", va="center_baseline", **words)
    if most:
        _explain_colours(axes, scale, most)


def _colour(one: Round, end_s: float, scale: ScalarMappable) -> tuple[float, ...]:
    """By staleness; pale where it is not known yet, because the update arrives after the window."""
    if one.end_s > end_s:
        return (0.87, 0.87, 0.87, 1.0)
    return tuple(map(float, scale.to_rgba(np.array(one.staleness)))) if one.used else (0.55, 0.55, 0.55, 1.0)


def _explain_colours(axes: Axes, scale: ScalarMappable, most: int) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None
    narrow = is_narrow(figure)
    place: dict[str, Any] = {"location": "bottom", "aspect": 40} if narrow else {"location": "right", "aspect": 18}
    ticks = range(0, most + 1, max(1, -(-most // _MOST_COLOURS)))
    bar = figure.colorbar(scale, ax=axes, ticks=list(ticks), pad=0.02, **place)
    bar.minorticks_off()
    bar.ax.tick_params(length=0, labelsize="small")
    bar.outline.set_visible(False)
    bar.set_label("staleness (server steps)", fontsize="small")


def _draw_server(axes: Axes, run: Run, rounds: Sequence[Round], window: tuple[float, float]) -> None:
    """The server's lane: a tick where an update arrived, a square where it stepped, with the new version."""
    colour = look_of(run.experiment.method.name).colour
    steps = steps_between(run.events_array, *window)
    arrivals = [one.end_s for one in rounds if one.end_s <= window[1]]
    axes.plot(window, [0, 0], color="0.3", linewidth=0.8, zorder=2)
    axes.plot(arrivals, [0] * len(arrivals), "|", color="0.3", markersize=4, zorder=3)
    axes.plot([step.time_s for step in steps], [0] * len(steps), "s", color=colour, markersize=4, zorder=4,
              clip_on=False)  # fmt: skip
    for step in _apart(steps, (window[1] - window[0]) / 24):
        axes.annotate(str(step.version), (step.time_s, 0), (0, 4), textcoords="offset points", ha="center",
                      fontsize="x-small", color=colour)  # fmt: skip


def _apart(steps: Sequence[Step], distance_s: float) -> list[Step]:
    """Those steps that are at least so far apart, so that their numbers do not overlap."""
    chosen: list[Step] = []
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
