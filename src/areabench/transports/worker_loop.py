"""A worker rank's loop in real time: its clients compute inside their drawn delays and send when these are over."""

from __future__ import annotations

import heapq
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.messages import AGAIN, Flag, Order, UpdateHeader
from areabench.errors import RunFailure, ServerGone
from areabench.transports.clock import Backoff, Clock, Cores

_LONGEST_SLEEP_S = 0.1  # how long a rank whose clients all sleep may take to notice that it should stop
_LONGEST_POLL_S = 5e-3  # how long a rank may take to notice an order
_SHORTEST_POLL_S = 20e-6
_QUICK_REPLY_S, _QUICK_WITH_CORES_S = 0.5e-3, 5e-3
_CROWDED = Cores(spare=False, yielded=False)


class WorkerLink(Protocol):
    """A worker rank's end of the wire, for all clients that it hosts."""

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        """All orders that are here now, or the first that come, waited for without a sleep.

        A model is lent until its client's payload is loaded.
        """
        ...

    def load(self, client: int, payload: Vector) -> None:
        """Keep the outcome of a client's round until it is sent."""
        ...

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded for the header's client; returns at once."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the server has said stop, as far as `orders` has seen."""
        ...

    def questions(self) -> Sequence[tuple[int, int]]:
        """The clients that were asked what they remembered, since the last call, and when which round began."""
        ...

    def answer(self, client: int, memory: Vector) -> None:
        """Tell what a client that was asked remembered."""
        ...


class HostedFailure(RunFailure):
    """An exception in a client's round."""

    def __init__(self, client: int, text: str) -> None:
        super().__init__(text)
        self.client = client


@dataclass
class Seat:
    """A client that a rank hosts, with the delays of its rounds and the time of its last update.

    Where a run is resumed, that is the time at which the delay of the order under way began.
    """

    client: Client
    next_delay_s: Callable[[], float]
    sent_s: float = 0.0


class Given(NamedTuple):
    """An order that nobody has turned to yet, and when it was seen."""

    order: Order
    seen_s: float


class Ready(NamedTuple):
    """A round that is computed and waits for its delay to be over; compares by due time, then by client."""

    due_s: float
    client: int
    begun_s: float
    round: int
    version: int
    delay_s: float
    reply_s: float
    compute_s: float
    flags: Flag


class Worker:
    """One rank and the clients it hosts; all times in seconds of the experiment."""

    def __init__(
        self,
        link: WorkerLink,
        seats: Mapping[int, Seat],
        clock: Clock,
        cores: Cores = _CROWDED,
        server_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link, self._seats, self._clock, self._server_gone = link, seats, clock, server_gone
        self._backoff, self._cores = Backoff(_SHORTEST_POLL_S, _LONGEST_POLL_S), cores
        self._behind, self._replied = False, False  # of the last round: it ended after its delay; its order was a reply
        self._reply_s = 0.0  # real time that the last reply took
        self._given: deque[Given] = deque()
        self._ready: list[Ready] = []
        self._active_s = time.perf_counter()  # real time at which something happened last

    def work(self) -> None:
        """Answer orders until the server says stop."""
        while not self._link.stopped:
            if self._act() | self._look():  # act first: a look may give the core away just when something is due
                self._backoff.reset(self._reply_s / 2)  # in a crowd a look is dear: about two for a reply
                self._active_s = time.perf_counter()
            else:
                self._pause()

    def _look(self) -> bool:
        """Take the orders that are here; returns whether there were any."""
        orders = self._link.orders(wait=self._waits())
        for client, number in self._link.questions():
            memory = self._seats[client].client.memory_at(number)
            assert memory is not None
            self._link.answer(client, memory)
        for order in orders:
            if order.flags is AGAIN:  # now, not when its turn comes: the server counts on it from here
                self._seats[order.client].client.take_back()
            self._given.append(Given(order, self._clock.now_s()))
        return bool(orders)

    def _waits(self) -> bool:
        """Whether to wait for a reply inside MPI, which burns the core or yields it at every look.

        Only where replies are quick and there is no delay to keep, and either no other rank wants the core, or this
        rank is behind, as fast as its messages are, and MPI yields. A call may take long: it is never waited for so.
        """
        if not self._replied or self._ready or self._given:
            return False
        if self._cores.spare:
            return self._reply_s < _QUICK_WITH_CORES_S
        return self._behind and self._cores.yielded and self._reply_s < _QUICK_REPLY_S

    def _act(self) -> bool:
        """Send what is due and compute one round; returns whether there was anything to do."""
        sent, computed = self._send_due(), self._compute_next()
        if computed:
            self._send_due()  # before the next look: it may be due already
        return sent or computed

    def _compute_next(self) -> bool:
        """Compute the round of the order that came first; returns whether there was one."""
        if not self._given:
            return False
        order, seen_s = self._given.popleft()
        seat = self._seats[order.client]
        begun_s, reply_s = self._begin(order, seen_s)
        delay_s, base_s, number = seat.next_delay_s(), self._clock.now_s(), seat.client.round
        self._round(seat.client, order)
        done_s, due_s = self._clock.now_s(), begun_s + delay_s
        self._behind = done_s > due_s
        flags = Flag.OVERRUN if self._behind else Flag.NONE
        times_s = (delay_s, reply_s, done_s - base_s)
        heapq.heappush(self._ready, Ready(due_s, order.client, begun_s, number, order.version, *times_s, flags))
        return True

    def _begin(self, order: Order, seen_s: float) -> tuple[float, float]:
        """When the delay of an order's round begins, and how long its reply took if it is one.

        The delay is the time between two updates: a reply's latency is a part of it, waiting for a call is not. What
        goes out at the start counts from the start, for ranks that share cores take a while to see it.
        """
        sent_s = self._seats[order.client].sent_s
        self._replied = order.flags is Flag.REPLY or order.flags is AGAIN
        if self._replied:
            self._reply_s = self._clock.real_s(seen_s - sent_s)
            return sent_s, seen_s - sent_s
        if order.flags is Flag.RESUMED:
            return sent_s, math.nan
        return (0.0 if order.flags is Flag.FIRST else seen_s), math.nan

    def _round(self, client: Client, order: Order) -> None:
        try:
            self._link.load(order.client, client.work(order.model, order.step_size))
        except Exception as error:  # whatever it is, the server must hear whose it was
            raise HostedFailure(order.client, traceback.format_exc()) from error

    def _send_due(self) -> bool:
        """Send all updates whose delay is over; returns whether there were any."""
        ready, sent = self._ready, False
        while ready and ready[0].due_s <= (now_s := self._clock.now_s()):
            _, client, begun_s, number, version, delay_s, reply_s, compute_s, flags = heapq.heappop(ready)
            self._seats[client].sent_s = now_s
            realised_s = now_s - begun_s
            self._link.send(UpdateHeader(client, number, version, delay_s, realised_s, reply_s, compute_s, flags))
            sent = True
        return sent

    def _pause(self) -> None:
        """Sleep until the next update is due, in short pauses while some client waits for an order."""
        if self._server_gone():
            raise ServerGone("the server's rank or the launcher is gone")
        due_s = self._clock.real_s(self._ready[0].due_s - self._clock.now_s()) if self._ready else math.inf
        if len(self._ready) == len(self._seats):
            time.sleep(max(0.0, min(due_s, _LONGEST_SLEEP_S)))
            return
        waited_s = time.perf_counter() - self._active_s
        limit_s = max(2e-3, 0.02 * waited_s)  # a reply comes within milliseconds, a call may take long
        self._backoff.pause(min(due_s, limit_s))
