"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, Recording, divergence
from areabench.engine.evaluation import NoTarget, VirtualWatch, evaluate_models, loss_wanted
from areabench.engine.events import Event, State, Status
from areabench.engine.lanes import LaneClient, LanePass, Part
from areabench.engine.messages import INTERRUPTS, USUAL, Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal
from areabench.engine.state import FirstOrders, Tally
from areabench.problems.base import Metrics, Problem
from areabench.runfile.checkpoint import Checkpoint, Pending
from areabench.runfile.layout import ModelsInMemory
from areabench.runfile.record import Recorder
from areabench.settings.parse import to_toml
from areabench.threads import limited_threads
from areabench.timing.delays import RoundTime

_NOTHING = Flag.NONE  # looking a flag up takes as long as a short call
_AT_ONCE = 1024  # clients that are looked up together


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
    time: RoundTime | None = None  # None: that of a plain round, whose local steps are equally long

    @property
    def round_time(self) -> RoundTime:
        """The time of the round."""
        return self.time or RoundTime(self.delay_s, self.made)


class FirstFlights:
    """The updates that answer the orders of the start, in flight: arrays, until the turn of each has come."""

    def __init__(self, orders: FirstOrders, durations_s: NDArray[np.float64]) -> None:
        self._orders, self._durations_s = orders, durations_s
        self._places = np.full(int(orders.clients.max()) + 1, -1)  # by client; -1: it is not among them any more
        self._places[orders.clients] = np.arange(len(durations_s))
        self._in_turn = self._by_time()

    def _by_time(self) -> Iterator[int]:
        places = np.argsort(self._durations_s, kind="stable")  # ties by sequence number
        for first in range(0, len(places), _AT_ONCE):
            yield from self._orders.clients[places[first : first + _AT_ONCE]].tolist()

    def next(self) -> Flight | None:
        """The one whose turn it is."""
        return next(filter(None, map(self.take, self._in_turn)), None)

    def take(self, client: int) -> Flight | None:
        """That of a client, whosever turn it is."""
        if client >= len(self._places) or (place := int(self._places[client])) < 0:
            return None
        self._places[client] = -1
        return self._flight(client, place)

    def _flight(self, client: int, place: int) -> Flight:
        order, duration_s = self._orders.of(client), float(self._durations_s[place])
        return Flight(duration_s, place + 1, duration_s, order.local_steps, order, 0.0)

    def rest(self) -> Iterator[Flight]:
        """All that are still among them, and stay there."""
        clients = np.flatnonzero(self._places >= 0)
        return map(self._flight, clients.tolist(), self._places[clients].tolist())


