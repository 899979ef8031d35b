"""The server's side of a run, without clock or wire: counters around a method's rule.

Algorithm 1 of the paper: k grows by one for each update received and by one for each server step. An order carries
the model from before a step that the same update triggers, and the step size of its iteration.
"""

from __future__ import annotations

from typing import Any

from areabench.algorithms.base import Method, Step
from areabench.averaging import ErgodicMean
from areabench.messages import Flag, Order
from areabench.problems.base import Vector
from areabench.stepsizes import Schedule


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
        """The mean of the models of all iterations so far, where it is kept."""
        return None if self._mean is None else self._mean.value(self.model, self.iteration)

    @property
    def state(self) -> Any:
        """The rule's own state."""
        return self._state

    def begin(self) -> list[Order]:
        """Start: x_{s,0} and alpha_0 go to the clients that work first."""
        return self._follow(self._method.start(self._start), Flag.NONE)

    def receive(self, client: int, payload: Vector) -> list[Order]:
        """An update came in."""
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

    def _follow(self, step: Step, flags: Flag) -> list[Order]:
        self._state = step.state
        model, step_size = step.state.model, self._schedule(self.iteration)
        return [Order(client, model, step_size, self.version, self.iteration, flags) for client in step.calls]
