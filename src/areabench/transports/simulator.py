"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, Recording, divergence
from areabench.engine.evaluation import NoTarget, VirtualWatch, evaluate_models, loss_wanted
from areabench.engine.events import Event, State, Status
from areabench.engine.messages import AGAIN, Order, Update, UpdateHeader
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal
from areabench.engine.state import Tally
from areabench.experiment.parse import to_toml
from areabench.problems.base import Metrics, Problem
from areabench.runfile.checkpoint import Checkpoint, Pending
from areabench.runfile.layout import Held
from areabench.runfile.record import Recorder


class Arrival(NamedTuple):
    """An update in flight; arrivals compare by time, then by sequence number."""

    time_s: float
    sequence: int
    delay_s: float
    order: Order


class Simulator:
    """One run on virtual time, from its start or from a checkpoint."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recording,
        progress: Callable[[float, int], None],
        pause: Callable[[Simulator], Status | None] | None = None,
    ) -> None:
        stop, faults = scenario.experiment.stop, scenario.experiment.faults
        watch = VirtualWatch(stop, scenario.problem) if stop.has_target else NoTarget()
        self._scenario, self._progress = scenario, progress
        self._delays = scenario.delays()
        self._clients = ClientPool(scenario)
        self._heap: list[Arrival] = []
        self._now_s, self._sequence = 0.0, 0
        self._pause = pause
        self._resumed = False
        self._losses = sorted(zip(faults.lost_at_s, faults.lost, strict=True), reverse=True)  # the next one last
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch, self._dispatch, self._clock
        )

    def run(self) -> Status:
        """Simulate to the end, or until `pause`, called before every event, returns a status; returns how it ended."""
        conductor, heap, pause = self._conductor, self._heap, self._pause
        if not self._resumed:
            conductor.start()
        while True:
            arrival_s, timer_s = heap[0].time_s if heap else math.inf, conductor.timer_s
            loss_s = self._losses[-1][0] if self._losses else math.inf
            following_s = min(arrival_s, timer_s, loss_s)
            if ended := conductor.ended(following_s):
                return conductor.finish(ended)
            if pause is not None and (stopped := pause(self)):
                return stopped
            self._now_s = following_s
            if loss_s == following_s:
                self._lose(self._losses.pop()[1])
            elif timer_s < arrival_s:
                conductor.timer(timer_s)
            else:
                self._arrive(heapq.heappop(heap))
            self._progress(self._now_s, conductor.updates)

    def checkpoint(self, held: Held) -> Checkpoint:
        """The state of the run, for a checkpoint."""
        pending = tuple(
            Pending(time_s, sequence, delay_s, order.client) for time_s, sequence, delay_s, order in self._heap
        )
        memories = {number: client.memory for number, client in self._clients.items() if client.memory is not None}
        run_state = self._conductor.run_state(self._now_s)
        return Checkpoint(to_toml(self._scenario.experiment), run_state, memories, pending, self._sequence, held)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        run_state = checkpoint.run_state
        self._resumed, self._now_s, self._sequence = True, run_state.time_s, checkpoint.sequence
        orders = {client: open_order.order for client, open_order in run_state.orders_by_client().items()}
        self._conductor.resume(run_state)
        self._heap[:] = [Arrival(*pending[:3], orders[pending.client]) for pending in checkpoint.heap]
        for number, rounds in run_state.rounds.items():
            self._clients[number].resume(rounds, checkpoint.memories.get(number))
        for number in range(self._scenario.experiment.clients.count):
            self._delays.skip(number, run_state.rounds.get(number, 0) + (number in orders))
        self._losses = self._losses[: len(self._losses) - len(run_state.lost)]

    def _lose(self, client: int) -> None:
        """A client is lost, and its update with it."""
        conductor = self._conductor
        self._heap[:] = [arrival for arrival in self._heap if arrival.order.client != client]
        heapq.heapify(self._heap)
        conductor.lose([client], self._now_s)
        if conductor.to_remove:
            removal = Removal(conductor.recalled())
            for other in conductor.rounds_under_way:
                memory = self._clients[other].memory
                assert memory is not None
                removal.take(memory)
            conductor.remove(removal.left(self._scenario.problem.dtype), self._now_s)

    def _arrive(self, arrival: Arrival) -> None:
        order = arrival.order
        client = self._clients[order.client]
        header = UpdateHeader(order.client, client.round, order.version, arrival.delay_s, arrival.delay_s)
        payload = client.work(order.model, order.step_size)
        self._conductor.update(Update(header, payload), self._now_s)

    def _dispatch(self, order: Order) -> None:
        if order.flags is AGAIN:
            self._clients[order.client].take_back()
        delay_s = self._delays.next_s(order.client)
        self._sequence += 1
        heapq.heappush(self._heap, Arrival(self._now_s + delay_s, self._sequence, delay_s, order))

    def _clock(self) -> float:
        return self._now_s


class Snapshot(NamedTuple):
    """The models of all lanes, or that of one, after the events so far."""

    time_s: float
    version: int
    events: int
    models: Vector  # (lanes, dimension), or (dimension,)
    average: Vector | None = None  # of a run alone that keeps it


@dataclass(frozen=True)
class LaneEnd:
    """How a lane ended: its status, its counts and its snapshots."""

    status: Status
    tally: Tally
    snapshots: tuple[Snapshot, ...]

    def write(self, recorder: Recorder, metrics: Metrics) -> None:
        """Write the lane to its own run file."""
        recorder.tally = self.tally
        for snapshot in self.snapshots:
            recorder.snapshot(snapshot.time_s, snapshot.version, snapshot.models, events=snapshot.events)
        recorder.flush()
        recorder.metrics([metrics])
        recorder.set_status(self.status)
        recorder.close()


class LaneRecorder(Recording):
    """Keeps the record of a pass until each lane's file is written; a run alone is a pass of one lane."""

    keeps_events = False

    def __init__(self, lanes: int) -> None:
        self.tally, self.snapshots = Tally(), 0
        self._snapshots: list[Snapshot] = []
        self._diverged: dict[int, LaneEnd] = {}
        self._not_finite: set[int] = set()  # lanes whose model is not finite
        self._lanes = lanes

    def event(self, event: Event) -> None:
        """There is no event log."""

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None) -> None:
        """Keep the models after the events so far; a run with an average is never one of several lanes."""
        self.snapshots += 1
        self._snapshots.append(Snapshot(time_s, version, self.tally.events, np.atleast_2d(model), average))

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot already shows the models at `time_s`, after all events so far."""
        last = self._snapshots[-1] if self._snapshots else None
        return last is not None and (last.time_s, last.events) == (time_s, self.tally.events)

    def relieve(self) -> None:
        """Nothing is written yet."""

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far."""
        return self.tally.status(state, reason, end_s)

    def diverged(self, model: Vector, bound: float, iteration: int) -> str:
        """End the lanes whose model is beyond the bound; the pass ends when all have.

        A run alone refuses updates that are not finite, so a lane whose model is not finite must be run alone.
        """
        models = np.atleast_2d(model)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.vecdot(models, models).astype(np.float64))  # a bound may be beyond float32
        for lane in np.flatnonzero(~(norms <= bound)).tolist():
            if not np.isfinite(models[lane]).all() and self._lanes > 1:
                self._not_finite.add(lane)
            elif lane not in self._diverged:
                reason = divergence(float(norms[lane]), bound, iteration)
                self._diverged[lane] = self._end(lane, self.status(State.DIVERGED, reason), models[lane])
        return "all lanes have diverged" if len(self._diverged.keys() | self._not_finite) == self._lanes else ""

    def _end(self, lane: int, status: Status, model: Vector) -> LaneEnd:
        last = Snapshot(status.end_s, status.server_steps, self.tally.events, model.copy())
        return LaneEnd(status, self.tally.copy(), (*_of_lane(self._snapshots, lane), last))

    def ends(self, status: Status) -> list[LaneEnd | None]:
        """How each lane of a pass that ended with `status` ended; None for a lane that must be run again alone."""
        return [self._end_of(lane, status) for lane in range(self._lanes)]

    def _end_of(self, lane: int, status: Status) -> LaneEnd | None:
        if lane in self._diverged:
            end = self._diverged[lane]
            whole = tuple(_of_lane(self._snapshots, lane))  # of a run alone, with the last one's average
            return end if self._lanes > 1 else replace(end, snapshots=whole)
        if lane in self._not_finite:
            return None
        return LaneEnd(status, self.tally, tuple(_of_lane(self._snapshots, lane)))


