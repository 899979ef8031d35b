"""A worker rank's loop in real time: its clients compute within their drawn delays and send when these are over."""

from __future__ import annotations

import heapq
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from areabench.arrays import Vector
from areabench.engine.client import Client, LocalRound
from areabench.engine.messages import Flag, Order, UpdateHeader
from areabench.errors import RunFailure, ServerGone
from areabench.methods.base import Work
from areabench.timing.delays import RoundTime
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
    """A client on this rank, with the times of its rounds and the time of its last update.

    Where a run is resumed, that is the time at which the delay of the order in flight began.
    """

    client: Client
    begin_round: Callable[[Order, int], tuple[Order, RoundTime]]  # its local steps, and how long they take
    stepwise: bool = False  # whether it makes its local steps one at a time, so that it can be interrupted
    sent_s: float = 0.0
    current: ActiveRound | None = None  # that is computed or being computed, and not sent yet


class PendingOrder(NamedTuple):
    """An order whose round is not computed yet, and when it was seen."""

    order: Order
    seen_s: float


@dataclass
class ActiveRound:
    """A round that is not sent yet."""

    order: Order
    number: int
    begun_s: float  # when its delay began
    time: RoundTime
    reply_s: float
    compute_s: float = 0.0
    steps: LocalRound | None = None  # None: the local steps are over, and the payload is loaded
    made: int = 0  # local steps of that payload
    behind: bool = False  # whether some of it was computed only after its time

    @property
    def due_s(self) -> float:
        """When something is to be done: the step that was computed ends, or the whole round."""
        if self.steps is None:
            return self.begun_s + self.time.duration_s
        return self.begun_s + self.time.step_end_s(self.steps.work.steps)


