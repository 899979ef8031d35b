"""Repetition: simulate a run again that kept no event log, in as many lanes as then, and compare what it left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from areabench.errors import RunFileError
from areabench.lane_recorder import LaneEnd, play_lanes
from areabench.lanes import lane_scenario
from areabench.messages import digest
from areabench.reading import Run
from areabench.scenario import Scenario
from areabench.schema import SNAPSHOT, State
from areabench.transports.replay import Difference, Outcome


def repeat(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> Outcome:
    """Simulate the run again; the other lanes of its pass do not matter, but how many there were does."""
    lanes, lane = run.provenance.lanes, run.provenance.lane
    if run.provenance.transport != "simulator":
        raise RunFileError(
            f"{run.path}: has no event log to replay, and real time does not repeat itself; run it with "
            "record.events=true"
        )
    if run.status.state in (State.RUNNING, State.FAILED):
        raise RunFileError(
            f"{run.path}: is {run.status.state.text} and has no event log, so there is nothing to compare; run it again"
        )
    if lanes > 1:
        scenario = lane_scenario(scenario, [run.experiment] * lanes)
    with np.errstate(over="ignore", invalid="ignore"):
        end = play_lanes(scenario, progress)[lane]
    if end is None:
        return Outcome(0, 0, Difference(0, "the model is not finite any more in the same pass"))
    difference = _snapshots(run, end) or _average(run, end) or _counts(run, end)
    return Outcome(end.tally.events, len(end.snapshots), difference)


def _snapshots(run: Run, end: LaneEnd) -> Difference | None:
    """The first snapshot that differs, by time, version, events and checksum."""
    rows = [(*snapshot[:3], digest(snapshot.models)) for snapshot in end.snapshots]
    recorded, repeated = run.snapshot_index, np.array(rows, dtype=SNAPSHOT)
    for number, (old, new) in enumerate(zip(recorded, repeated, strict=False)):
        if old != new:
            return Difference(int(new["event"]), f"snapshot {number} is {new}, recorded {old}")
    if len(recorded) != len(repeated):
        return Difference(end.tally.events, f"{len(repeated)} snapshots, recorded {len(recorded)}")
    return None


def _average(run: Run, end: LaneEnd) -> Difference | None:
    """Whether the last average differs, where averages are kept."""
    average = end.snapshots[-1].average
    if average is None or run.averages[-1].tobytes() == average.tobytes():
        return None
    return Difference(end.tally.events, "the average at the end differs")


def _counts(run: Run, end: LaneEnd) -> Difference | None:
    """Whether the status or the counts differ."""
    if run.status != end.status:
        return Difference(end.tally.events, f"status {end.status}, recorded {run.status}")
    if not np.array_equal(run.staleness, end.tally.staleness):
        return Difference(end.tally.events, "how stale the updates were")
    if not np.array_equal(run.served, end.tally.served(len(run.served))):
        return Difference(end.tally.events, "whose updates were used")
    return None
