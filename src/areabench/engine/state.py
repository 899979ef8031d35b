"""The state of a run between two events: what the server knows, which orders are open, and what was counted.

`RunState` is everything that a run is resumed from, except what the clients remember.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.events import Kind, Reason, State, Status
from areabench.engine.messages import Flag, Order, Update

_UPDATE = int(Kind.UPDATE)
_OUTSIDE = int(Flag.OUTSIDE)


class OpenOrder(NamedTuple):
    """An order that a client works on, which of its rounds that is, and since when (seconds since the start)."""

    order: Order
    round: int
    since_s: float


class FirstOrders:
    """The orders of the start where they are alike but for the client; each is made when it is asked for."""

    def __init__(self, order: Order, clients: NDArray[np.int64]) -> None:
        self._order = order
        self.clients = clients

    def __iter__(self) -> Iterator[Order]:
        """All of them."""
        return map(self.of, self.clients.tolist())

    def of(self, client: int) -> Order:
        """That of a client."""
        return self._order._replace(client=client)


class OpenOrders:
    """All open orders: a client works on one, and others wait for it in a queue.

    Those of the start may be kept as one until each is asked for, so that a million clients need no million records.
    """

    def __init__(self) -> None:
        self.out: dict[int, OpenOrder] = {}  # without those of the start that have no record yet
        self._first: FirstOrders | None = None
        self._unrecorded = np.zeros(0, np.bool_)  # by client, whether its order is one of these
        self.queued: dict[int, deque[Order]] = {}
        self.rounds: dict[int, int] = {}  # that each client has ended
        self.local_steps: dict[int, int] = {}  # that these rounds took of the client's samples

    def begin(self, order: Order, time_s: float) -> bool:
        """An order is given; returns whether its client is free and gets it now, and not from the queue later."""
        client = order.client
        if self.find(client) is not None:
            self.queued.setdefault(client, deque()).append(order)
            return False
        self.out[client] = OpenOrder(order, self.rounds.get(client, 0), time_s)
        return True

    def begin_first(self, orders: FirstOrders) -> None:
        """The orders of the start are given to clients that have none."""
        self._first = orders
        self._unrecorded = np.zeros(int(orders.clients.max()) + 1, np.bool_)
        self._unrecorded[orders.clients] = True

    def find(self, client: int) -> OpenOrder | None:
        """The order that a client works on."""
        if client < len(self._unrecorded) and self._unrecorded[client]:
            self._unrecorded[client] = False
            self.out[client] = self._of_the_start(client)
        return self.out.get(client)

    def clients(self) -> Iterator[int]:
        """The clients that work on an order."""
        yield from self.out
        yield from np.flatnonzero(self._unrecorded).tolist()

    def all(self) -> Iterator[OpenOrder]:
        """The orders that clients work on."""
        yield from self.out.values()
        yield from map(self._of_the_start, np.flatnonzero(self._unrecorded).tolist())

    def _of_the_start(self, client: int) -> OpenOrder:
        assert self._first is not None
        return OpenOrder(self._first.of(client), 0, 0.0)

    def contact(self, client: int) -> None:
        """A client is contacted; the flag of its order says so, for a run that is resumed."""
        order, number, since_s = self.out[client]
        self.out[client] = OpenOrder(order._replace(flags=order.flags | Flag.CONTACT), number, since_s)

    def end(self, client: int, made: int = 0) -> OpenOrder | None:
        """A client's round is over; its order, if it had one. `made` are the steps that it chose to make itself."""
        # An order of the start has no record until it is looked for.
        self.find(client)
        open_order = self.out.pop(client, None)
        if open_order is not None:
            self.rounds[client] = open_order.round + 1
            taken = self.local_steps.get(client, 0)
            self.local_steps[client] = taken + (open_order.order.local_steps or made)
        return open_order

    def replace(self, open_order: OpenOrder, order: Order, made: int, time_s: float) -> None:
        """As `end` and then `begin`, for a client without queue whose open order is known."""
        client = order.client
        number = open_order.round + 1
        self.rounds[client] = number
        self.local_steps[client] = self.local_steps.get(client, 0) + (open_order.order.local_steps or made)
        self.out[client] = OpenOrder(order, number, time_s)

    def release(self, client: int, time_s: float, flag: Flag) -> Order | None:
        """The next order of a client that is free again, with this flag; None if none waits."""
        waiting = self.queued.get(client)
        if not waiting:
            return None
        order = waiting.popleft()
        order = order._replace(flags=flag | (order.flags & Flag.WAITS))
        if not waiting:
            del self.queued[client]
        self.begin(order, time_s)
        return order

    def resume(self, run_state: RunState) -> None:
        """Continue with the orders of a saved state."""
        self.rounds = dict(run_state.rounds)
        self.local_steps = dict(run_state.local_steps)
        self.out = run_state.orders_by_client()
        for order in run_state.queued:
            self.queued.setdefault(order.client, deque()).append(order)

    def drop(self, client: int) -> int:
        """A client is lost; how many orders it had."""
        self.find(client)
        return (self.out.pop(client, None) is not None) + len(self.queued.pop(client, ()))


