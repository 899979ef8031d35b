"""Wires made of lists for the server's and the workers' loops, and an experiment that can be checked by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.events import Reason
from areabench.engine.messages import Flag, Order, Update, UpdateHeader
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.as_fedavg import AsFedAvg, as_fedavg
from areabench.methods.base import Method
from areabench.methods.criteria import EveryUpdates
from areabench.problems.quadratic import Quadratic
from areabench.timing.delays import RoundTime
from areabench.transports import clock as clocks
from areabench.transports import server_loop
from areabench.transports.clock import RealClock
from areabench.transports.server_loop import Recall

EXPERIMENT = Experiment(
    clients=Clients(count=3),
    method=AsFedAvg(step_size=0.5),
    stop=Stop(iterations=6, horizon_s=60.0),
    problem=Quadratic(dimension=2),
    aggregation=EveryUpdates(updates=3),
    record=Record(snapshots="none"),
)


def update(client: int, entry: float = 1.0, flags: Flag = Flag.NONE, number: int = 0, version: int = 0) -> Update:
    """A message of a client."""
    return Update(UpdateHeader(client, number, version, flags=flags), np.array([entry, entry]))


class NoRecall:
    """No client is asked for its memory."""

    awaited, owing = False, ()

    def ask(self, rounds: Mapping[int, int], *, in_order: bool = False) -> None:
        raise AssertionError("nobody answers here")

    def give_up(self, lost: Collection[int]) -> None:
        """Nothing was asked."""

    def answer(self) -> tuple[int, Vector] | None:
        return None


@dataclass
class ScriptedLink:
    """A link whose polls return what the script says; after a stop, the clients' last messages follow.

    A failure is a client's last message: no message follows it.
    """

    polls: list[list[Update]]
    clients: int = 3
    orders: list[Order] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    stopped: bool = False
    on_poll: Callable[[], None] = lambda: None
    unreadables: list[tuple[int, Reason]] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    recall: Recall = field(default_factory=NoRecall)

    def unreadable(self) -> Sequence[tuple[int, Reason]]:
        unreadables, self.unreadables = self.unreadables, []
        return unreadables

    def lost(self) -> Sequence[int]:
        losses, self.losses = self.losses, []
        return losses

    def arrivals(self) -> Sequence[Update]:
        self.on_poll()
        if self.polls:
            return self.polls.pop(0)
        if not self.stopped:
            return []
        return [update(client, flags=Flag.LEAVING) for client in range(self.clients) if client not in self.failures]

    def order(self, order: Order) -> None:
        self.orders.append(order)

    def stop_all(self) -> None:
        self.stopped = True

    def failure(self, client: int) -> str:
        self.failures.append(client)
        return f"the traceback of client {client}"


class SlowBowl:
    """A local problem that moves by one and takes its time."""

    def __init__(self, compute_s: float = 0.0) -> None:
        self.compute_s, self.begun_s = compute_s, list[float]()

    def skip(self, steps: int) -> None:
        """Nothing is drawn."""

    def gradient(self, model: Vector) -> Vector:
        return -np.ones_like(model)

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        self.begun_s.append(time.perf_counter())
        time.sleep(self.compute_s)
        return np.asarray(model + step_size)


@dataclass
class WorkerWire:
    """A worker's link with prepared orders; sends the stop after `expected` updates, or when told to."""

    laid_out: list[Order]
    expected: int
    sent: list[Update] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    told_to_stop: threading.Event = field(default_factory=threading.Event)
    looked: threading.Event = field(default_factory=threading.Event)
    loaded: dict[int, Vector] = field(default_factory=dict)

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        """A client's next order comes once its last update has left."""
        self.looked.set()
        busy = set(self.loaded)
        here: dict[int, Order] = {}
        for order in self.laid_out:
            if order.client not in busy:
                here.setdefault(order.client, order)
        self.laid_out = [order for order in self.laid_out if order is not here.get(order.client)]
        return list(here.values())

    def load(self, client: int, payload: Vector) -> None:
        self.loaded[client] = payload.copy()

    def send(self, header: UpdateHeader) -> None:
        self.sent_s.append(time.perf_counter())
        self.sent.append(Update(header, self.loaded.pop(header.client)))

    @property
    def stopped(self) -> bool:
        return len(self.sent) >= self.expected or self.told_to_stop.is_set()

    def answer(self, question: Order, memory: Vector) -> None:
        raise AssertionError("nobody asked")


class Clock:
    """Real time in place of `time`; every look at it takes a nanosecond, and it moves as a test says."""

    def __init__(self) -> None:
        self.now_s, self.slept = 1000.0, list[float]()

    def perf_counter(self) -> float:
        self.now_s += 1e-9
        return self.now_s

    def sleep(self, time_s: float) -> None:
        self.slept.append(time_s)
        self.now_s += time_s


def own_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for the server."""
    made = Clock()
    for module in (clocks, server_loop):
        monkeypatch.setattr(module, "time", made)
    return made


class StillClock(RealClock):
    """A clock that a test sets."""

    def __init__(self, stretch: float = 1.0) -> None:
        super().__init__(stretch)
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s


def order(flags: Flag = Flag.REPLY, version: int = 0, client: int = 0) -> Order:
    """An order of one local step, with step size 1/2."""
    return Order(client, np.array([8.0, 8.0]), 0.5, version, 0, flags, local_steps=1)


def rounds_of(delay_s: float | Callable[[], float]) -> Callable[[Order, int], tuple[Order, RoundTime]]:
    """What begins the rounds of a client that takes this long for each, or as long as a call says."""

    def begin_round(order: Order, _number: int) -> tuple[Order, RoundTime]:
        return order, RoundTime(delay_s() if callable(delay_s) else delay_s, order.local_steps)

    return begin_round


def client_of(problem: SlowBowl, method: Method | None = None) -> Client:
    """A client at its first round."""
    return Client(method or as_fedavg(1), problem, np.array([8.0, 8.0]))
