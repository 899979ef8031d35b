"""A client's side of a run, without clock or wire: its data, its memory and its round counter."""

from __future__ import annotations

from areabench.algorithms.base import Method
from areabench.problems.base import LocalProblem, Vector


class Client:
    """Client i: answers the r-th order with its r-th round of local steps."""

    def __init__(self, method: Method, local: LocalProblem, start: Vector) -> None:
        self._method, self._local = method, local
        self.memory = method.remember(start)
        self.round = 0

    def work(self, model: Vector, step_size: float) -> Vector:
        """M local steps from `model`; returns what goes to the server."""
        local = self._local.descend(model, step_size)
        report = self._method.report(self.memory, model, local)
        self.memory = report.memory
        self.round += 1
        return report.payload
