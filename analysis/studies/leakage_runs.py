"""Runs whose messages are kept: what each client was sent and what it sent, and, to judge by, what it computed.

The rule of the method is that of the package; a wrapper around it copies what passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.experiment import Experiment
from areabench.extend import Arrival, Minibatches, Report, Step, Work
from areabench.methods.base import Method
from areabench.problems.logistic import Logistic
from areabench.problems.minibatches import client_weights
from areabench.problems.torch_module import TorchModule
from areabench.transports.simulator import simulate_lanes


@dataclass(frozen=True, eq=False)
class Message:
    """An update as the server gets it. `local` is what only the client has: x_i after its local steps."""

    number: int  # in the order of arrival, from 0
    client: int
    round: int  # of this client, from 0
    sent: Vector  # the model that the client was sent
    rate: float  # what the client multiplies a mini-batch gradient by: alpha times its weight
    payload: Vector
    step: int  # the server step that takes it in, from 0
    local: Vector

    @property
    def pseudo_gradient(self) -> Vector:
        """The truth to compare with: the model that was sent minus x_i, in double precision."""
        return self.sent.astype(np.float64) - self.local


@dataclass(eq=False)
class MessageLog:
    """Copies what passes a method's rule.

    The simulator computes a round when its update arrives, so the last report is that of the next arrival.
    """

    weights: Sequence[float]  # of the clients
    messages: list[Message] = field(default_factory=list)
    steps: int = 0
    _local: Vector | None = None

    def wrapped(self, method: Method) -> Method:
        """The same rule, watched."""

        def report(memory: Any, work: Work) -> Report:
            self._local = work.local.copy()
            return method.report(memory, work)

        def receive(state: Any, arrival: Arrival) -> Step:
            assert self._local is not None
            number = len(self.messages)
            rate = arrival.step_size * self.weights[arrival.client]
            client = arrival.client
            place = arrival.round
            sent = arrival.model
            payload = arrival.payload.copy()
            self.messages.append(Message(number, client, place, sent, rate, payload, self.steps, self._local))
            return method.receive(state, arrival)

        def aggregate(state: Any) -> Step:
            self.steps += 1
            return method.aggregate(state)

        return replace(method, report=report, receive=receive, aggregate=aggregate)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run with its messages, and the parts that it was made of."""

    scenario: Scenario
    messages: tuple[Message, ...]
    steps: int  # of the server

    @property
    def method(self) -> str:
        """The method's name."""
        return self.scenario.method.name

    @property
    def start(self) -> Vector:
        """x_{s,0}, which the server has sent to all clients."""
        return self.scenario.start

    @property
    def local_steps(self) -> int:
        """M."""
        return self.scenario.experiment.clients.local_steps

    @property
    def settings(self) -> Logistic | TorchModule:
        """The problem's settings."""
        return _settings(self.scenario)

    def of_step(self, step: int) -> list[Message]:
        """The messages that a server step takes in."""
        return self._by_step[step]

    def held(self, message: Message) -> NDArray[np.int64]:
        """Rows of the training set that the client used in this round, shape (M, batch size)."""
        rows = _parts(self.scenario)[message.client]
        seed = self.scenario.experiment.seed
        batches = Minibatches(seed, message.client, rows, self.local_steps, self.settings.batch_size)
        batches.skip(message.round)
        return batches.next_round()

    @cached_property
    def _by_step(self) -> list[list[Message]]:
        found: list[list[Message]] = [[] for _ in range(self.steps)]
        for message in self.messages:
            if message.step < self.steps:  # the last step may not have been made
                found[message.step].append(message)
        return found


def record(experiment: Experiment, cache: Path) -> RecordedRun:
    """Simulate an experiment and keep its messages."""
    scenario = build_scenario(experiment, cache)
    log = MessageLog(client_weights(_parts(scenario), _settings(scenario).weighting))
    simulate_lanes([replace(scenario, method=log.wrapped(scenario.method))], lambda _time_s, _updates: None)
    return RecordedRun(scenario, tuple(log.messages), log.steps)


def _settings(scenario: Scenario) -> Logistic | TorchModule:
    settings = scenario.experiment.problem
    assert isinstance(settings, Logistic | TorchModule)
    return settings


def _parts(scenario: Scenario) -> Sequence[NDArray[np.int64]]:
    """The rows of the training set that each client holds."""
    problem: Any = scenario.problem
    parts: Sequence[NDArray[np.int64]] = problem.parts
    return parts


def earlier(run: RecordedRun) -> Iterator[tuple[Message, Message | None]]:
    """Every message with the one that its client sent before it."""
    last: dict[int, Message] = {}
    for message in run.messages:
        yield message, last.get(message.client)
        last[message.client] = message
