"""The figure of participation: how many updates of each client a run used, and how many chance allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from areabench.diagnosis import Diagnosis
from areabench.experiment import Experiment
from areabench.fairness import CHANCE
from areabench.figures.paper import entitle, legend
from areabench.figures.style import dress, styled
from areabench.looks import method_colour, method_label

_OUTSIDE = "#D55E00"
_BAR_POINTS = 7.0  # the width of a bar; where clients have less room there is one band for all
_NAMED = 24  # clients whose numbers there is room for


def outside(found: Diagnosis) -> NDArray[np.bool_]:
    """Which clients were served less or more than chance allows, shape (clients,); none where that is not known."""
    clients = found.clients
    return np.asarray((clients["served"] < clients["low"]) | (clients["served"] > clients["high"]))


@styled
def draw_participation(found: Diagnosis, experiment: Experiment, *, width_in: float) -> Figure:
    """Clients across, the one expected to send least first: the expected number with its interval, and the used."""
    order, colour = np.argsort(found.clients["expected"], kind="stable"), method_colour(experiment.method.name)
    clients, beyond = found.clients[order], outside(found)[order]
    figure = Figure(figsize=(width_in, 2.6 if width_in > 5 else 3.0), layout="constrained")
    entitle(figure, _title(found, experiment))
    axes = figure.subplots()
    _draw_counts(axes, clients, beyond, colour, 45 * width_in / len(clients))
    named = len(clients) <= _NAMED
    dress(axes, "client" if named else "clients, by their expected numbers", "updates used")
    if named:
        axes.set_xticks(range(len(clients)), [str(client) for client in clients["client"]])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend(axes, _handles(colour, some_outside=bool(beyond.any())))
    return figure


def _draw_counts(axes: Axes, clients: NDArray[Any], beyond: NDArray[np.bool_], colour: str, room: float) -> None:
    """A column a client; `room` is its width in points."""
    place, size = np.arange(len(clients)), min(4.5, 0.8 * room)
    if room > _BAR_POINTS:
        axes.vlines(place, clients["low"], clients["high"], color="0.82", linewidth=_BAR_POINTS, zorder=2)
        axes.plot(place, clients["expected"], "_", color="0.3", markersize=_BAR_POINTS, zorder=3)
    else:
        axes.fill_between(place, clients["low"], clients["high"], step="mid", color="0.85", linewidth=0, zorder=2)
        axes.step(place, clients["expected"], where="mid", color="0.3", linewidth=0.9, zorder=3)
    axes.plot(place[~beyond], clients["served"][~beyond], "o", color=colour, markersize=size, zorder=4)
    axes.plot(place[beyond], clients["served"][beyond], "X", color=_OUTSIDE, markersize=size + 2, zorder=4)


def _handles(colour: str, *, some_outside: bool) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="o", color=colour, linestyle="none", markersize=4.5, label="used"),
        Line2D([], [], marker="_", color="0.3", linestyle="none", markersize=7, label="expected"),
        Patch(color="0.82", label=f"interval: {100 * (1 - CHANCE):g} % of runs"),
    ]
    if some_outside:
        handles.append(
            Line2D([], [], marker="X", color=_OUTSIDE, linestyle="none", markersize=6.5, label="used, outside it")
        )
    return handles


def _title(found: Diagnosis, experiment: Experiment) -> str:
    count, known = int(outside(found).sum()), bool(np.isfinite(found.clients["expected"]).all())
    verdict = f"{count} of {len(found.clients)} clients outside the interval" if known else "expectation not known"
    return (
        f"Participation: {verdict}\n"
        f"{experiment.name}: {method_label(experiment.method.name)}, n = {len(found.clients)}, {found.duration_s:g} s"
    )
