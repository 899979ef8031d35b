"""The figures of a diagnosis: its verdict, with rates, delays and what takes time; and the clients' participation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from areabench.engine.diagnosis import TOLERANCE, Cause, Diagnosis
from areabench.engine.fairness import CHANCE
from areabench.experiment.experiment import Experiment
from areabench.experiment.labels import method_colour, method_label
from areabench.results.diagnosis import diagnosis_of
from areabench.runfile.read import Run
from areabench.views.figures.style import (
    LIMIT_LINE,
    Width,
    entitle,
    grid,
    inches,
    label_axes,
    label_log_axis,
    legend,
    paper_style,
)

_BLUE = "#0072B2"
_ORANGE = "#E69F00"
_GREEN = "#009E73"
_PINK = "#CC79A7"
_RED = "#D55E00"
_TIMES = (  # column, label, colour, line
    ("late_s", "late", _RED, "-"),
    ("reply_s", "reply", _BLUE, "-"),
    ("queue_s", "queue wait", _BLUE, (0, (1, 1.5))),
    ("service_s", "service", _BLUE, (0, (6, 1.5))),
    ("compute_s", "computing", _ORANGE, "-"),
)
_ABOVE: dict[str, Any] = {  # between the title and the panel, where it hides nothing
    "frameon": False, "fontsize": "small", "loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": 3,
    "borderaxespad": 0.2,
}  # fmt: skip
_SHORTEST_MS = 1e-3  # times are measured no finer than a microsecond
_BAR_POINTS = 7.0  # the width of a bar of a client; where clients have less room there is one band for all
_NAMED = 24  # clients whose numbers there is room for


def verdict(run: Run, *, width: Width = "page", titled: bool = True) -> Figure:
    """Did the run keep its delays, and what took time? Six panels, two of a simulated run."""
    return draw_diagnosis(diagnosis_of(run), run.experiment, width, titled=titled)


@paper_style()
def draw_diagnosis(found: Diagnosis, experiment: Experiment, width: Width = "page", *, titled: bool = True) -> Figure:
    """Six panels; two of a simulated run, which has no times but its delays."""
    real = found.cause not in (Cause.VIRTUAL, Cause.NOTHING)
    figure, (axes,) = grid(6 if real else 2, inches(width), 3.0, 2.4)
    words = _words(found, experiment)
    if found.stretch != 1:
        words += f", clock.stretch = {found.stretch:g}"
    entitle(figure, f"{words}\n{found.advice}", titled=titled)
    label_axes(axes[0], "clients", "updates/s", "Rates: achieved, and expected with interval", pad=30)
    _draw_clients(axes[0], found, _BLUE, axes[0].get_position().width * inches(width), found.duration_s)
    axes[0].legend(**_ABOVE)
    # Quantiles of realised delays over those of drawn ones: on the diagonal where delays were kept.
    label_axes(axes[1], "drawn delay (ms)", "realised delay (ms)", "Delays: quantiles from 1 to 99.9 %")
    inner = (found.quantiles["share"] >= 1) & (found.quantiles["share"] < 100)
    drawn_ms, realised_ms = (1e3 * found.quantiles[name][inner] for name in ("drawn_s", "realised_s"))
    if len(drawn_ms):
        ends = [min(drawn_ms[0], realised_ms[0]) / 1.3, 1.3 * max(drawn_ms[-1], realised_ms[-1])]
        axes[1].plot(ends, ends, **LIMIT_LINE, zorder=1)
        axes[1].plot(drawn_ms, realised_ms, ".-", color=_BLUE, linewidth=1.2, markersize=4)
        axes[1].set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        label_log_axis(axes[1].xaxis)
        label_log_axis(axes[1].yaxis)
    if real:
        _draw_times(axes[2], found)
        _draw_cycle(axes[3], found)
        _draw_excess(axes[4], found)
        bars = {
            "server": (found.server_load, "0.55"),
            "polling": (found.server_polling, _GREEN),
            "serving": (found.server_serving, _BLUE),
            "busiest rank": (found.busiest_load, _ORANGE),
            "cores": (found.core_load, _PINK),
        }
        _draw_bars(axes[5], bars, 100.0)
        label_axes(axes[5], "share of the time (%)", "", "Load")
    return figure


def _words(found: Diagnosis, experiment: Experiment) -> str:
    method = method_label(experiment.method.name)
    return f"{experiment.name}: {method}, n = {len(found.clients)}, {found.duration_s:g} s"


def _draw_times(axes: Axes, found: Diagnosis) -> None:
    """How many updates were at most so late, answered in so long, and so on."""
    title = "Lateness, reply latency and its parts, computing"
    label_axes(axes, "time (ms)", "share of updates up to it (%)", title, pad=36)
    share = found.quantiles["share"]
    for column, label, colour, line in _TIMES:
        time_ms = np.maximum(1e3 * found.quantiles[column], _SHORTEST_MS)
        if not np.isnan(time_ms).all():
            axes.plot(time_ms, share, color=colour, linestyle=line, linewidth=1.6, label=label)
    axes.set_xscale("log")
    axes.set_ylim(0, 100)
    label_log_axis(axes.xaxis)
    axes.legend(**_ABOVE)


def _draw_cycle(axes: Axes, found: Diagnosis) -> None:
    """The mean delay, and what the mean cycle is made of."""
    reply_s = float(np.nan_to_num(found.mean_reply_s))
    # What is left of the cycle is idle time; rounding must not make it negative.
    rest_s = max(found.mean_realised_s - reply_s - found.mean_compute_s, 0.0)
    parts = (("reply", reply_s, _BLUE), ("computing", found.mean_compute_s, _ORANGE),
             ("idle until due", rest_s, "0.8"))  # fmt: skip
    label_axes(axes, "mean (ms)", "", "What a cycle is made of")
    axes.barh([1], [1e3 * found.mean_drawn_s], color=_GREEN, height=0.55, label="delay drawn")
    left_s = 0.0
    for label, part_s, colour in parts:
        axes.barh([0], [1e3 * part_s], left=1e3 * left_s, color=colour, height=0.55, label=label)
        left_s += part_s
    axes.set_yticks([0, 1], ["cycle", "delay"])
    axes.set_ylim(-0.5, 2.6)
    axes.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)


def _draw_excess(axes: Axes, found: Diagnosis) -> None:
    """By how much cycles are longer than their delays, and why; up to the dashed line a run is delay-bound."""
    parts = {
        "polling": (found.excess_polling_s, _GREEN),
        "serving": (found.excess_server_s, _BLUE),
        "computing": (found.excess_compute_s, _ORANGE),
        "late wake-ups": (found.excess_machine_s, _PINK),
    }
    if math.isnan(found.excess_polling_s):  # it is in the server's part
        parts = {"server": parts.pop("serving"), **parts}
    entries = {"all": (float(np.nansum([value for value, _ in parts.values()])), "0.55"), **parts}
    bars = {name: (100 * value / found.mean_drawn_s, colour) for name, (value, colour) in entries.items()}
    _draw_bars(axes, bars, 100 * TOLERANCE)
    label_axes(axes, "share of the mean delay (%)", "", "Longer than the delay, by what it is due to")


def _draw_bars(axes: Axes, bars: dict[str, tuple[float, str]], limit: float) -> None:
    """Bars from top to bottom with their values, and a limit as a dashed line."""
    # The limit is always in sight, also where all bars are short.
    longest = max(limit, *(np.nan_to_num(value) for value, _ in bars.values()))
    for row, (value, colour) in enumerate(bars.values()):
        known = np.nan_to_num(value)
        text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
        if math.isnan(value):
            text = "not known"
        axes.barh([row], [known], color=colour, height=0.55)
        axes.text(known + 0.015 * longest, row, text, va="center", fontsize="small", color="0.25")
    axes.axvline(limit, **LIMIT_LINE, zorder=1)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * longest)


def participation(run: Run, *, width: Width = "page", titled: bool = True) -> Figure:
    """Updates used of each client, beside how many its rate lets expect and how many chance allows."""
    return draw_participation(diagnosis_of(run), run.experiment, width, titled=titled)


@paper_style()
def draw_participation(
    found: Diagnosis, experiment: Experiment, width: Width = "page", *, titled: bool = True
) -> Figure:
    """Clients across, the one expected to send least first: the expected number with its interval, and the used."""
    width_in = inches(width)
    figure = Figure(figsize=(width_in, 2.6 if width_in > 5 else 3.0), layout="constrained")
    axes = figure.subplots()
    label_axes(axes, "clients, by their expected numbers", "updates used")
    outside = _draw_clients(axes, found, method_colour(experiment.method.name), 0.65 * width_in)
    said = "expectation not known"
    if np.isfinite(found.clients["expected"]).all():
        said = f"{outside} of {len(found.clients)} clients outside the interval"
    entitle(figure, f"Participation: {said}\n{_words(found, experiment)}", titled=titled)
    if len(found.clients) <= _NAMED:
        axes.set_xlabel("client")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend(axes, axes.get_legend_handles_labels()[0])
    return figure


def _draw_clients(axes: Axes, found: Diagnosis, colour: str, width_in: float, per_s: float = 1.0) -> int:
    """Updates of each client, the one expected to send least first, in a panel so wide; how many are outside.

    Outside of what chance allows they are crosses. Numbers are divided by `per_s`.
    """
    clients = found.clients[np.argsort(found.clients["expected"], kind="stable")]
    low, expected, high, served = (clients[name] / per_s for name in ("low", "expected", "high", "served"))
    outside = (served < low) | (served > high)
    place = np.arange(len(clients))
    room = 72 * width_in / len(clients)  # the width of a client in points
    size = min(4.5, 0.8 * room)
    interval = f"interval: {100 * (1 - CHANCE):g} % of runs"
    if room > _BAR_POINTS:
        axes.vlines(place, low, high, color="0.82", linewidth=_BAR_POINTS, zorder=2, label=interval)
        axes.plot(place, expected, "_", color="0.3", markersize=_BAR_POINTS, zorder=3, label="expected")
    else:
        axes.fill_between(place, low, high, step="mid", color="0.85", linewidth=0, zorder=2, label=interval)
        axes.step(place, expected, where="mid", color="0.3", linewidth=0.9, zorder=3, label="expected")
    axes.plot(place[~outside], served[~outside], "o", color=colour, markersize=size, zorder=4, label="used")
    if outside.any():
        axes.plot(place[outside], served[outside], "X", color=_RED, markersize=size + 2, zorder=4, label="outside it")
    if len(clients) <= _NAMED:
        axes.set_xticks(range(len(clients)), [str(client) for client in clients["client"]])
    axes.set_ylim(bottom=0)
    return int(np.count_nonzero(outside))
