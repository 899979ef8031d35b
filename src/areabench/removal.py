"""What lost clients have left in an average of memories: found from what all others remember, one vector at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from areabench.problems.base import Vector


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