class Due(NamedTuple):
    """When a client's round is due; compares by time, then by client. Old entries of a client are skipped."""

    due_s: float
    client: int
    round: int
    steps: int  # local steps made by then; -1 for a whole round


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
        self._due: list[Due] = []  # a heap
        self._stepwise = any(each.stepwise for each in hosted.values())
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
        """Send what is due and begin one round; returns whether there was anything to do."""
        sent, computed = self._handle_due(), self._begin_next()
        if computed:
            self._handle_due()  # the round may be due already
        return sent or computed

    def _handle_due(self) -> bool:
        """Send the updates whose delay is over, and make the next local step of rounds that are made in steps."""
        due, handled = self._due, False
        while due and due[0].due_s <= (now_s := self._clock.now_s()):
            entry = heapq.heappop(due)
            hosted = self._hosted[entry.client]
            current = hosted.current
            if current is None or current.number != entry.round:
                continue  # it was cancelled, or sent when the client was contacted
            handled = True
            if current.steps is None:
                self._send(hosted, now_s)
            elif entry.steps == current.steps.work.steps:
                self._continue(hosted, current)
                return True  # look for messages between local steps
        return handled

    def _send(self, hosted: HostedClient, now_s: float, *, contacted: bool = False) -> None:
        """Send a client's payload, which is loaded, when its delay is over or when the client is contacted."""
        current = hosted.current
        assert current is not None
        realised_s = now_s - current.begun_s
        drawn_s = realised_s if contacted else current.time.duration_s
        order, hosted.current, hosted.sent_s = current.order, None, now_s
        flags = Flag.OVERRUN if current.behind else Flag.NONE
        self._link.send(
            UpdateHeader(
                order.client, current.number, order.version, drawn_s, realised_s, current.reply_s,
                current.compute_s, flags, current.made,
            )
        )  # fmt: skip

    def _begin_next(self) -> bool:
        """Begin the round of the order that came first; returns whether there was one."""
        if not self._pending:
            return False
        self._begin(*self._pending.popleft())
        return True

    def _begin(self, order: Order, seen_s: float) -> None:
        """Begin the round of an order: compute all of it, or its first local step."""
        hosted = self._hosted[order.client]
        delay_begun_s, reply_s = self._begin_delay(order, seen_s)
        client, number, begun_s = hosted.client, hosted.client.round, self._clock.now_s()
        order, round_time = hosted.begin_round(order, number)
        current = hosted.current = ActiveRound(order, number, delay_begun_s, round_time, reply_s)
        with self._computing(order.client):
            if hosted.stepwise and order.local_steps and client.trains:
                current.steps = client.begin(order)
                self._continue(hosted, current)
                return
            current.made = order.local_steps if client.trains else 0
            self._link.load(order.client, client.work(order))
        current.compute_s = self._clock.now_s() - begun_s
        self._expect(current)

    def _continue(self, hosted: HostedClient, current: ActiveRound) -> None:
        """Make the next local step of a round, or end it after the last one."""
        steps, order = current.steps, current.order
        assert steps is not None
        begun_s = self._clock.now_s()
        with self._computing(order.client):
            if steps.work.steps < order.local_steps:
                steps.step()
                current.compute_s += self._clock.now_s() - begun_s
                self._expect(current)
                return
        self._load(hosted, current, steps.work)
        if Flag.WAITS not in order.flags:
            self._send(hosted, self._clock.now_s())

    def _load(self, hosted: HostedClient, current: ActiveRound, work: Work) -> None:
        """End the local steps of a round with `work`, and load its payload."""
        steps, order = current.steps, current.order
        assert steps is not None
        with self._computing(order.client):
            self._link.load(order.client, hosted.client.finish(order, work, computed=steps.work.steps))
        current.steps, current.made = None, work.steps

    def _expect(self, current: ActiveRound) -> None:
        """Note when a round that was computed, or a local step of it, is due; one that waits is never due."""
        due_s, steps = current.due_s, current.steps
        self._behind = self._clock.now_s() > due_s
        current.behind = current.behind or self._behind
        if steps is None and Flag.WAITS in current.order.flags:
            return
        made = -1 if steps is None else steps.work.steps
        heapq.heappush(self._due, Due(due_s, current.order.client, current.number, made))

    @contextmanager
    def _computing(self, client: int) -> Iterator[None]:
        """Compute for a client; the server must be told whose failure it was."""
        try:
            yield
        except ClientRoundFailure:
            raise
        except (Exception, SystemExit) as error:
            raise ClientRoundFailure(client, traceback.format_exc()) from error

    def _begin_delay(self, order: Order, seen_s: float) -> tuple[float, float]:
        """When the delay of an order's round begins, and how long its reply took (NaN where it is no reply).

        The delay is the time between two updates: the latency of a reply is part of it, waiting for a call is not. The
        delay of a first order runs from the start, because ranks that share cores take a while to see it.
        """
        sent_s, flags = self._hosted[order.client].sent_s, order.flags
        self._replied = Flag.REPLY in flags
        if self._replied:
            self._reply_s = self._clock.real_s(seen_s - sent_s)
            return sent_s, seen_s - sent_s
        if Flag.RESUMED in flags:
            return sent_s, math.nan
        return (0.0 if Flag.FIRST in flags else seen_s), math.nan

    def _take_orders(self) -> bool:
        """Take the orders that are here and answer questions about memories; returns whether there were orders."""
        orders = self._link.orders(wait=self._waits_in_mpi())
        for client, number in self._link.questions():
            memory = self._hosted[client].client.memory_at(number)
            assert memory is not None
            self._link.answer(client, memory)
        for order in orders:
            if order.flags is Flag.CANCEL:
                self._cancel(order)
            elif order.flags is Flag.CONTACT:
                self._contact(order)
            else:
                if Flag.AGAIN in order.flags:  # now, not when its turn comes: the server counts on it from here
                    self._hosted[order.client].client.take_back()
                self._pending.append(PendingOrder(order, self._clock.now_s()))
        return bool(orders)

    def _take_pending(self, client: int) -> PendingOrder | None:
        """The order of a client whose round has not begun, if there is one; it is pending no more."""
        for place, pending in enumerate(self._pending):
            if pending.order.client == client:
                del self._pending[place]
                return pending
        return None

    def _cancel(self, order: Order) -> None:
        """Drop a client's round, wherever it is: not begun, under way, or sent. The memory is that from before it."""
        hosted, pending = self._hosted[order.client], self._take_pending(order.client)
        current, hosted.current = hosted.current, None
        if pending is not None:
            begun, _ = hosted.begin_round(pending.order, hosted.client.round)
            hosted.client.cancel(begun)
        elif current is not None and current.steps is not None:
            hosted.client.cancel(current.order, current.steps.work.steps)
        else:
            hosted.client.take_back()

    def _contact(self, order: Order) -> None:
        """Send what a client has: the local steps whose time is over. An update that was sent before is the answer."""
        hosted = self._hosted[order.client]
        if (pending := self._take_pending(order.client)) is not None:
            self._begin(*pending)
        current, now_s = hosted.current, self._clock.now_s()
        if current is None or current.number != order.version:
            return
        if (steps := current.steps) is not None:
            self._load(hosted, current, steps.work if current.due_s <= now_s else steps.before)
        self._send(hosted, now_s, contacted=True)

    def _waits_in_mpi(self) -> bool:
        """Whether to wait for a reply inside MPI, which burns the core or yields it at every look.

        Only where replies are quick and no delay is running, and either no other rank wants the core, or this rank is
        as slow as its messages and MPI yields. A call may take long and is never waited for in this way.
        """
        if not self._replied or self._due or self._pending:
            return False
        if self._cores.spare:
            return self._reply_s < _QUICK_WITH_CORES_S
        return self._behind and self._cores.yielded and self._reply_s < _QUICK_REPLY_S

    def _pause(self) -> None:
        """Sleep until the next update is due, in short pauses while some client waits for an order."""
        if self._server_gone():
            raise ServerGone("the server's rank or the launcher is gone")
        due, clock = self._due, self._clock
        due_s = clock.real_s(due[0].due_s - clock.now_s()) if due else math.inf
        if len(due) == len(self._hosted) and not self._stepwise:
            time.sleep(max(0.0, min(due_s, _LONGEST_SLEEP_S)))
            return
        waited_s = time.perf_counter() - self._active_s
        limit_s = max(2e-3, 0.02 * waited_s)  # a reply comes within milliseconds, a call may take long
        self._backoff.pause(min(due_s, limit_s))
