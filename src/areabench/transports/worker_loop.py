"""A worker rank's loop in real time: its clients compute within their drawn delays and send when these are over."""

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
from areabench.transports.clock import Backoff, Cores, RealClock

_LONGEST_SLEEP_S = 0.1  # how long a rank whose clients all sleep may take to notice a stop
_LONGEST_POLL_S = 5e-3  # how long a rank may take to notice an order
_SHORTEST_POLL_S = 20e-6
_QUICK_REPLY_S, _QUICK_WITH_CORES_S = 0.5e-3, 5e-3
_CROWDED = Cores(spare=False, yielded=False)


class WorkerLink(Protocol):
    """A worker rank's end of the wire, for all clients that it hosts."""

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        """All orders that are here now; with `wait`, the first that come, without a sleep.

        A model is lent until its client's payload is loaded.
        """
        ...

    def load(self, client: int, payload: Vector) -> None:
        """Keep the result of a client's round until it is sent."""
        ...

    def send(self, header: UpdateHeader) -> None:
        """Send what was loaded for the header's client; returns at once."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the server has sent a stop, as far as `orders` has seen."""
        ...

    def questions(self) -> Sequence[tuple[int, int]]:
        """The clients that were asked for their memory since the last call, each with the round that is asked about."""
        ...

    def answer(self, client: int, memory: Vector) -> None:
        """Send the memory of a client that was asked for it."""
        ...


class ClientRoundFailure(RunFailure):
    """An exception in a client's round."""

    def __init__(self, client: int, text: str) -> None:
        super().__init__(text)
        self.client = client


@dataclass
class HostedClient:
    """A client on this rank, with the delays of its rounds and the time of its last update.

    Where a run is resumed, that is the time at which the delay of the order in flight began.
    """

    client: Client
    next_delay_s: Callable[[], float]
    sent_s: float = 0.0


class PendingOrder(NamedTuple):
    """An order whose round is not computed yet, and when it was seen."""

    order: Order
    seen_s: float


class FinishedRound(NamedTuple):
    """A round that is computed and waits for the end of its delay; compares by due time, then by client."""

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
    """One rank and the clients that it hosts; all times in seconds of the experiment unless called real."""

    def __init__(
        self,
        link: WorkerLink,
        hosted: Mapping[int, HostedClient],
        clock: RealClock,
        cores: Cores = _CROWDED,
        server_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._link, self._hosted, self._clock, self._server_gone = link, hosted, clock, server_gone
        self._backoff, self._cores = Backoff(_SHORTEST_POLL_S, _LONGEST_POLL_S), cores
        self._behind = False  # whether the last round was computed only after its delay
        self._replied = False  # whether the last order was a reply
        self._reply_s = 0.0  # real time that the last reply took
        self._pending: deque[PendingOrder] = deque()
        self._finished: list[FinishedRound] = []  # a heap
        self._active_s = time.perf_counter()  # real time at which something happened last

    def work(self) -> None:
        """Answer orders until the server sends a stop."""
        while not self._link.stopped:
            # Orders come last: looking for them may give the core away just when an update is due.
            if self._send_and_compute() | self._take_orders():
                self._backoff.reset(self._reply_s / 2)  # where cores are shared a look is dear: about two per reply
                self._active_s = time.perf_counter()
            else:
                self._pause()

    def _send_and_compute(self) -> bool:
        """Send what is due and compute one round; returns whether there was anything to do."""
        sent, computed = self._send_due(), self._compute_next()
        if computed:
            self._send_due()  # the round may be due already
        return sent or computed

    def _send_due(self) -> bool:
        """Send all updates whose delay is over; returns whether there were any."""
        finished, sent = self._finished, False
        while finished and finished[0].due_s <= (now_s := self._clock.now_s()):
            _, client, begun_s, number, version, delay_s, reply_s, compute_s, flags = heapq.heappop(finished)
            self._hosted[client].sent_s = now_s
            realised_s = now_s - begun_s
            self._link.send(UpdateHeader(client, number, version, delay_s, realised_s, reply_s, compute_s, flags))
            sent = True
        return sent

    def _compute_next(self) -> bool:
        """Compute the round of the order that came first; returns whether there was one."""
        if not self._pending:
            return False
        order, seen_s = self._pending.popleft()
        hosted = self._hosted[order.client]
        delay_begun_s, reply_s = self._begin_delay(order, seen_s)
        delay_s, begun_s, number = hosted.next_delay_s(), self._clock.now_s(), hosted.client.round
        try:
            self._link.load(order.client, hosted.client.work(order.model, order.step_size))
        except (Exception, SystemExit) as error:  # any: the server must be told whose it was
            raise ClientRoundFailure(order.client, traceback.format_exc()) from error
        done_s, due_s = self._clock.now_s(), delay_begun_s + delay_s
        self._behind = done_s > due_s
        flags = Flag.OVERRUN if self._behind else Flag.NONE
        times_s = (delay_s, reply_s, done_s - begun_s)
        finished = FinishedRound(due_s, order.client, delay_begun_s, number, order.version, *times_s, flags)
        heapq.heappush(self._finished, finished)
        return True

    def _begin_delay(self, order: Order, seen_s: float) -> tuple[float, float]:
        """When the delay of an order's round begins, and how long its reply took (NaN where it is no reply).

        The delay is the time between two updates: the latency of a reply is part of it, waiting for a call is not. The
        delay of a first order runs from the start, because ranks that share cores take a while to see it.
        """
        sent_s = self._hosted[order.client].sent_s
        self._replied = order.flags is Flag.REPLY or order.flags is AGAIN
        if self._replied:
            self._reply_s = self._clock.real_s(seen_s - sent_s)
            return sent_s, seen_s - sent_s
        if order.flags is Flag.RESUMED:
            return sent_s, math.nan
        return (0.0 if order.flags is Flag.FIRST else seen_s), math.nan

    def _take_orders(self) -> bool:
        """Take the orders that are here and answer questions about memories; returns whether there were orders."""
        orders = self._link.orders(wait=self._waits_in_mpi())
        for client, number in self._link.questions():
            memory = self._hosted[client].client.memory_at(number)
            assert memory is not None
            self._link.answer(client, memory)
        for order in orders:
            if order.flags is AGAIN:  # now, not when its turn comes: the server counts on it from here
                self._hosted[order.client].client.take_back()
            self._pending.append(PendingOrder(order, self._clock.now_s()))
        return bool(orders)

    def _waits_in_mpi(self) -> bool:
        """Whether to wait for a reply inside MPI, which burns the core or yields it at every look.

        Only where replies are quick and no delay is running, and either no other rank wants the core, or this rank is
        as slow as its messages and MPI yields. A call may take long and is never waited for in this way.
        """
        if not self._replied or self._finished or self._pending:
            return False
        if self._cores.spare:
            return self._reply_s < _QUICK_WITH_CORES_S
        return self._behind and self._cores.yielded and self._reply_s < _QUICK_REPLY_S

    def _pause(self) -> None:
        """Sleep until the next update is due, in short pauses while some client waits for an order."""
        if self._server_gone():
            raise ServerGone("the server's rank or the launcher is gone")
        finished, clock = self._finished, self._clock
        due_s = clock.real_s(finished[0].due_s - clock.now_s()) if finished else math.inf
        if len(finished) == len(self._hosted):
            time.sleep(max(0.0, min(due_s, _LONGEST_SLEEP_S)))
            return
        waited_s = time.perf_counter() - self._active_s
        limit_s = max(2e-3, 0.02 * waited_s)  # a reply comes within milliseconds, a call may take long
        self._backoff.pause(min(due_s, limit_s))
