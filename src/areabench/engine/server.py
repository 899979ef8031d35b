"""The server's side of a run, without clock or wire: counters around a method's rule.

Algorithm 1 of the paper: k grows by one for each update received and by one for each server step. An order carries
the model from before a step that the same update triggers, and the step size of its iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from areabench.arrays import Vector
from areabench.engine.messages import AGAIN, Flag, Order
from areabench.engine.state import ServerState
from areabench.methods.base import Method, Step
from areabench.methods.schedules import Schedule


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

    def __init__(self, method: Method, schedule: Schedule, start: Vector, mean: ErgodicMean | None = None) -> None:
        self._method, self._schedule, self._start, self._mean = method, schedule, start, mean
        self._state: Any = None
        self.iteration = 0  # k
        self.version = 0  # server steps so far
        self.updates_since_step = 0

    @property
    def model(self) -> Vector:
        """The current model x_s."""
        model: Vector = self._state.model
        return model

    @property
    def average(self) -> Vector | None:
        """The mean of the models of all iterations so far, if it is kept."""
        return None if self._mean is None else self._mean.value(self.model, self.iteration)

    @property
    def state(self) -> Any:
        """The rule's own state."""
        return self._state

    def begin(self) -> list[Order]:
        """Start: x_{s,0} and alpha_0 go to the clients that work first."""
        return self._follow(self._method.start(self._start), Flag.FIRST)

    def receive(self, client: int, payload: Vector) -> list[Order]:
        """An update arrived."""
        self.iteration += 1
        self.updates_since_step += 1
        return self._follow(self._method.receive(self._state, client, payload), Flag.REPLY)

    def aggregate(self) -> list[Order]:
        """The aggregation criterion is satisfied: the server steps."""
        self.iteration += 1
        self.version += 1
        self.updates_since_step = 0
        if self._mean is not None:
            self._mean.leave(self.model, self.iteration)
        return self._follow(self._method.aggregate(self._state), Flag.NONE)

    def again(self, client: int) -> Order:
        """A client's update was refused: it forgets that update and works again, from the current model."""
        return Order(client, self.model, self._schedule(self.iteration), self.version, self.iteration, AGAIN)

    def lose(self, client: int, *, at_work: bool) -> list[Order]:
        """A client is lost; the orders to those who work in its place."""
        if self._method.lose is None:
            return []
        return self._follow(self._method.lose(self._state, client, at_work), Flag.NONE)

    @property
    def trains_first(self) -> bool:
        """Whether a client's first update is made of local steps."""
        return self._method.trains_first

    @property
    def synchronous(self) -> bool:
        """Whether the method's own rounds decide when it steps."""
        return self._method.updates_per_step is not None

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
        mean = None if self._mean is None else (self._mean.total, self._mean.since)
        return ServerState(self._state, self.iteration, self.version, self.updates_since_step, mean)

    def resume(self, run_state: ServerState) -> None:
        """Continue from a saved state."""
        self._state, self.iteration, self.version = run_state.state, run_state.iteration, run_state.version
        self.updates_since_step = run_state.updates_since_step
        if self._mean is not None and run_state.mean is not None:
            self._mean.total, self._mean.since = run_state.mean

    def _follow(self, step: Step, flags: Flag) -> list[Order]:
        self._state = step.state
        model, step_size = step.state.model, self._schedule(self.iteration)
        return [Order(client, model, step_size, self.version, self.iteration, flags) for client in step.calls]


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
