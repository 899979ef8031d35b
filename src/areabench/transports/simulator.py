"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are alive.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

from areabench.checkpoint import Checkpoint, Held, Pending
from areabench.conductor import Conductor
from areabench.config import to_toml
from areabench.evaluation import NoTarget, VirtualWatch
from areabench.messages import AGAIN, Order, Update, UpdateHeader
from areabench.onlookers import Recording
from areabench.removal import Removal
from areabench.scenario import ClientPool, Scenario
from areabench.schema import Status


class Arrival(NamedTuple):
    """An update under way; arrivals compare by time, then by sequence number."""

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
        """Simulate to the end, or to where `pause`, asked before every event, says stop; returns how it ended."""
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
        """Where the run stands."""
        pending = tuple(
            Pending(time_s, sequence, delay_s, order.client) for time_s, sequence, delay_s, order in self._heap
        )
        memories = {number: client.memory for number, client in self._clients.items() if client.memory is not None}
        standing = self._conductor.standing(self._now_s)
        return Checkpoint(to_toml(self._scenario.experiment), standing, memories, pending, self._sequence, held)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""
        standing = checkpoint.standing
        self._resumed, self._now_s, self._sequence = True, standing.time_s, checkpoint.sequence
        orders = {client: flight.order for client, flight in standing.flights_of().items()}
        self._conductor.resume(standing)
        self._heap[:] = [Arrival(*pending[:3], orders[pending.client]) for pending in checkpoint.heap]
        for number, rounds in standing.rounds.items():
            self._clients[number].resume(rounds, checkpoint.memories.get(number))
        for number in range(self._scenario.experiment.clients.count):
            self._delays.skip(number, standing.rounds.get(number, 0) + (number in orders))
        self._losses = self._losses[: len(self._losses) - len(standing.lost)]

    def _lose(self, client: int) -> None:
        """A client is gone, and its update with it."""
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
