"""A server and its clients without a clock or a wire, for trajectories that are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.conductor import Conductor
from areabench.engine.evaluation import NoTarget
from areabench.engine.messages import INTERRUPTS, Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import method_of
from areabench.engine.server import Server
from areabench.engine.state import OpenOrder
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area
from areabench.methods.base import Arrival, Method, MethodInputs
from areabench.methods.criteria import Criterion
from areabench.problems.quadratic import Quadratic, QuadraticProblem
from areabench.transports.simulator import LaneRecorder


def inputs(clients: int, **known: object) -> MethodInputs:
    """What a method is told of an experiment with equal clients; `known` replaces some of it."""
    usual = MethodInputs(clients, 0, 0.5, 1, np.ones(clients), np.zeros(clients, np.int64), 1, None)
    return usual._replace(**known)  # type: ignore[arg-type]  # names of its fields


def arrival(client: int, payload: Vector, **known: object) -> Arrival:
    """The first update of a client, from the starting point; `known` replaces what is usual."""
    usual = Arrival(client, payload, 0, 0, np.zeros_like(payload), 0, 0.5, 1, 0.0)
    return usual._replace(**known)  # type: ignore[arg-type]  # names of its fields


def answer(order: Order, payload: Vector, number: int = 0) -> Update:
    """A client's update as the answer to its order, in its round `number`."""
    return Update(UpdateHeader(order.client, number, order.version, local_steps=order.local_steps), payload)


def method_named_by(experiment: Experiment) -> Method:
    """The method of an experiment whose clients are equal and hold no samples."""
    clients = experiment.clients.count
    return method_of(experiment, experiment.method_inputs(np.ones(clients), np.zeros(clients, np.int64)), np.zeros(2))


Spoil = Callable[[Update], Update]


class Table:
    """The named client delivers next. Delta updates make a server step, unless the method decides.

    Each delivery takes a second, unless the time is given. `orders` are what clients work on.
    """

    def __init__(
        self,
        method: Method,
        problem: QuadraticProblem,
        delta: int = 1,
        step_size: float = 0.5,
        *,
        stepwise: bool = False,
        faults: Faults = Faults(),  # noqa: B008 - frozen
    ) -> None:
        start = problem.start()
        self.server = Server(method, lambda _iteration, _time_s: step_size, start, problem.clients, problem.local_steps)
        self.clients = [
            Client(method, problem.local(number), start, stepwise=stepwise) for number in range(problem.clients)
        ]
        self._local_steps = problem.local_steps
        self.orders: dict[int, Order] = {}
        self.interrupts: list[Order] = []
        self.recorder = LaneRecorder(keeps_events=True)
        self.time_s = 0.0
        experiment = Experiment(
            clients=Clients(count=problem.clients, local_steps=problem.local_steps),
            method=Area(step_size=step_size),
            problem=Quadratic(dimension=len(start)),
            stop=Stop(horizon_s=1e9),
            record=Record(snapshots="none"),
            faults=faults,
        )
        criterion = Criterion(None if method.decides else delta, iter(()))
        payload = start if method.payload_like is None else method.payload_like(start)
        self.conductor = Conductor(
            experiment, self.server, criterion, self.recorder, NoTarget(), self._take, lambda: self.time_s, payload
        )
        self.conductor.start()

    def deliver(
        self, *numbers: int, made: int | None = None, time_s: float | None = None, spoil: Spoil | None = None
    ) -> None:
        """Clients deliver in this order, after all local steps or after `made`; each needs an order.

        `spoil` changes their updates on the way.
        """
        for number in numbers:
            order, client = self.orders.pop(number), self.clients[number]
            self.time_s = self.time_s + 1.0 if time_s is None else time_s
            steps = order.local_steps if made is None else made
            header = UpdateHeader(number, client.round, order.version, local_steps=steps if client.trains else 0)
            update = Update(header, client.work(order, steps))
            self.conductor.update(update if spoil is None else spoil(update), self.time_s)

    def refresh(self) -> None:
        """Every client drops what it works on, and gets an order with the current model."""
        conductor, time_s = self.conductor, self.time_s
        for client in range(len(self.clients)):
            blank = Order(client, self.server.model, 0.0, 0, 0, local_steps=self._local_steps)
            self.orders[client] = self.server.again(blank, time_s)._replace(flags=Flag.NONE)
        orders = tuple(
            OpenOrder(order, conductor.round_of(client), time_s) for client, order in sorted(self.orders.items())
        )
        conductor.resume(replace(conductor.run_state(time_s), open_orders=orders, queued=()))

    def refuse(self, number: int) -> None:
        """A client's update is not finite on its way, so the client takes its memory back and works again."""
        order, client = self.orders.pop(number), self.clients[number]
        header = UpdateHeader(number, client.round, order.version, local_steps=order.local_steps)
        self.conductor.update(Update(header, np.full_like(client.work(order), np.nan)), self.time_s)
        assert number in self.orders

    def wake(self) -> None:
        """The clock reaches the time at which the rule wants to step."""
        self.time_s = self.conductor.timer_s
        self.conductor.timer(self.time_s)

    def lose(self, client: int) -> None:
        """A client is lost."""
        self.orders.pop(client, None)
        self.conductor.lose([client], self.time_s)

    @property
    def cancelled(self) -> list[int]:
        """The clients whose orders were cancelled."""
        return [order.client for order in self.interrupts if order.flags is Flag.CANCEL]

    @property
    def contacted(self) -> list[int]:
        """The clients that were contacted."""
        return [order.client for order in self.interrupts if order.flags is Flag.CONTACT]

    def model(self) -> list[float]:
        """x_s."""
        return [float(entry) for entry in self.server.model]

    def holds(self, client: int) -> tuple[list[float], int, int]:
        """The order a client works on: model, version, iteration."""
        order = self.orders[client]
        return [float(entry) for entry in order.model], order.version, order.iteration

    def counters(self) -> tuple[int, int]:
        """Iteration k and version."""
        return self.server.iteration, self.server.version

    def _take(self, order: Order) -> None:
        if order.flags not in INTERRUPTS:
            if Flag.AGAIN in order.flags:
                self.clients[order.client].take_back()
            self.orders[order.client] = order
            return
        self.interrupts.append(order)
        if order.flags is Flag.CANCEL:
            self.clients[order.client].cancel(self.orders.pop(order.client))