def _of_lane(snapshots: Sequence[Snapshot], lane: int) -> list[Snapshot]:
    return [snapshot._replace(models=snapshot.models[lane]) for snapshot in snapshots]


def play_lanes(scenario: Scenario, progress: Callable[[float, int], None]) -> list[LaneEnd | None]:
    """Simulate all lanes to the end; returns how each ended, None for a lane that must be run again alone."""
    recorder = LaneRecorder(len(np.atleast_2d(scenario.start)))
    return recorder.ends(Simulator(scenario, recorder, progress).run())


def evaluate_lanes(problem: Problem, ends: Sequence[LaneEnd], loss_every: int) -> list[Metrics]:
    """Metrics of all snapshots of all lanes, evaluated together."""
    if not ends:
        return []
    names = [(lane, snapshot.version) for lane, end in enumerate(ends) for snapshot in end.snapshots]
    models = [snapshot.models for end in ends for snapshot in end.snapshots]
    wanted = np.concatenate([loss_wanted(len(end.snapshots), loss_every) for end in ends])
    found = evaluate_models(problem, names, models, wanted)
    stops = np.cumsum([len(end.snapshots) for end in ends])[:-1]
    columns = [np.split(getattr(found, item.name), stops) for item in fields(Metrics)]
    return [Metrics(*parts) for parts in zip(*columns, strict=True)]
