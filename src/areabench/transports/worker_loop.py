"""A worker rank's loop in real time: its clients compute within their drawn delays and send when these are over."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

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
_QUICK_REPLY_S = 0.5e-3
_QUICK_WITH_CORES_S = 5e-3
_CROWDED = Cores(spare=False, yielded=False)
_OVERRUN = int(Flag.OVERRUN)
_REPLY = Flag.REPLY  # looking a flag up takes as long as a short call
_FIRST = Flag.FIRST
_CALL = Flag.NONE


class WorkerLink(Protocol):
    """A worker rank's end of the wire, for all clients that it hosts."""

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        """Orders that are here now; with `wait`, the first that come, without a sleep.

        A model is lent until its client's payload is loaded, or another order of the client is here.
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

    def answer(self, question: Order, memory: Vector) -> None:
        """Send the memory of a client that was asked for it; questions are answered in their order."""
        ...


class ClientRoundFailure(RunFailure):
    """An exception in a client's round, made while it is handled: the server must be told whose it was."""

    def __init__(self, client: int) -> None:
        super().__init__(traceback.format_exc())
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
    current: ActiveRound | None = None  # whose order was seen, and that is not sent yet


@dataclass(slots=True)
class ActiveRound:
    """A client's round, from when its order is seen until its update is sent."""

    order: Order
    number: int
    begun_s: float  # when its delay began
    time: RoundTime
    reply_s: float
    waits: bool = False  # to be contacted, however long its delay is over
    begun: bool = False
    compute_s: float = 0.0
    steps: LocalRound | None = None  # under way; None: not begun, or the payload is loaded
    made: int = 0  # local steps of that payload
    flags: int = 0  # whether that payload fits into its range
    behind: bool = False  # whether some of it was computed only after its time

    @property
    def due_s(self) -> float:
        """When something is to be done: the step that was computed ends, or the whole round."""
        if self.steps is None:
            return self.begun_s + self.time.duration_s
        return self.begun_s + self.time.step_end_s(self.steps.work.steps)