class Simulator:
    """One run on virtual time, from its start or from a checkpoint."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recording,
        progress: Callable[[float, int], None],
        pause: Callable[[Simulator], Status | None] | None = None,
    ) -> None:
        scenario = scenario.in_one_process()
        stop, faults = scenario.experiment.stop, scenario.experiment.faults
        watch = VirtualWatch(stop, scenario.problem) if stop.has_target else NoTarget()
        self._scenario, self._progress = scenario, progress
        self._delays, self._plain_rounds = scenario.delays(), scenario.plain_rounds
        self._clients = ClientPool(scenario)
        self._heap: list[Flight] = []
        self._interrupted = 0  # flights in the heap that belong to no round any more
        self._rounds: dict[int, Flight] = {}  # by client
        self._now_s, self._sequence = 0.0, 0
        self._first: FirstFlights | None = None  # all but the next one of these are not in the heap
        self._last_first = 0  # their highest sequence number
        self._pause = pause
        self._resumed = False
        self._losses = sorted(zip(faults.lost_at_s, faults.lost, strict=True), reverse=True)  # the next one last
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch, self._deliver, self._clock,
            scenario.shapes.payload, self._deliver_first if scenario.plain_rounds else None,
        )  # fmt: skip

    @limited_threads()
    def run(self) -> Status:
        """Simulate to the end, or until `pause`, called before every event, returns a status; returns how it ended."""
        conductor, heap, pause, progress = self._conductor, self._heap, self._pause, self._progress
        if not self._resumed:
            conductor.start()
        while True:
            if heap and heap[0].time_s <= conductor.next_check_s and not self._losses:  # nearly always
                if pause is not None and (stopped := pause(self)):
                    return stopped
                self._arrive(heapq.heappop(heap))
            elif ended := self._next_event():
                return ended
            if self._interrupted:
                self._drop_interrupted()
            progress(self._now_s, conductor.updates)

    def _next_event(self) -> Status | None:
        """Let happen what comes next: an arrival, a step by the clock, a loss or the end, whose status is returned."""
        conductor, heap, losses = self._conductor, self._heap, self._losses
        arrival_s, timer_s = heap[0].time_s if heap else math.inf, max(conductor.timer_s, self._now_s)
        loss_s = losses[-1][0] if losses else math.inf
        following_s = min(arrival_s, timer_s, loss_s)
        if following_s == math.inf:
            conductor.require_progress()
        if ended := conductor.ended(following_s):
            return conductor.finish(ended)
        if self._pause is not None and (stopped := self._pause(self)):
            return stopped
        self._now_s = following_s
        if loss_s == following_s:
            self._lose(losses.pop()[1])
        elif timer_s < arrival_s:
            conductor.timer(timer_s)
        else:
            self._arrive(heapq.heappop(heap))
        return None

    @property
    def settled(self) -> bool:
        """Whether a checkpoint can be taken now."""
        return self._conductor.settled

    def checkpoint(self, held: ModelsInMemory) -> Checkpoint:
        """The state of the run, for a checkpoint."""
        flights = chain(self._rounds.values(), self._first.rest() if self._first else ())
        pending = tuple(
            Pending(flight.time_s, flight.sequence, flight.delay_s, flight.order.client, flight.made)
            for flight in flights
            if flight.time_s < math.inf
        )
        kept = ((number, client.memory_at(client.round)) for number, client in self._clients.items())
        memories = {number: memory for number, memory in kept if memory is not None}
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
        time_s, sequence, delay_s, made, order, _, _ = flight
        number, self._now_s = order.client, time_s
        del self._rounds[number]
        if sequence <= self._last_first:
            self._board_first()
        client = self._clients[number]
        trained = made if client.trains else 0
        header = UpdateHeader(number, client.round, order.version, delay_s, delay_s, 0.0, 0.0, _NOTHING, trained)
        payload = client.work(order, made)
        if client.flags:
            header = header._replace(flags=client.flags)
        self._conductor.update(Update(header, payload), time_s)
        client.settle()

    def _deliver_first(self, orders: FirstOrders) -> None:
        """Clients get the orders of the start."""
        durations_s = [self._delays.next_s(client) for client in orders.clients.tolist()]
        self._first = FirstFlights(orders, np.array(durations_s, np.float64))
        self._sequence = self._last_first = len(orders.clients)
        self._board_first()

    def _board_first(self) -> None:
        """The next of the first updates to arrive takes its place among the others."""
        assert self._first is not None
        if flight := self._first.next():
            self._rounds[flight.order.client] = flight
            heapq.heappush(self._heap, flight)
        else:
            self._first, self._last_first = None, 0

    def _deliver(self, order: Order) -> None:
        """A client gets an order, or is interrupted."""
        client, now_s, flags = order.client, self._now_s, order.flags
        if self._plain_rounds and flags in USUAL:
            time, duration_s, made = None, self._delays.next_s(client), order.local_steps
        else:
            if flags in INTERRUPTS:
                self._interrupt(order)
                return
            if Flag.AGAIN in flags:
                self._clients[client].take_back()
            order, time = self._scenario.begin_round(self._delays, order, self._conductor.round_of(client))
            duration_s, made = time.duration_s, time.local_steps
            if Flag.WAITS in flags:
                self._rounds[client] = Flight(math.inf, 0, math.inf, 0, order, now_s, time)
                return
        self._sequence += 1
        self._rounds[client] = flight = Flight(now_s + duration_s, self._sequence, duration_s, made, order, now_s, time)
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
        self._rounds[client] = contacted = Flight(
            now_s, self._sequence, elapsed_s, made, flight.order, flight.begun_s, flight.round_time
        )
        heapq.heappush(self._heap, contacted)

    def _end_round(self, client: int) -> Flight | None:
        """End the round of a client, if there is one, before its update has arrived."""
        if self._first and (first := self._first.take(client)):
            return first
        flight = self._rounds.pop(client, None)
        self._interrupted += flight is not None and flight.time_s < math.inf
        return flight

    def _drop_interrupted(self) -> None:
        """Drop the next arrivals that belong to no round any more."""
        while self._heap and self._rounds.get(self._heap[0].order.client) is not self._heap[0]:
            dropped = heapq.heappop(self._heap)
            self._interrupted -= 1
            if dropped.sequence <= self._last_first:
                self._board_first()

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

    def flush_if_overdue(self) -> None:
        """Nothing is written yet."""

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
                self._diverged[lane] = self._end(lane, self.tally.status(State.DIVERGED, reason), models[lane])
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


@limited_threads()
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
            if arrival_s <= self._next_check_s:  # nearly always
                self._arrive(*heapq.heappop(self._heap))
                continue
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

    @property
    def _next_check_s(self) -> float:
        """Until when nothing but arrivals is to be expected."""
        return min([conductor.next_check_s for conductor in self._running.values()])

    def _step(self, timer_s: float) -> None:
        """Step by the clock where it is time."""
        for conductor in self._running.values():
            if conductor.timer_s <= timer_s:
                conductor.timer(timer_s)

    def _arrive(self, time_s: float, _sequence: int, delay_s: float, number: int) -> None:
        """A client's updates arrive at the servers of all parts."""
        self._now_s = time_s
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


@limited_threads()
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
