"""The buffer that AS-FedAvg, FedBuff and S-FedAvg share: a running sum, so its size does not grow with the buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from areabench.problems.base import Vector


@dataclass(frozen=True)
class Buffer:
    """The sum of the updates received since the last server step, and how many they were."""

    total: Vector
    count: int

    def add(self, payload: Vector) -> Buffer:
        """The buffer with one more update."""
        return Buffer(self.total + payload, self.count + 1)

    def mean(self) -> Vector:
        """The plain mean of the updates; the buffer must not be empty."""
        return self.total / self.count


def empty_buffer(like: Vector) -> Buffer:
    """A buffer with nothing in it."""
    return Buffer(np.zeros_like(like), 0)
