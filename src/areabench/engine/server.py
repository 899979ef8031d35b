"""The server's side of a run, without clock or wire: counters around a method's rule.

Algorithm 1 of the paper: k grows by one for each update received and by one for each server step. A reply carries
the model from before a step that the same update triggers, unless the method replies after it, and the step size of
its iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from areabench.arrays import Vector
from areabench.engine.messages import AGAIN, Flag, Order, Update, bare_order
from areabench.engine.state import FirstOrders, ServerState
from areabench.errors import RunFailure
from areabench.methods.base import Arrival, Call, Method, Step
from areabench.methods.schedules import Schedule

_REPLY = Flag.REPLY  # looking a flag up takes as long as a short call


class ErgodicMean:
    """The mean of x_{s,0}, ..., x_{s,K-1}; every iteration counts, also those that left the model as it was."""

    def __init__(self, start: Vector) -> None:
        self.total = np.zeros(start.shape, dtype=np.float64)
        self.since = 0  # the iteration that brought the current model

    def leave(self, model: Vector, iteration: int) -> None:
        """Iteration `iteration` replaces the model, which was current until then."""
        self.total = self.total + (iteration - self.since) * model.astype(np.float64)
        self.since = iteration

    def value(self, model: Vector, iteration: int) -> Vector:
        """The mean after this many iterations, where `model` is current; the start before the first."""
        if iteration == 0:
            return model
        mean = (self.total + (iteration - self.since) * model.astype(np.float64)) / iteration
        return mean.astype(model.dtype)


class Server:
    """Counts iterations and model versions, and turns the rule's calls into orders."""

    def __init__(
        self,
        method: Method,
        schedule: Schedule,
        start: Vector,
        clients: int,
        local_steps: int = 0,
        mean: ErgodicMean | None = None,
        unmask: Callable[[Sequence[tuple[int, int]]], Vector] | None = None,
    ) -> None:
        """`local_steps` is what an order asks for unless the rule says otherwise; 0: the client chooses.

        `unmask` gives the sum of the masks of updates, each named by client and round; None: there are none.
        """
        self._method = method
        self._receive = method.receive
        self._schedule = schedule
        self._start = start
        self._clients = clients
        self._local_steps = local_steps
        self._mean = mean
        self.decides = method.decides  # whether the rule itself says when to step
        self.replies_after = method.reply == "after"  # whether replies leave after the step that an update triggers
        self.answers_at_once = not self.replies_after and method.attach is None  # whether `reply` may be asked
        self._unmask = unmask
        self._state: Any = None
        self._reply: Step | None = None  # goes out after the server step that the same update may trigger
        self._sender = -1  # the client whose update that was
        self._lost: set[int] = set()
        self.iteration = 0  # k
        self.version = 0  # server steps so far
        self.updates_since_step = 0
        self.time_s = 0.0  # of the current event
        self.stepped = True  # whether the last `aggregate` was a server step

    @property
    def model(self) -> Vector:
        """The current model x_s."""
        model: Vector = self._state.model
        return model

    @property
    def average(self) -> Vector | None:
        """The mean of the models of all iterations so far, if it is kept."""
        if self._mean is None:
            return None
        return self._mean.value(self.model, self.iteration)

    @property
    def state(self) -> Any:
        """The rule's own state."""
        return self._state

    @property
    def name(self) -> str:
        """The name of the method."""
        return self._method.name

    @property
    def due(self) -> bool:
        """Whether the rule wants to step now."""
        return self._method.due is not None and self._method.due(self._state)

    @property
    def wake_s(self) -> float:
        """When the rule wants to step by the clock."""
        if self._method.wake is None:
            return math.inf
        wake_s = self._method.wake(self._state)
        if math.isnan(wake_s):
            raise RunFailure(
                f'method "{self.name}" asks to be woken at NaN; let `wake` return a time in s, or math.inf'
            )
        return wake_s

    def begin(self) -> list[Order]:
        """Start: x_{s,0} and alpha_0 go to the clients that work first."""
        return list(self.first_orders())

    def first_orders(self) -> FirstOrders | list[Order]:
        """As `begin`, without making a record of each order where they are alike."""
        step = self._method.start(self._start)
        # A bool is an int too, and no client: it takes the way on which it is refused by name.
        clients = [call for call in step.calls if type(call) is int]
        if not clients or len(set(clients)) < len(step.calls) or step.cancels or step.contacts:
            return self.follow(step, Flag.FIRST)
        for client in clients:
            self._check(client, "calls")
        (order,) = self.follow(Step(step.state, (clients[0],)), Flag.FIRST)
        return FirstOrders(order, np.array(clients, np.int64))

    def receive(self, update: Update, order: Order, time_s: float) -> list[Order]:
        """An update arrived as the answer to an order; with `reply = "after"` see `replies` for the answer."""
        return self.answer(self.take(update, order, time_s), update.header.client)

    def take(self, update: Update, order: Order, time_s: float) -> Step:
        """Give the rule an update, the answer to an order; what the rule returns is to be followed."""
        self.iteration += 1
        self.updates_since_step += 1
        self.time_s = time_s
        header = update.header
        version = order.version
        arrival = Arrival(
            header.client, update.payload, header.round, version, order.model, self.version - version,
            order.step_size, header.local_steps, time_s,
        )  # fmt: skip
        return self._receive(self._state, arrival)

    def reply(self, step: Step, client: int) -> Order | None:
        """Follow a step that calls just the sender of an update, as usual: the order to it. None for other steps."""
        state, calls, _, contacts, cancels = step
        if len(calls) != 1 or calls[0] is not client or contacts or cancels:
            return None
        self._state = state
        step_size = self._schedule(self.iteration, self.time_s)
        return Order(client, state.model, step_size, self.version, self.iteration, _REPLY, self._local_steps)

    def answer(self, step: Step, client: int) -> list[Order]:
        """Follow a step, which an update of `client` has led to, now or after a server step."""
        if not self.replies_after:
            return self.follow(step, sender=client)
        self._state = step.state
        self._reply = step
        self._sender = client
        return []

    def replies(self) -> list[Order]:
        """What the last update is answered with after a server step, or instead of one."""
        if self._reply is None:
            return []
        step = self._reply._replace(state=self._state)
        self._reply = None
        return self.follow(step, sender=self._sender)

    def aggregate(self, time_s: float) -> list[Order]:
        """The aggregation criterion is met: the server steps, unless the rule does not."""
        self.time_s = time_s
        masked = self._method.masked
        if self._unmask is not None and masked is not None and (names := masked.covered(self._state)):
            self._state = masked.uncover(self._state, self._unmask(names))
        step = self._method.aggregate(self._state)
        self.stepped = step.stepped
        if step.stepped:
            self.iteration += 1
            self.version += 1
            self.updates_since_step = 0
            # The mean still needs the model that this step replaces.
            if self._mean is not None:
                self._mean.leave(self.model, self.iteration)
        self._state = step.state
        if self._reply is None and not step.calls and not step.contacts and not step.cancels:
            return []
        return self.replies() + self.follow(step)

    @property
    def settled(self) -> bool:
        """Whether no update waits under a mask, whose key a checkpoint must not hold."""
        return self._method.masked is None or self._method.masked.settled(self._state)

    def again(self, order: Order, time_s: float) -> Order:
        """The update that answers an order was refused: its client forgets it and works again, from the current model.

        What the rule itself gave with the order stays as it was, and the rule is told of it. A client that has been
        contacted does not wait for another contact: the rule waits for its answer.
        """
        self.time_s = time_s
        flags = AGAIN
        if Flag.CONTACT not in order.flags:
            flags |= order.flags & Flag.WAITS
        if order.given:
            new = order._replace(iteration=self.iteration, flags=flags)
        else:
            new = self._order(order.client, flags)._replace(local_steps=order.local_steps)
        if self._method.again is not None:
            self._state = self._method.again(self._state, order.client, new.version)
        return new

    def lose(self, client: int, orders: int, time_s: float) -> list[Order]:
        """A client is lost with this many open orders; the orders to those who work in its place."""
        self.time_s = time_s
        self._lost.add(client)
        if self._method.lose is None:
            return []
        return self.follow(self._method.lose(self._state, client, orders))

    @property
    def removes(self) -> bool:
        """Whether the method averages memories, from which those of lost clients can be removed."""
        return self._method.remove is not None

    def recalled(self) -> Vector:
        """The sum of the memories of all clients in the average."""
        assert self._method.recalled is not None
        return self._method.recalled(self._state)

    def remove(self, count: int, memories: Vector) -> None:
        """Take this many lost clients, whose memories add up to `memories`, out of the average."""
        assert self._method.remove is not None
        self._state = self._method.remove(self._state, count, memories)

    def run_state(self) -> ServerState:
        """Everything that the server knows."""
        mean = None
        if self._mean is not None:
            mean = (self._mean.total, self._mean.since)
        return ServerState(self._state, self.iteration, self.version, self.updates_since_step, mean)

    def resume(self, run_state: ServerState, lost: Iterable[int] = ()) -> None:
        """Continue from a saved state."""
        self._state = run_state.state
        self.iteration = run_state.iteration
        self.version = run_state.version
        self.updates_since_step = run_state.updates_since_step
        self._lost.update(lost)
        if self._mean is not None and run_state.mean is not None:
            self._mean.total, self._mean.since = run_state.mean

    def follow(self, step: Step, flags: Flag = Flag.NONE, sender: int = -1) -> list[Order]:
        """Take over the state, and turn what clients are told into orders; that to `sender` is a reply."""
        self._state = step.state
        orders = [self._order(call, flags, sender) for call in step.calls]
        if not step.cancels and not step.contacts:
            return orders
        # A client that is cancelled may be called again, and only a client with an order can be contacted.
        cancels = [self._interrupt(client, Flag.CANCEL) for client in step.cancels]
        return cancels + orders + [self._interrupt(client, Flag.CONTACT) for client in step.contacts]

    def _order(self, call: int | Call, flags: Flag, sender: int = -1) -> Order:
        """An order for what the rule has called; a bare client is called with all that is usual."""
        client = call.client if isinstance(call, Call) else call
        self._check(client, "calls")
        attach = self._method.attach
        order = Order(
            client,
            model=self._state.model,
            step_size=self._schedule(self.iteration, self.time_s),
            version=self.version,
            iteration=self.iteration,
            flags=Flag.REPLY if client == sender else flags,
            local_steps=self._local_steps,
            attached=None if attach is None else attach(self._state),
        )
        if not isinstance(call, Call):
            return order
        steps = call.local_steps
        if steps is not None and (not isinstance(steps, Integral) or steps < 1):
            raise RunFailure(
                f'method "{self.name}" calls client {client} for {steps!r} local steps; give a whole number >= 1'
            )
        if call.model is not None:
            order = order._replace(model=call.model, given=True)
        if call.step_size is not None:
            order = order._replace(step_size=call.step_size, given=True)
        if call.version is not None:
            order = order._replace(version=call.version)
        if steps is not None:
            order = order._replace(local_steps=steps)
        if call.waits:
            order = order._replace(flags=order.flags | Flag.WAITS)
        return order

    def _interrupt(self, client: int, flag: Flag) -> Order:
        """A message without a model to a client that works."""
        self._check(client, "cancels" if flag is Flag.CANCEL else "contacts")
        if not self._local_steps:
            raise RunFailure(
                f'method "{self.name}" interrupts client {client}, which chooses its local steps itself; '
                'use clients.work = "fixed"'
            )
        return bare_order(client, flag, self.version, self.iteration)

    def _check(self, client: int, does: str) -> None:
        """A RunFailure for a client that the rule must not name."""
        if type(client) is not int:
            raise RunFailure(
                f'method "{self.name}" {does} client {client!r}, which is not of type int; write int(client)'
            )
        if not 0 <= client < self._clients:
            raise RunFailure(
                f'method "{self.name}" {does} client {client!r}, which does not exist; name clients from 0 to '
                f"{self._clients - 1}"
            )
        if self._lost and client in self._lost:
            raise RunFailure(
                f'method "{self.name}" {does} client {client}, which is lost; let its function `lose` note the lost '
                "clients, and call others"
            )


class Removal:
    """The sum of the lost clients' memories is that of all, which the server knows, less those of the others.

    The server stores no client's memory: the others are asked for theirs. They are taken in the order of the clients'
    numbers, so that a replay rounds alike.
    """

    def __init__(self, recalled: Vector) -> None:
        self._rest = recalled

    def take(self, memory: Vector) -> None:
        """Another client's memory."""
        self._rest = self._rest - memory

    def left(self, dtype: np.dtype[Any]) -> Vector:
        """The sum of the lost clients' memories, once all others were taken."""
        return self._rest.astype(dtype)
