"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, Recording, divergence
from areabench.engine.evaluation import NoTarget, VirtualWatch, evaluate_models, loss_wanted
from areabench.engine.events import Event, State, Status
from areabench.engine.lanes import LaneClient, LanePass, Part
from areabench.engine.messages import INTERRUPTS, USUAL, Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal
from areabench.engine.state import Tally
from areabench.experiment.parse import to_toml
from areabench.problems.base import Metrics, Problem
from areabench.runfile.checkpoint import Checkpoint, Pending
from areabench.runfile.layout import Held
from areabench.runfile.record import Recorder
from areabench.timing.delays import RoundTime


class Flight(NamedTuple):
    """A client's round with its update in flight; flights compare by time, then by sequence number.

    The update of a client that waits to be contacted is not in flight yet: its time is infinite.
    """

    time_s: float
    sequence: int
    delay_s: float
    made: int  # local steps that the update is made of
    order: Order
    begun_s: float
    round_time: RoundTime


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
        self._heap: list[Flight] = []
        self._interrupted = 0  # flights in it that belong to no round any more
        self._rounds: dict[int, Flight] = {}  # by client
        self._now_s, self._sequence = 0.0, 0
        self._pause = pause
        self._resumed = False
        self._losses = sorted(zip(faults.lost_at_s, faults.lost, strict=True), reverse=True)  # the next one last
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch, self._deliver, self._clock,
            scenario.shapes.payload,
        )  # fmt: skip

    def run(self) -> Status:
        """Simulate to the end, or until `pause`, called before every event, returns a status; returns how it ended."""
        conductor, heap, pause = self._conductor, self._heap, self._pause
        if not self._resumed:
            conductor.start()
        while True:
            arrival_s, timer_s = heap[0].time_s if heap else math.inf, max(conductor.timer_s, self._now_s)
            loss_s = self._losses[-1][0] if self._losses else math.inf
            following_s = min(arrival_s, timer_s, loss_s)
            if following_s == math.inf:
                conductor.require_progress()
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
            if self._interrupted:
                self._drop_interrupted()
            self._progress(self._now_s, conductor.updates)

    def checkpoint(self, held: Held) -> Checkpoint:
        """The state of the run, for a checkpoint."""
        pending = tuple(
            Pending(flight.time_s, flight.sequence, flight.delay_s, client, flight.made)
            for client, flight in self._rounds.items()
            if flight.time_s < math.inf
        )
        memories = {number: client.memory for number, client in self._clients.items() if client.memory is not None}
        run_state = self._conductor.run_state(self._now_s)
        return Checkpoint(to_toml(self._scenario.experiment), run_state, memories, pending, self._sequence, held)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        run_state = checkpoint.run_state
        self._resumed, self._now_s, self._sequence = True, run_state.time_s, checkpoint.sequence
        self._conductor.resume(run_state)
        for number, rounds in run_state.rounds.items():
            steps = run_state.local_steps[number]
            self._clients[number].resume(rounds, steps, checkpoint.memories.get(number))
            self._delays.skip_rounds(number, rounds, steps)
        for number, (order, round_number, since_s) in run_state.orders_by_client().items():
            begun, time = self._scenario.begin_round(self._delays, order, round_number)
            self._rounds[number] = Flight(math.inf, 0, math.inf, 0, begun, since_s, time)
        for time_s, sequence, delay_s, number, made in checkpoint.heap:
            waiting = self._rounds[number]
            self._rounds[number] = flight = Flight(time_s, sequence, delay_s, made, *waiting[4:])
            self._heap.append(flight)
        heapq.heapify(self._heap)
        self._losses = self._losses[: len(self._losses) - len(run_state.lost)]

    def _lose(self, client: int) -> None:
        """A client is lost, and its update with it."""
        conductor = self._conductor
        self._end_round(client)
        conductor.lose([client], self._now_s)
        if conductor.to_remove:
            removal = Removal(conductor.recalled())
            for other in conductor.rounds_under_way:
                memory = self._clients[other].memory
                assert memory is not None
                removal.take(memory)
            conductor.remove(removal.left(self._scenario.problem.dtype), self._now_s)

    def _arrive(self, flight: Flight) -> None:
        """Compute the round of an update that arrives now."""
        order = flight.order
        client = self._clients[order.client]
        del self._rounds[order.client]
        made, delay_s = flight.made if client.trains else 0, flight.delay_s
        header = UpdateHeader(order.client, client.round, order.version, delay_s, delay_s, 0.0, 0.0, Flag.NONE, made)
        payload = client.work(order, flight.made)
        self._conductor.update(Update(header, payload), self._now_s)

    def _deliver(self, order: Order) -> None:
        """A client gets an order, or is interrupted."""
        client, waits = order.client, False
        if order.flags not in USUAL:
            if order.flags in INTERRUPTS:
                self._interrupt(order)
                return
            if Flag.AGAIN in order.flags:
                self._clients[client].take_back()
            waits = Flag.WAITS in order.flags
        order, time = self._scenario.begin_round(self._delays, order, self._conductor.round_of(client))
        now_s, duration_s = self._now_s, time.duration_s
        if waits:
            self._rounds[client] = Flight(math.inf, 0, math.inf, 0, order, now_s, time)
            return
        self._sequence += 1
        self._rounds[client] = flight = Flight(
            now_s + duration_s, self._sequence, duration_s, time.local_steps, order, now_s, time
        )
        heapq.heappush(self._heap, flight)

    def _interrupt(self, order: Order) -> None:
        """A client drops its round, or sends at once what it has."""
        client, now_s, flight = order.client, self._now_s, self._end_round(order.client)
        assert flight is not None
        if order.flags is Flag.CANCEL:
            self._clients[client].cancel(flight.order)
            return
        self._sequence += 1
        elapsed_s = now_s - flight.begun_s
        made = flight.round_time.steps_in(elapsed_s)
        self._rounds[client] = contacted = Flight(now_s, self._sequence, elapsed_s, made, *flight[4:])
        heapq.heappush(self._heap, contacted)

    def _end_round(self, client: int) -> Flight | None:
        """End the round of a client, if there is one, before its update has arrived."""
        flight = self._rounds.pop(client, None)
        self._interrupted += flight is not None and flight.time_s < math.inf
        return flight

    def _drop_interrupted(self) -> None:
        """Drop the next arrivals that belong to no round any more."""
        while self._heap and self._rounds.get(self._heap[0].order.client) is not self._heap[0]:
            heapq.heappop(self._heap)
            self._interrupted -= 1

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


