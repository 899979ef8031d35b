"""A client's loop in real time: compute inside the drawn delay, send when it is over, stop when told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from areabench.client import Client
from areabench.messages import Flag, OrderHeader, UpdateHeader
from areabench.problems.base import Vector
from areabench.transports.waiting import Backoff

_LONGEST_SLEEP_S = 0.1  # how long a sleeping client may take to notice that it should stop
_LONGEST_POLL_S = 5e-3  # how long a waiting client may take to notice an order


class ClientLink(Protocol):
    """A client's end of the wire."""

    def poll(self) -> OrderHeader | None:
        """The next order if it is here, its model in `model`."""
        ...

    @property
    def model(self) -> Vector:
        """The model of the last order; overwritten once the update has been sent."""
        ...

    def send(self, header: UpdateHeader, payload: Vector) -> None:
        """Send an update; returns at once."""
        ...

    def stopped(self) -> bool:
        """Whether the server has said stop."""
        ...


@dataclass(frozen=True)
class Round:
    """When a round began and when its update is due, on this rank's clock, in seconds."""

    begun_s: float
    delay_s: float

    @property
    def due_s(self) -> float:
        """When the update is to leave."""
        return self.begun_s + self.delay_s


def work(link: ClientLink, client: Client, number: int, next_delay_s: Callable[[], float]) -> None:
    """Answer orders until the server says stop."""
    sent_s = time.perf_counter()
    while (order := _next_order(link)) is not None:
        # The delay is the time between two updates: a reply's latency is a part of it, waiting for a call is not.
        begun_s = sent_s if Flag.REPLY in order.flags else time.perf_counter()
        current = Round(begun_s, next_delay_s())
        base_s, round_number = time.perf_counter(), client.round
        payload = client.work(link.model, order.step_size)
        compute_s = time.perf_counter() - base_s
        overrun = Flag.OVERRUN if time.perf_counter() > current.due_s else Flag.NONE
        if not _sleep_until(current.due_s, link):
            return
        sent_s = time.perf_counter()
        realised_s = sent_s - current.begun_s
        link.send(
            UpdateHeader(number, round_number, order.version, current.delay_s, realised_s, compute_s, overrun), payload
        )


def _next_order(link: ClientLink) -> OrderHeader | None:
    """Wait for an order without burning a core; None when the run is over."""
    backoff, begun_s = Backoff(100e-6, _LONGEST_POLL_S), time.perf_counter()
    while not link.stopped():
        if (order := link.poll()) is not None:
            return order
        waited_s = time.perf_counter() - begun_s
        backoff.pause(max(2e-3, 0.02 * waited_s))  # a reply comes within milliseconds, a call may take seconds
    return None


def _sleep_until(due_s: float, link: ClientLink) -> bool:
    """Sleep to a time of this rank's clock; False when the server said stop meanwhile."""
    while not link.stopped():
        remaining_s = due_s - time.perf_counter()
        if remaining_s <= 0:
            return True
        time.sleep(min(remaining_s, _LONGEST_SLEEP_S))
    return False
