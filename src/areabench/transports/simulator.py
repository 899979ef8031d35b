"""The simulator: virtual seconds, an event heap, ties by sequence number. The same seed gives the same bits.

A client's round is computed when its update arrives, so only models still in use are alive.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

from areabench.conductor import Conductor, Recording
from areabench.evaluation import NoTarget, VirtualWatch
from areabench.messages import Order, Update, UpdateHeader
from areabench.scenario import ClientPool, Scenario
from areabench.schema import Status


class Arrival(NamedTuple):
    """An update under way; arrivals compare by time, then by sequence number."""

    time_s: float
    sequence: int
    delay_s: float
    order: Order


class Simulator:
    """One run on virtual time."""

    def __init__(self, scenario: Scenario, recorder: Recording, progress: Callable[[float, int], None]) -> None:
        stop = scenario.experiment.stop
        watch = VirtualWatch(stop, scenario.problem) if stop.has_target else NoTarget()
        self._scenario, self._progress = scenario, progress
        self._delays = scenario.delays()
        self._clients = ClientPool(scenario)
        self._heap: list[Arrival] = []
        self._now_s, self._sequence = 0.0, 0
        self._conductor = Conductor(
            scenario.experiment, scenario.server(), scenario.criterion(), recorder, watch, self._dispatch, self._clock
        )

    def run(self) -> Status:
        """Simulate to the end; returns how it ended."""
        conductor, heap = self._conductor, self._heap
        conductor.start()
        while True:
            arrival_s, timer_s = heap[0].time_s if heap else math.inf, conductor.timer_s
            following_s = min(arrival_s, timer_s)
            if ended := conductor.ended(following_s):
                return conductor.finish(ended)
            self._now_s = following_s
            if timer_s < arrival_s:
                conductor.timer(timer_s)
            else:
                self._arrive(heapq.heappop(heap))
            self._progress(self._now_s, conductor.updates)

    def _arrive(self, arrival: Arrival) -> None:
        order = arrival.order
        client = self._clients[order.client]
        header = UpdateHeader(order.client, client.round, order.version, arrival.delay_s, arrival.delay_s)
        payload = client.work(order.model, order.step_size)
        self._conductor.update(Update(header, payload), self._now_s)

    def _dispatch(self, order: Order) -> None:
        delay_s = self._delays.next_s(order.client)
        self._sequence += 1
        heapq.heappush(self._heap, Arrival(self._now_s + delay_s, self._sequence, delay_s, order))

    def _clock(self) -> float:
        return self._now_s
