"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, Recording, TargetWatch, divergence
from areabench.engine.evaluation import NoTarget, VirtualWatch, evaluate_models, loss_wanted, target_met
from areabench.engine.events import EVENT, Event, State, Status
from areabench.engine.lanes import GroupSteps, SharedSteps
from areabench.engine.messages import INTERRUPTS, USUAL, Flag, Order, Update, UpdateHeader, digest
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal, Server
from areabench.engine.state import FirstOrders, Tally
from areabench.experiment.experiment import Stop
from areabench.experiment.files import written_text
from areabench.problems.base import Metrics, Problem
from areabench.runfile.checkpoint import Checkpoint, Pending
from areabench.runfile.layout import ModelsInMemory
from areabench.runfile.record import Recorder
from areabench.threads import limited_threads
from areabench.timing.delays import RoundTime

_NOTHING = Flag.NONE  # looking a flag up takes as long as a short call


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


def first_flights(orders: FirstOrders, durations_s: NDArray[np.float64]) -> Iterator[Flight]:
    """The updates that answer the orders of the start, by the times of their arrival; each is made in its turn."""
    for place in np.argsort(durations_s, kind="stable"):  # ties by sequence number
        order = orders.of(int(orders.clients[place]))
        duration_s = float(durations_s[place])
        yield Flight(duration_s, int(place) + 1, duration_s, order.local_steps, order, 0.0)


class _Group(NamedTuple):
    """A server and its clients: of a run alone, or of lanes that differ in step size only."""

    conductor: Conductor
    clients: ClientPool
    place: int


