"""Who worked when, from which version of the model, and when the server stepped: one panel a run file.

python analysis/message_flow.py RUN.h5 ... FIGURE.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from areabench import open_run
from areabench.figures.style import save, styled
from areabench.looks import METHOD_NAMES, method_colour
from areabench.reading import Run
from areabench.schema import Kind

_HEIGHT = 0.5  # of a client's bar, where lanes are 1 apart


class Round(NamedTuple):
    """A client's round: from when its delay began until its update was used, and the model that it started from."""

    client: int
    begin_s: float
    end_s: float
    base_version: int


class Flow(NamedTuple):
    """What happened in a run; `steps_s` holds the times at which version 1, 2, ... of the model came about."""

    method: str
    clients: int
    end_s: float
    rounds: list[Round]
    steps_s: list[float]


def flow_of(run: Run) -> Flow:
    """The rounds and server steps of a run."""
    events = run.events_array
    rounds = [
        Round(int(row["client"]), row["time_s"] - row["realised_delay_s"], row["time_s"], int(row["base_version"]))
        for row in events[events["kind"] == Kind.UPDATE]
    ]
    steps_s = events["time_s"][events["kind"] == Kind.STEP].tolist()
    return Flow(run.experiment.method.name, len(run.clients_array), run.status.end_s, rounds, steps_s)


@styled
def draw_flows(flows: Sequence[Flow]) -> Figure:
    """One panel a run, below each other, on one axis of time."""
    figure = Figure(figsize=(9, 2.4 * len(flows)), layout="constrained")
    panels = figure.subplots(len(flows), 1, sharex=True, squeeze=False)[:, 0]
    for axes, flow in zip(panels, flows, strict=True):
        _lanes(axes, flow)
        for done in flow.rounds:
            _round(axes, done, method_colour(flow.method))
        for version, step_s in enumerate(flow.steps_s, start=1):
            _step(axes, version, step_s)
    panels[-1].set_xlabel("time (s)")
    return figure


def _lanes(axes: Axes, flow: Flow) -> None:
    names = ["server", *(f"client {client}" for client in range(flow.clients))]
    axes.set_yticks([-place for place in range(len(names))], names)
    axes.set_xlim(0, flow.end_s)
    axes.set_ylim(-flow.clients - 0.6, 0.9)
    axes.axhline(0, color="0.6", linewidth=1)
    axes.set_title(METHOD_NAMES.get(flow.method, flow.method), loc="left", fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _round(axes: Axes, done: Round, colour: str) -> None:
    """A bar with the version that the client started from, and its update on the way up."""
    lane, length_s = -1 - done.client, done.end_s - done.begin_s
    axes.barh(lane, length_s, _HEIGHT, done.begin_s, color=colour, alpha=0.25, edgecolor="white", linewidth=2)
    behind = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}  # arrows may pass
    label, middle_s = f"v{done.base_version}", done.begin_s + length_s / 2
    axes.text(middle_s, lane, label, ha="center", va="center", fontsize=8, zorder=4, bbox=behind)
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (done.end_s, 0), (done.end_s, lane + _HEIGHT / 2), arrowprops=arrow)


def _step(axes: Axes, version: int, step_s: float) -> None:
    axes.plot(step_s, 0, marker="D", color="black", markersize=5, clip_on=False)
    axes.text(step_s, 0.25, f"v{version}", ha="center", va="bottom", fontsize=8)


def main(run_files: Sequence[str], figure: str) -> None:
    """Read the runs, draw the figure."""
    flows = []
    for path in run_files:
        with open_run(path) as run:
            flows.append(flow_of(run))
    save(draw_flows(flows), Path(figure))


if __name__ == "__main__":
    main(sys.argv[1:-1], sys.argv[-1])