def refusal_reason(update: Update, open_order: OpenOrder | None, like: Vector | None) -> Reason:
    """Why an update cannot be used as the answer to an order; NONE if it can.

    `like` has the shape and type of every payload; None for lanes: a lane whose model is not finite in the end is run
    again alone.
    """
    header, payload = update
    if open_order is None or header.round != open_order.round:
        return Reason.ROUND
    if header.base_version != open_order.order.version:
        return Reason.BASE_VERSION
    if header.flags and header.flags & _OUTSIDE:  # nearly always there are none, and `&` of flags takes long
        return Reason.OUTSIDE
    if like is None:
        return Reason.NONE
    if payload.shape != like.shape:
        return Reason.LENGTH
    # The sum of the squares nearly always decides, in a tenth of the time. `dot` is the fastest, but not for matrices.
    squares = payload.dot(payload) if payload.ndim == 1 else np.vdot(payload, payload)
    if math.isfinite(squares) or np.isfinite(payload).all():
        return Reason.NONE
    return Reason.NOT_FINITE


class Tally:
    """Counts of events: by kind, and of updates by staleness and by client."""

    def __init__(self) -> None:
        self.kinds = [0] * len(Kind)
        self._staleness: Counter[int] = Counter()
        self._served: Counter[int] = Counter()
        self.last_time_s = 0.0
        self.clipped = 0  # updates that were cut to privacy.range, since the start or the last resume

    @classmethod
    def of(cls, kinds: Sequence[int], staleness: Sequence[int], served: Sequence[int], last_time_s: float) -> Tally:
        """A tally that continues these counts: of each kind, of staleness 0, 1, ..., of client 0, 1, ..."""
        tally = cls()
        tally.kinds = list(kinds)
        tally.last_time_s = last_time_s
        tally._staleness = Counter({value: count for value, count in enumerate(staleness) if count})
        tally._served = Counter({client: count for client, count in enumerate(served) if count})
        return tally

    def count(self, kind: Kind, time_s: float, client: int = -1, staleness: int = 0) -> None:
        """Count an event."""
        if kind == _UPDATE:
            self.count_update(time_s, client, staleness)
        else:
            self.kinds[kind] += 1
            self.last_time_s = time_s

    def count_update(self, time_s: float, client: int, staleness: int) -> None:
        """Count an update that was used."""
        self.kinds[_UPDATE] += 1
        self.last_time_s = time_s
        self._staleness[staleness] += 1
        self._served[client] += 1

    @property
    def events(self) -> int:
        """Events so far."""
        return sum(self.kinds)

    @property
    def staleness(self) -> NDArray[np.int64]:
        """How many updates were 0, 1, 2, ... versions old."""
        return _dense(self._staleness, 0)

    def served(self, clients: int) -> NDArray[np.int64]:
        """How many updates of each client were used, shape (clients,)."""
        return _dense(self._served, clients)

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far; `end_s` is the time of the last event unless given."""
        if end_s is None:
            end_s = self.last_time_s
        return counted_status(state, reason, end_s, self.kinds)

    def copy(self) -> Tally:
        """The counts as they are now."""
        twin = Tally()
        twin.kinds = self.kinds.copy()
        twin.last_time_s = self.last_time_s
        twin._staleness = self._staleness.copy()
        twin._served = self._served.copy()
        return twin


def counted_status(state: State, reason: str, end_s: float, kinds: Sequence[int]) -> Status:
    """A status with counts of events by kind."""
    used, steps, discarded, refused, lost = (int(count) for count in kinds[: Kind.REMOVED])
    return Status(state, reason, end_s, used, discarded, steps, refused=refused, lost=lost)


def _dense(counts: Counter[int], minlength: int) -> NDArray[np.int64]:
    """Counts of 0, 1, 2, ... as an array."""
    dense = np.zeros(max(minlength, max(counts, default=-1) + 1), dtype=np.int64)
    for value, count in counts.items():
        dense[value] = count
    return dense


@dataclass(frozen=True)
class ServerState:
    """What a server knows between two events; `mean` is the sum of the ergodic mean and since when its model counts."""

    state: Any
    iteration: int
    version: int
    updates_since_step: int
    mean: tuple[Vector, int] | None


@dataclass(frozen=True)
class RunState:
    """The server's side of a run at `time_s`; it is written at once, as the next event may change a table in it."""

    time_s: float
    server: ServerState
    rounds: dict[int, int]  # that each client has completed; they say where its random streams are
    local_steps: dict[int, int]  # that these rounds took of each client's samples
    open_orders: tuple[OpenOrder, ...]
    queued: tuple[Order, ...]  # behind the open ones, each client's in its order
    refusals: dict[int, int]  # in a row, by client
    lost: tuple[int, ...]
    removed: int  # lost clients that were taken out of the average
    grid_number: int  # the next point of the grid of snapshots
    shown_s: float  # the time of the last snapshot
    timers_passed: int  # steps by the clock so far
    tally: Tally
    snapshots: int

    def orders_by_client(self) -> dict[int, OpenOrder]:
        """The open orders by client."""
        return {open_order.order.client: open_order for open_order in self.open_orders}