class Simulator:
    """Runs on one virtual clock, from their start or from a checkpoint: one run, or the groups of a pass of lanes."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recording,
        progress: Callable[[float, int], None],
        pause: Callable[[Simulator], Status | None] | None = None,
        others: Sequence[tuple[Scenario, Recording]] = (),
    ) -> None:
        """`others` are the other groups of a pass: they have the same arrivals, and no faults or checkpoints."""
        self._scenario = scenario = scenario.in_one_process()
        self._progress = progress
        self._pause = pause
        self._delays = scenario.delays()
        self._plain_rounds = scenario.plain_rounds
        self._shared: SharedSteps | None = None
        if scenario.group is not None:
            self._shared = SharedSteps(scenario.problem)
        self._heap: list[Flight] = []
        self._interrupted = 0  # flights in the heap that belong to no round any more
        self._rounds: dict[int, Flight] = {}  # by client
        self._orders: dict[int, dict[int, Order]] = {}  # by client and group, of the rounds under way and to come
        self._now_s = 0.0
        self._sequence = 0
        # The first updates are made in their turn, so that a million clients need no million records: one of them at a
        # time is in the heap.
        self._first: Iterator[Flight] = iter(())
        self._last_first = 0  # their highest sequence number while there are any
        self._resumed = False
        faults = scenario.experiment.faults
        self._losses = sorted(zip(faults.lost_at_s, faults.lost, strict=True), reverse=True)  # the next one last
        self._groups = [self._build_group(place, *each) for place, each in enumerate([(scenario, recorder), *others])]
        self._conductor = self._groups[0].conductor
        self._clients = self._groups[0].clients
        self._running = list(self._groups)
        self.statuses: dict[int, Status] = {}  # of the groups that have ended, by place

    def _build_group(self, place: int, scenario: Scenario, recorder: Recording) -> _Group:
        stop = scenario.experiment.stop
        watch: TargetWatch = NoTarget()
        if scenario.group is None:
            if stop.has_target:
                watch = VirtualWatch(stop, scenario.problem)
            conductor = Conductor(
                scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch, self._deliver,
                self._clock, scenario.shapes.payload, self._deliver_first if self._plain_rounds else None,
            )  # fmt: skip
            return _Group(conductor, ClientPool(scenario), place)
        if stop.has_target:
            assert isinstance(recorder, LaneRecorder)
            watch = LaneWatch(stop, scenario.problem, recorder)
        conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch,
            partial(self._deliver_to_lanes, place), self._clock,
        )  # fmt: skip
        assert self._shared is not None
        return _Group(conductor, ClientPool(scenario, GroupSteps(self._shared, scenario.group.rows)), place)

    @limited_threads()
    def run(self) -> Status:
        """Simulate to the end, or until `pause`, called before every event, returns a status; returns how it ended."""
        heap = self._heap
        running = self._running
        pause = self._pause
        if not self._resumed:
            for group in self._groups:
                group.conductor.start()
        while running:
            lead = running[0].conductor
            calm = heap and heap[0].time_s <= lead.next_check_s and not self._losses  # nearly always
            if calm and (len(running) == 1 or self._is_calm_until(heap[0].time_s)):
                if pause is not None and (stopped := pause(self)):
                    return stopped
                self._arrive(heapq.heappop(heap))
            elif stopped := self._next_event():
                return stopped
            if self._interrupted:
                self._drop_interrupted()
            if running:
                self._progress(self._now_s, lead.updates)
        return self.statuses[0]

    def _is_calm_until(self, time_s: float) -> bool:
        """Whether nothing but arrivals is to be expected until then."""
        return all(time_s <= group.conductor.next_check_s for group in self._running)

    def _next_event(self) -> Status | None:
        """Let happen what comes next: an arrival, a step by the clock, a loss or the end; a status if it pauses."""
        heap = self._heap
        losses = self._losses
        arrival_s = heap[0].time_s if heap else math.inf
        timer_s = max(min(group.conductor.timer_s for group in self._running), self._now_s)
        loss_s = losses[-1][0] if losses else math.inf
        following_s = min(arrival_s, timer_s, loss_s)
        for group in list(self._running):
            if following_s == math.inf:
                group.conductor.require_progress()
            if ended := group.conductor.ended(following_s):
                self.statuses[group.place] = group.conductor.finish(ended)
                self._running.remove(group)
        if not self._running:
            return None
        if self._pause is not None and (stopped := self._pause(self)):
            return stopped
        self._now_s = following_s
        if loss_s == following_s:
            self._lose(losses.pop()[1])
        elif timer_s < arrival_s:
            for group in self._running:
                if group.conductor.timer_s <= timer_s:
                    group.conductor.timer(timer_s)
        else:
            self._arrive(heapq.heappop(heap))
        return None

    @property
    def settled(self) -> bool:
        """Whether a checkpoint can be taken now."""
        return self._conductor.settled

    def checkpoint(self, held: ModelsInMemory) -> Checkpoint:
        """The state of the run, for a checkpoint."""
        self._queue_all_first()
        pending = tuple(
            Pending(flight.time_s, flight.sequence, flight.delay_s, flight.order.client, flight.made)
            for flight in self._rounds.values()
            if flight.time_s < math.inf
        )
        kept = ((number, client.memory_at(client.round)) for number, client in self._clients.items())
        memories = {number: memory for number, memory in kept if memory is not None}
        run_state = self._conductor.run_state(self._now_s)
        return Checkpoint(written_text(self._scenario.experiment), run_state, memories, pending, self._sequence, held)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        run_state = checkpoint.run_state
        self._resumed = True
        self._now_s = run_state.time_s
        self._sequence = checkpoint.sequence
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
        """Compute the round of an update that arrives now, and give it to the servers of all groups."""
        time_s, sequence, delay_s, made, order, _, _ = flight
        number = order.client
        self._now_s = time_s
        del self._rounds[number]
        if sequence <= self._last_first:
            self._queue_next_first()
        orders = None  # of all groups, where there are lanes
        if self._shared is not None:
            orders = self._orders.pop(number)
            in_turn = [orders[place] for place in range(len(orders))]
            self._shared.compute(in_turn, train=self._running[0].clients[number].trains)
            if len(self._running) < len(orders):
                # A group that has ended gives no more orders: its lanes are computed with the others, and not used.
                ended = {place: each for place, each in orders.items() if place in self.statuses}
                self._orders[number] = ended
        for conductor, clients, place in self._running:
            client = clients[number]
            if orders is not None:
                order = orders[place]
            trained = made if client.trains else 0
            header = UpdateHeader(number, client.round, order.version, delay_s, delay_s, 0.0, 0.0, _NOTHING, trained)
            payload = client.work(order, made)
            if client.flags:
                header = header._replace(flags=client.flags)
            conductor.update(Update(header, payload), time_s)
            client.settle()

    def _deliver_first(self, orders: FirstOrders) -> None:
        """Clients get the orders of the start."""
        durations_s = [self._delays.next_s(client) for client in orders.clients.tolist()]
        self._first = first_flights(orders, np.array(durations_s, np.float64))
        self._sequence = self._last_first = len(orders.clients)
        self._queue_next_first()

    def _queue_next_first(self) -> None:
        """The next of the first updates to arrive takes its place among the others."""
        if flight := next(self._first, None):
            self._rounds[flight.order.client] = flight
            heapq.heappush(self._heap, flight)
        else:
            self._last_first = 0

    def _queue_all_first(self) -> None:
        """All first updates take their places, as one of them may be dropped out of turn."""
        while self._last_first:
            self._queue_next_first()

    def _deliver_to_lanes(self, place: int, order: Order) -> None:
        """A client of all lanes begins a round when the servers of all groups have given it an order."""
        orders = self._orders.setdefault(order.client, {})
        orders[place] = order
        if len(orders) == len(self._groups):
            self._deliver(order)

    def _deliver(self, order: Order) -> None:
        """A client gets an order, or is interrupted."""
        client = order.client
        now_s = self._now_s
        flags = order.flags
        if self._plain_rounds and flags in USUAL:
            time = None
            duration_s = self._delays.next_s(client)
            made = order.local_steps
        else:
            if flags in INTERRUPTS:
                self._interrupt(order)
                return
            if Flag.AGAIN in flags:
                self._clients[client].take_back()
            order, time = self._scenario.begin_round(self._delays, order, self._conductor.round_of(client))
            duration_s = time.duration_s
            made = time.local_steps
            if Flag.WAITS in flags:
                self._rounds[client] = Flight(math.inf, 0, math.inf, 0, order, now_s, time)
                return
        self._sequence += 1
        self._rounds[client] = flight = Flight(now_s + duration_s, self._sequence, duration_s, made, order, now_s, time)
        heapq.heappush(self._heap, flight)

    def _interrupt(self, order: Order) -> None:
        """A client drops its round, or sends at once what it has."""
        client = order.client
        now_s = self._now_s
        flight = self._end_round(client)
        assert flight is not None
        if order.flags is Flag.CANCEL:
            self._clients[client].cancel(flight.order)
            return
        self._sequence += 1
        elapsed_s = now_s - flight.begun_s
        time = flight.time or RoundTime(flight.delay_s, flight.made)
        made = time.steps_in(elapsed_s)
        contacted = Flight(now_s, self._sequence, elapsed_s, made, flight.order, flight.begun_s, time)
        self._rounds[client] = contacted
        heapq.heappush(self._heap, contacted)

    def _end_round(self, client: int) -> Flight | None:
        """End the round of a client, if there is one, before its update has arrived."""
        self._queue_all_first()
        flight = self._rounds.pop(client, None)
        self._interrupted += flight is not None and flight.time_s < math.inf
        return flight

    def _drop_interrupted(self) -> None:
        """Drop the next arrivals that belong to no round any more."""
        while self._heap and self._rounds.get(self._heap[0].order.client) is not self._heap[0]:
            dropped = heapq.heappop(self._heap)
            self._interrupted -= 1
            if dropped.sequence <= self._last_first:
                self._queue_next_first()

    def _clock(self) -> float:
        return self._now_s


class Snapshot(NamedTuple):
    """The models of all lanes, or that of one, after the events so far."""

    time_s: float
    version: int
    events: int
    models: Vector  # (lanes, dimension), or (dimension,)
    average: Vector | None = None  # likewise, where it is kept

    def of(self, lane: int) -> Snapshot:
        """That of one lane."""
        one = self._replace(models=self.models[lane])
        if self.average is None:
            return one
        return one._replace(average=self.average[lane])


@dataclass(frozen=True)
class LaneEnd:
    """How a lane ended: its status, its counts, its snapshots and, where they are kept, its events (rows of EVENT)."""

    status: Status
    tally: Tally
    snapshots: tuple[Snapshot, ...]
    events: NDArray[Any]

    def write(self, recorder: Recorder, metrics: Metrics, averages: Metrics | None) -> None:
        """Write the lane to its own run file."""
        recorder.tally = self.tally
        recorder.copy("events", self.events)
        for time_s, version, events, model, average in self.snapshots:
            recorder.snapshot(time_s, version, model, average, events)
        recorder.flush()
        recorder.metrics([metrics], [] if averages is None else [averages])
        recorder.set_status(self.status)
        recorder.close()


class LaneRecorder:
    """Keeps the record of a group of lanes until each lane's file is written; a run alone is a group of one."""

    def __init__(self, lanes: int = 1, *, keeps_events: bool = False) -> None:
        self.tally = Tally()
        self.snapshots = 0
        self.keeps_events = keeps_events
        self.events: list[Event] = []  # of all lanes: step sizes and digests are arrays
        self.running = set(range(lanes))
        self._lanes = lanes
        self._snapshots: list[Snapshot] = []
        self._ended: dict[int, Callable[[], LaneEnd]] = {}
        self._not_finite: set[int] = set()  # lanes with something that is not finite

    def event(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def digest(self, vector: Vector) -> Any:
        """The checksum of a vector, or of each lane's vector in a stack."""
        if self._lanes == 1:
            return digest(vector)
        not_finite = np.flatnonzero(~np.isfinite(vector).all(axis=1)).tolist()
        self._not_finite.update(self.running.intersection(not_finite))
        return np.array([digest(row) for row in vector], np.uint64)

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None = None) -> None:
        """Keep the models after the events so far."""
        self.snapshots += 1
        if average is not None:
            average = np.atleast_2d(average)
        self._snapshots.append(Snapshot(time_s, version, self.tally.events, np.atleast_2d(model), average))

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot already shows the models at `time_s`, after all events so far."""
        last = self._snapshots[-1] if self._snapshots else None
        return last is not None and (last.time_s, last.events) == (time_s, self.tally.events)

    def flush_if_overdue(self) -> None:
        """Nothing is written yet."""

    def diverged(self, server: Server, bound: float) -> str:
        """End the lanes whose model is beyond the bound; the group ends when all have.

        A run alone refuses updates that are not finite, so a lane whose model is not finite must be run alone.
        """
        models = np.atleast_2d(server.model)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.vecdot(models, models).astype(np.float64))  # a bound may be beyond float32
        for lane in self.running.intersection(np.flatnonzero(~(norms <= bound)).tolist()):
            if not np.isfinite(models[lane]).all() and self._lanes > 1:
                self._not_finite.add(lane)
                self.running.discard(lane)
            else:
                reason = divergence(float(norms[lane]), bound, server.iteration)
                average = None if server.average is None else np.atleast_2d(server.average).copy()
                status = self.tally.status(State.DIVERGED, reason)
                last = Snapshot(status.end_s, server.version, self.tally.events, models.copy(), average)
                self.end(lane, status, [last])
        if self.running:
            return ""
        return "all lanes have diverged"

    def end(self, lane: int, status: Status, last: Sequence[Snapshot] = ()) -> None:
        """A lane ends before the others of its group, with these snapshots besides those so far."""
        self.running.discard(lane)
        tally = self.tally.copy()
        snapshots = [*self._snapshots, *last]
        self._ended[lane] = lambda: self._end_of(lane, status, tally, snapshots)

    def ends(self, status: Status) -> list[LaneEnd | None]:
        """How each lane of a group that ended with `status` ended; None for a lane that must be run again alone."""
        for lane in list(self.running):
            self.end(lane, status)
        return [None if lane in self._not_finite else self._ended[lane]() for lane in range(self._lanes)]

    def _end_of(self, lane: int, status: Status, tally: Tally, snapshots: Sequence[Snapshot]) -> LaneEnd:
        rows = np.zeros(tally.events if self.keeps_events else 0, EVENT)
        for number, event in enumerate(self.events[: len(rows)]):
            step_size = np.broadcast_to(event.step_size, self._lanes)[lane]
            checksum = np.broadcast_to(event.digest, self._lanes)[lane]
            rows[number] = event._replace(step_size=step_size, digest=checksum)
        return LaneEnd(status, tally, tuple(snapshot.of(lane) for snapshot in snapshots), rows)


class LaneWatch:
    """Evaluates every snapshot of a group at once, and ends each lane that meets the target."""

    def __init__(self, stop: Stop, problem: Problem, recorder: LaneRecorder) -> None:
        self._stop = stop
        self._problem = problem
        self._recorder = recorder

    def offer(self, time_s: float, model: Vector) -> None:
        """Evaluate a snapshot of all lanes that have not ended."""
        for lane in sorted(self._recorder.running):
            if met := target_met(self._stop, self._problem.evaluate([model[lane]])):
                self._recorder.end(lane, self._recorder.tally.status(State.TARGET, f"{met} at {time_s:g} s", time_s))

    def reached(self) -> str | None:
        """Whether no lane is left."""
        if self._recorder.running:
            return None
        return "all lanes have ended"

    def conclude(self) -> str | None:
        """The lanes that are left have not met the target."""
        return None


def simulate_lanes(scenarios: Sequence[Scenario], progress: Callable[[float, int], None]) -> list[LaneEnd | None]:
    """Simulate the groups of a pass, or a run alone, in memory; how each lane ended, None where it must run alone."""
    recorders = [
        LaneRecorder(each.start.size // each.problem.dimension, keeps_events=each.experiment.record.events)
        for each in scenarios
    ]
    (scenario, recorder), *others = zip(scenarios, recorders, strict=True)
    simulator = Simulator(scenario, recorder, progress, None, others)
    simulator.run()
    return [end for place, each in enumerate(recorders) for end in each.ends(simulator.statuses[place])]


@limited_threads()
def evaluate_lanes(problem: Problem, ends: Sequence[LaneEnd], loss_every: int) -> list[tuple[Metrics, Metrics | None]]:
    """Metrics of all snapshots of each lane, and of the averages where they are kept; all lanes evaluated together."""
    if not ends:
        return []
    wanted = np.concatenate([loss_wanted(len(end.snapshots), loss_every) for end in ends])
    stops = np.cumsum([len(end.snapshots) for end in ends])[:-1]

    def evaluate(names: Sequence[Hashable], vectors: Sequence[Vector]) -> list[Metrics]:
        found = evaluate_models(problem, names, vectors, wanted)
        columns = [np.split(getattr(found, item.name), stops) for item in fields(Metrics)]
        return [Metrics(*parts) for parts in zip(*columns, strict=True)]

    shown = [(lane, snapshot) for lane, end in enumerate(ends) for snapshot in end.snapshots]
    models = evaluate([(lane, snapshot.version) for lane, snapshot in shown], [each.models for _, each in shown])
    averages = [snapshot.average for _, snapshot in shown if snapshot.average is not None]
    if not averages:
        return [(each, None) for each in models]
    return list(zip(models, evaluate(range(len(averages)), averages), strict=True))
