"""What a method is: a client rule and a server rule. It knows no clock, no rank and no file.

A method is a value: a record of functions. Server states are named tuples of vectors, numbers, tuples of numbers and
other such states, so that a checkpoint can hold any of them. The arrays in them are replaced, never changed, so a model
that was sent stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from areabench.arrays import Vector


class Report(NamedTuple):
    """What a client sends after its local steps, and what it remembers."""

    payload: Vector
    memory: Vector | None


class Step(NamedTuple):
    """The server's state after an event, and the clients that get an order next, in this sequence."""

    state: Any
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Method:
    """One federated method.

    remember  (x0) -> memory: what a client starts with
    report    (memory, base, local) -> Report: after M local steps led from `base` to `local`
    start     (x0) -> Step: the server's first state (it has an attribute `model`) and who works first
    receive   (state, client, payload) -> Step: an update arrived; `payload` is valid during the call only
    aggregate (state) -> Step: the aggregation criterion is satisfied

    and, for methods that a lost client concerns:

    lose      (state, client, at_work) -> Step: the client is lost, with an order or without; who works instead
    recalled  (state) -> the sum of the memories of all clients in the average, in double precision
    remove    (state, count, memories) -> state without `count` clients, whose memories add up to `memories`
    """

    name: str
    remember: Callable[[Vector], Vector | None]
    report: Callable[[Vector | None, Vector, Vector], Report]
    start: Callable[[Vector], Step]
    receive: Callable[[Any, int, Vector], Step]
    aggregate: Callable[[Any], Step]
    updates_per_step: int | None = None  # set if the method itself decides when to step
    lose: Callable[[Any, int, bool], Step] | None = None
    recalled: Callable[[Any], Vector] | None = None
    remove: Callable[[Any, int, Vector], Any] | None = None
    trains_first: bool = True  # whether a client's first round makes local steps; else it reports what it was sent


class Buffer(NamedTuple):
    """The sum of the updates received since the last server step, and their number."""

    total: Vector | None = None  # nothing yet
    size: int = 0

    def add(self, payload: Vector) -> Buffer:
        """The buffer with one more update."""
        return Buffer(payload.copy() if self.total is None else self.total + payload, self.size + 1)

    def mean(self) -> Vector:
        """The plain mean of the updates; the buffer must not be empty."""
        assert self.total is not None
        return self.total / self.size
