"""The timeline of a run: who computed from when to when, from which version, and when the server stepped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.figures.rounds import arrivals_of, beginnings_s
from areabench.reading import Run
from areabench.report.records import Timeline
from areabench.schema import Kind


@dataclass(frozen=True)
class Window:
    """A part of a run, in seconds since its start."""

    begin_s: float = 0.0
    end_s: float = float("inf")


def timeline_of(run: Run, window: Window, most: int) -> Timeline | str:
    """The first `most` updates that came in within the window, or why there are none."""
    if not run.experiment.record.events:
        return "This run kept no event log. Run it with record.events = true to see who sent what when."
    sent = arrivals_of(run.events_array)
    inside = sent[(sent["time_s"] >= window.begin_s) & (sent["time_s"] <= window.end_s)]
    if not len(inside):
        return f"No update came in between {window.begin_s:g} s and {min(window.end_s, run.status.end_s):g} s."
    return _drawn(run, inside[:most], len(sent), window)


def _drawn(run: Run, updates: NDArray[Any], of: int, window: Window) -> Timeline:
    """Times are relative to the window's beginning, so that they keep their digits late in a long run."""
    begin_s, until_s = window.begin_s, float(updates["time_s"][-1])
    step_s, version = steps_shown(run.events_array, updates["base_version"], Window(begin_s, until_s))
    return Timeline(
        begin_s=begin_s,
        until_s=until_s - begin_s,
        run_s=run.status.end_s,
        clients=run.experiment.clients.count,
        shown=len(updates),
        of=of,
        start_s=beginnings_s(updates) - begin_s,
        end_s=updates["time_s"] - begin_s,
        client=updates["client"],
        base=updates["base_version"],
        staleness=updates["staleness"],
        used=(updates["kind"] == Kind.UPDATE).astype(np.int64),
        step_s=step_s - begin_s,
        version=version,
    )


def steps_shown(
    events: NDArray[Any], bases: NDArray[np.int64], window: Window
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When the server made the versions of the window and those that its rounds began from; 0 is there from the start.

    Not all since the oldest of them: a slow client's may lie hundreds of thousands of steps back.
    """
    steps = events[events["kind"] == Kind.STEP]
    inside = (steps["time_s"] >= window.begin_s) & (steps["time_s"] <= window.end_s)
    steps = steps[inside | np.isin(steps["version"], bases)]
    first = [0] if window.begin_s <= 0 or 0 in bases else []
    return np.append(np.array(first, float), steps["time_s"]), np.append(np.array(first, np.int64), steps["version"])
