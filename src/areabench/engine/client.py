"""A client's side of a run, without clock or wire: its data, its memory and its round counter."""

from __future__ import annotations

from areabench.arrays import Vector
from areabench.methods.base import Method
from areabench.problems.base import LocalProblem


class Client:
    """Client i: answers the r-th order with its r-th round of local steps."""

    def __init__(self, method: Method, local: LocalProblem, start: Vector) -> None:
        self._method, self._local = method, local
        self.memory = self._before = method.remember(start)
        self.round = 0

    def work(self, model: Vector, step_size: float) -> Vector:
        """M local steps from `model`; returns what goes to the server."""
        local = self._local.descend(model, step_size)
        report = self._method.report(self.memory, model, local)
        self._before, self.memory = self.memory, report.memory
        self.round += 1
        return report.payload

    def take_back(self) -> None:
        """The server has refused the last update: remember what was remembered before it, as the server does."""
        self.memory = self._before

    def memory_at(self, number: int) -> Vector | None:
        """What the client remembered when its round `number` began: the one to come, or the last one."""
        assert number in (self.round, self.round - 1), f"round {number} was asked for, the next is {self.round}"
        return self.memory if number == self.round else self._before

    def resume(self, rounds: int, memory: Vector | None) -> None:
        """Go on after so many rounds."""
        self._local.skip(rounds)
        self.round, self.memory, self._before = rounds, memory, memory
