"""The buffer that all methods share: a running sum, so that it does not grow with the number of updates."""

from __future__ import annotations

from typing import NamedTuple

from areabench.problems.base import Vector


class Buffer(NamedTuple):
    """The sum of the updates received since the last server step, and how many they were."""

    total: Vector | None = None  # nothing yet
    size: int = 0

    def add(self, payload: Vector) -> Buffer:
        """The buffer with one more update."""
        return Buffer(payload.copy() if self.total is None else self.total + payload, self.size + 1)

    def mean(self) -> Vector:
        """The plain mean of the updates; the buffer must not be empty."""
        assert self.total is not None
        return self.total / self.size