Queue = list[tuple[float, int, ActiveRound]]
"""A heap of rounds, ordered by time and then by number. An entry whose round is no longer its client's is skipped."""


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
        self._link = link
        self._hosted = hosted
        self._clock = clock
        self._server_gone = server_gone
        self._backoff = Backoff(_SHORTEST_POLL_S, _LONGEST_POLL_S)
        self._cores = cores
        self._behind = False  # whether the last round was computed only after its delay
        self._replied = False  # whether the last order was a reply
        self._reply_s = 0.0  # real time that the last reply took
        self._pending: Queue = []  # rounds that have not begun, by when they are due
        self._due: Queue = []  # rounds that are computed, or a local step of them, by when that is due
        self._seen = 0  # orders, and steps that are due: the number of the last entry of a queue
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
        sent = bool(self._due) and self._handle_due()
        if not self._pending:
            return sent
        self._begin_next()
        if self._due:
            self._handle_due()  # the round may be due already
        return True

    def _handle_due(self) -> bool:
        """Send the updates whose delay is over, and make the next local step of rounds that are made in steps."""
        due = self._due
        handled = False
        while due and due[0][0] <= (now_s := self._clock.now_s()):
            _, _, current = heappop(due)
            hosted = self._hosted[current.order.client]
            if hosted.current is not current:
                continue  # it was cancelled, or sent when the client was contacted
            handled = True
            if current.steps is None:
                self._send(hosted, current, now_s)
            else:
                self._continue(hosted, current)
                return True  # look for messages between local steps
        return handled

    def _send(self, hosted: HostedClient, current: ActiveRound, now_s: float, *, contacted: bool = False) -> None:
        """Send a client's payload, which is loaded, when its delay is over or when the client is contacted."""
        order = current.order
        hosted.current = None
        hosted.sent_s = now_s
        realised_s = now_s - current.begun_s
        drawn_s = current.time.duration_s
        if contacted:
            drawn_s = realised_s
        self._link.send(
            UpdateHeader(
                order.client, current.number, order.version, drawn_s, realised_s, current.reply_s,
                current.compute_s, current.flags | _OVERRUN if current.behind else current.flags, current.made,
            )
        )  # fmt: skip

    def _begin_next(self) -> None:
        """Begin the round that is due first of those that have not begun."""
        while self._pending:
            _, _, current = heappop(self._pending)
            hosted = self._hosted[current.order.client]
            if hosted.current is current and not current.begun:
                self._begin(hosted, current)
                return

    def _begin(self, hosted: HostedClient, current: ActiveRound) -> None:
        """Begin a round: compute all of it, or its first local step; send it if its time is over by then."""
        order = current.order
        client = hosted.client
        begun_s = self._clock.now_s()
        current.begun = True
        if hosted.stepwise and order.local_steps and client.trains:
            self._begin_steps(hosted, current)
            return
        current.made = order.local_steps if client.trains else 0
        try:
            self._link.load(order.client, client.work(order))
        except (Exception, SystemExit) as error:
            raise ClientRoundFailure(order.client) from error
        current.flags = client.flags
        now_s = self._clock.now_s()
        due_s = current.begun_s + current.time.duration_s
        current.compute_s = now_s - begun_s
        # It is sent here only if no other round waits for its time: `_handle_due` keeps the order of these times.
        if now_s < due_s or current.waits or self._due:
            self._expect(current)
        else:
            self._behind = current.behind = now_s > due_s
            self._send(hosted, current, now_s)

    def _begin_steps(self, hosted: HostedClient, current: ActiveRound) -> None:
        """Begin a round that is made one local step at a time."""
        try:
            current.steps = hosted.client.begin(current.order)
        except (Exception, SystemExit) as error:
            raise ClientRoundFailure(current.order.client) from error
        self._continue(hosted, current)

    def _continue(self, hosted: HostedClient, current: ActiveRound) -> None:
        """Make the next local step of a round, or end it after the last one."""
        steps = current.steps
        order = current.order
        assert steps is not None
        begun_s = self._clock.now_s()
        if steps.work.steps < order.local_steps:
            try:
                steps.step()
            except (Exception, SystemExit) as error:
                raise ClientRoundFailure(order.client) from error
            current.compute_s += self._clock.now_s() - begun_s
            self._expect(current)
            return
        self._load(hosted, current, steps.work)
        if not current.waits:
            self._send(hosted, current, self._clock.now_s())

    def _load(self, hosted: HostedClient, current: ActiveRound, work: Work) -> None:
        """End the local steps of a round with `work`, and load its payload."""
        steps = current.steps
        order = current.order
        assert steps is not None
        try:
            self._link.load(order.client, hosted.client.finish(order, work, computed=steps.work.steps))
        except (Exception, SystemExit) as error:
            raise ClientRoundFailure(order.client) from error
        current.steps = None
        current.made = work.steps
        current.flags = hosted.client.flags

    def _expect(self, current: ActiveRound) -> None:
        """Note when a round that was computed, or a local step of it, is due; one that waits is never due."""
        due_s = current.due_s
        self._behind = self._clock.now_s() > due_s
        current.behind = current.behind or self._behind
        if current.steps is not None or not current.waits:
            self._enqueue(self._due, due_s, current)

    def _enqueue(self, queue: Queue, due_s: float, current: ActiveRound) -> None:
        self._seen += 1
        heappush(queue, (due_s, self._seen, current))

    def _begin_delay(self, order: Order, seen_s: float) -> tuple[float, float]:
        """When the delay of an order's round begins, and how long its reply took (NaN where it is no reply).

        The delay is the time between two updates: the latency of a reply is part of it, waiting for a call is not. The
        delay of a first order runs from the start, because ranks that share cores take a while to see it.
        """
        sent_s = self._hosted[order.client].sent_s
        flags = order.flags
        self._replied = flags is _REPLY or Flag.REPLY in flags
        if self._replied:
            self._reply_s = self._clock.real_s(seen_s - sent_s)
            return sent_s, seen_s - sent_s
        if Flag.RESUMED in flags:
            return sent_s, math.nan
        if Flag.FIRST in flags:
            return 0.0, math.nan
        return seen_s, math.nan

    def _take_orders(self) -> bool:
        """Take the orders that are here, in their order; returns whether there were any."""
        orders = self._link.orders(wait=self._waits_in_mpi())
        for order in orders:
            flags = order.flags
            if flags is _REPLY or flags is _FIRST or flags is _CALL:
                self._take(order)
            elif flags is Flag.CANCEL:
                self._cancel(order)
            elif flags is Flag.CONTACT:
                self._contact(order)
            elif flags is Flag.RECALL:
                self._recall(order)
            else:
                if Flag.AGAIN in flags:  # now, not when its turn comes: the server counts on it from here
                    self._hosted[order.client].client.take_back()
                self._take(order, waits=Flag.WAITS in flags)
        return bool(orders)

    def _take(self, order: Order, *, waits: bool = False) -> None:
        """Draw how long the round of an order takes; it begins when no other is due before it."""
        hosted = self._hosted[order.client]
        delay_begun_s, reply_s = self._begin_delay(order, self._clock.now_s())
        number = hosted.client.round
        order, round_time = hosted.begin_round(order, number)
        current = hosted.current = ActiveRound(order, number, delay_begun_s, round_time, reply_s, waits)
        self._enqueue(self._pending, delay_begun_s + round_time.duration_s, current)

    def _recall(self, question: Order) -> None:
        """Answer a question about a client's memory."""
        memory = self._hosted[question.client].client.memory_at(question.version)
        assert memory is not None
        self._link.answer(question, memory)

    def _cancel(self, order: Order) -> None:
        """Drop a client's round, wherever it is: not begun, under way, or sent. The memory is that from before it."""
        hosted = self._hosted[order.client]
        current = hosted.current
        hosted.current = None
        if current is not None and not current.begun:
            hosted.client.cancel(current.order)
        elif current is not None and current.steps is not None:
            hosted.client.cancel(current.order, current.steps.work.steps)
        else:
            hosted.client.take_back()

    def _contact(self, order: Order) -> None:
        """Send what a client has: the local steps whose time is over. An update that was sent before is the answer."""
        hosted = self._hosted[order.client]
        current = hosted.current
        if current is not None and not current.begun:
            self._begin(hosted, current)
        now_s = self._clock.now_s()
        if current is None or hosted.current is not current or current.number != order.version:
            return
        if (steps := current.steps) is not None:
            self._load(hosted, current, steps.work if current.due_s <= now_s else steps.before)
        self._send(hosted, current, now_s, contacted=True)

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
        due = self._due
        clock = self._clock
        due_s = math.inf
        if due:
            due_s = clock.real_s(due[0][0] - clock.now_s())
        if len(due) == len(self._hosted) and not self._stepwise:
            time.sleep(max(0.0, min(due_s, _LONGEST_SLEEP_S)))
            return
        waited_s = time.perf_counter() - self._active_s
        limit_s = max(2e-3, 0.02 * waited_s)  # a reply comes within milliseconds, a call may take long
        self._backoff.pause(min(due_s, limit_s))