def play_alone(scenario: Scenario, progress: Callable[[float, int], None]) -> LaneEnd | None:
    """Simulate a run to its end, in memory; None where its model is not finite any more."""
    recorder = LaneRecorder(1)
    return recorder.ends(Simulator(scenario, recorder, progress).run())[0]


def play_lanes(lanes: LanePass, progress: Callable[[float, int], None]) -> list[LaneEnd | None]:
    """Simulate all lanes to the end; returns how each ended, None for a lane that must be run again alone."""
    return LaneSimulator(lanes, progress).run()


class LaneSimulator:
    """Many runs on one virtual clock and with the same arrivals; each part of the pass has a conductor."""

    def __init__(self, lanes: LanePass, progress: Callable[[float, int], None]) -> None:
        self._lanes, self._progress = lanes, progress
        self._delays = lanes.scenario.delays()
        self._clients: dict[int, LaneClient] = {}
        self._heap: list[tuple[float, int, float, int]] = []  # time, sequence number, delay, client
        self._orders: dict[int, dict[int, Order]] = {}  # by client and part, of the client's next round
        self._at_work: dict[int, dict[int, Order]] = {}
        self._now_s, self._sequence = 0.0, 0
        self._recorders = [LaneRecorder(part.lanes.stop - part.lanes.start) for part in lanes.parts]
        self._conductors = [self._conductor(place, part) for place, part in enumerate(lanes.parts)]
        self._running = dict(enumerate(self._conductors))

    def _conductor(self, place: int, part: Part) -> Conductor:
        return Conductor(
            part.experiment, part.server(), part.criterion(), self._recorders[place], NoTarget(),
            partial(self._deliver, place), self._clock,
        )  # fmt: skip

    def run(self) -> list[LaneEnd | None]:
        """Simulate to the end of all parts."""
        ends: dict[int, list[LaneEnd | None]] = {}
        for conductor in self._conductors:
            conductor.start()
        while self._running:
            arrival_s = self._heap[0][0] if self._heap else math.inf
            timer_s = max(min([conductor.timer_s for conductor in self._running.values()]), self._now_s)
            following_s = min(arrival_s, timer_s)
            for place, conductor in list(self._running.items()):
                if following_s == math.inf:
                    conductor.require_progress()
                if ended := conductor.ended(following_s):
                    ends[place] = self._recorders[place].ends(conductor.finish(ended))
                    del self._running[place]
            self._now_s = following_s
            if timer_s < arrival_s:
                self._step(timer_s)
            elif self._running:
                self._arrive(*heapq.heappop(self._heap))
        return [end for place in range(len(self._conductors)) for end in ends[place]]

    def _step(self, timer_s: float) -> None:
        """Step by the clock where it is time."""
        for conductor in self._running.values():
            if conductor.timer_s <= timer_s:
                conductor.timer(timer_s)

    def _arrive(self, time_s: float, _sequence: int, delay_s: float, number: int) -> None:
        """A client's updates arrive at the servers of all parts."""
        orders, client = self._at_work.pop(number), self._client(number)
        if len(self._running) < len(orders):
            # A part that has ended gives no more orders; its lanes are computed with the others and not used.
            self._orders[number] = {place: order for place, order in orders.items() if place not in self._running}
        round_number = client.round
        payloads = client.work([orders[place] for place in range(len(orders))])
        for place, conductor in self._running.items():
            order = orders[place]
            header = UpdateHeader(
                number, round_number, order.version, delay_s, delay_s, 0.0, 0.0, Flag.NONE, order.local_steps
            )
            conductor.update(Update(header, payloads[place]), time_s)
        self._progress(time_s, next(iter(self._running.values())).updates)

    def _deliver(self, place: int, order: Order) -> None:
        """A client begins a round when the servers of all parts have given it an order."""
        number = order.client
        waiting = self._orders.setdefault(number, {})
        waiting[place] = order
        if len(waiting) == len(self._lanes.parts):
            self._at_work[number] = self._orders.pop(number)
            delay_s = self._delays.next_s(number)
            self._sequence += 1
            heapq.heappush(self._heap, (self._now_s + delay_s, self._sequence, delay_s, number))

    def _client(self, number: int) -> LaneClient:
        if number not in self._clients:
            self._clients[number] = self._lanes.client(number)
        return self._clients[number]

    def _clock(self) -> float:
        return self._now_s


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
