"""What a pass over many lanes leaves behind, and how each lane ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from areabench.evaluation import evaluate_models, loss_wanted
from areabench.onlookers import Recording
from areabench.problems.base import Metrics, Problem, Vector
from areabench.recording import Recorder, divergence
from areabench.scenario import Scenario
from areabench.schema import Event, State, Status
from areabench.tally import Tally
from areabench.transports.simulator import Simulator


class Snapshot(NamedTuple):
    """The models of all lanes, or that of one, after the events so far."""

    time_s: float
    version: int
    events: int
    models: Vector  # (lanes, dimension), or (dimension,)
    average: Vector | None = None  # of a run alone, where it is kept


@dataclass(frozen=True)
class LaneEnd:
    """How a lane ended: its status, its counts, and the snapshots it was part of."""

    status: Status
    tally: Tally
    snapshots: tuple[Snapshot, ...]

    def write(self, recorder: Recorder, metrics: Metrics) -> None:
        """Put the lane into a run file of its own."""
        recorder.tally = self.tally
        for snapshot in self.snapshots:
            recorder.snapshot(snapshot.time_s, snapshot.version, snapshot.models, events=snapshot.events)
        recorder.flush()
        recorder.metrics([metrics])
        recorder.set_status(self.status)
        recorder.close()


class LaneRecorder(Recording):
    """Holds what a pass leaves behind, until each lane's file is written; a run alone is a pass of one lane."""

    keeps_events = False

    def __init__(self, lanes: int) -> None:
        self.tally, self.snapshots = Tally(), 0
        self._snapshots: list[Snapshot] = []
        self._diverged: dict[int, LaneEnd] = {}
        self._spoilt: set[int] = set()  # lanes whose model is not finite
        self._lanes = lanes

    def event(self, event: Event) -> None:
        """There is no event log."""

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None) -> None:
        """Keep the models as they are after the events so far; a run with an average shares no pass."""
        self.snapshots += 1
        self._snapshots.append(Snapshot(time_s, version, self.tally.events, np.atleast_2d(model), average))

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot already shows the models at `time_s`, after all events so far."""
        last = self._snapshots[-1] if self._snapshots else None
        return last is not None and (last.time_s, last.events) == (time_s, self.tally.events)

    def relieve(self) -> None:
        """Nothing waits for a disc."""

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far."""
        return self.tally.status(state, reason, end_s)

    def diverged(self, model: Vector, bound: float, iteration: int) -> str:
        """End the lanes whose model is beyond the bound; the pass ends when all have.

        A run alone refuses updates that are not finite, so a lane whose model is not is no run that could be kept.
        """
        models = np.atleast_2d(model)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.vecdot(models, models).astype(np.float64))  # a bound may be beyond float32
        for lane in np.flatnonzero(~(norms <= bound)).tolist():
            if not np.isfinite(models[lane]).all() and self._lanes > 1:
                self._spoilt.add(lane)
            elif lane not in self._diverged:
                reason = divergence(float(norms[lane]), bound, iteration)
                self._diverged[lane] = self._end(lane, self.status(State.DIVERGED, reason), models[lane])
        return "all lanes have diverged" if len(self._diverged.keys() | self._spoilt) == self._lanes else ""

    def _end(self, lane: int, status: Status, model: Vector) -> LaneEnd:
        last = Snapshot(status.end_s, status.server_steps, self.tally.events, model.copy())
        return LaneEnd(status, self.tally.copy(), (*_of_lane(self._snapshots, lane), last))

    def ends(self, status: Status) -> list[LaneEnd | None]:
        """How each lane ended, in a pass that ended with `status`; None for one that must be run again alone."""
        return [self._end_of(lane, status) for lane in range(self._lanes)]

    def _end_of(self, lane: int, status: Status) -> LaneEnd | None:
        if lane in self._diverged:
            return self._diverged[lane]
        if lane in self._spoilt:
            return None
        return LaneEnd(status, self.tally, tuple(_of_lane(self._snapshots, lane)))


def _of_lane(snapshots: Sequence[Snapshot], lane: int) -> list[Snapshot]:
    return [snapshot._replace(models=snapshot.models[lane]) for snapshot in snapshots]


def play_lanes(scenario: Scenario, progress: Callable[[float, int], None]) -> list[LaneEnd | None]:
    """Simulate all lanes to the end; one end a lane, None for one that must be run again alone."""
    recorder = LaneRecorder(len(np.atleast_2d(scenario.start)))
    return recorder.ends(Simulator(scenario, recorder, progress).run())


def evaluate_lanes(problem: Problem, ends: Sequence[LaneEnd], loss_every: int) -> list[Metrics]:
    """Quality of all snapshots of all lanes, together."""
    if not ends:
        return []
    names = [(lane, snapshot.version) for lane, end in enumerate(ends) for snapshot in end.snapshots]
    models = [snapshot.models for end in ends for snapshot in end.snapshots]
    wanted = np.concatenate([loss_wanted(len(end.snapshots), loss_every) for end in ends])
    found = evaluate_models(problem, names, models, wanted)
    stops = np.cumsum([len(end.snapshots) for end in ends])[:-1]
    columns = [np.split(getattr(found, item.name), stops) for item in fields(Metrics)]
    return [Metrics(*parts) for parts in zip(*columns, strict=True)]
