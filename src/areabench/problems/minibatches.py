"""Problems over a data set that clients hold parts of: the clients' weights, and the mini-batches of their local steps.

A mini-batch is the same on every transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.problems.datasets import Dataset
from areabench.problems.splits.rows import part_sizes
from areabench.streams import Purpose, Streams, stream

_DRAWS_AHEAD = 512  # indices drawn per call: a call costs microseconds, however few it draws


def client_weights(parts: Sequence[NDArray[np.int64]], weighting: Literal["share", "exact"]) -> list[float]:
    """What multiplies each client's objective: its share s_i/S of the samples, times n where `exact`."""
    sizes = part_sizes(parts)
    factor = len(parts) if weighting == "exact" else 1
    weights: list[float] = (sizes / sizes.sum() * factor).tolist()
    return weights


class DataProblem:
    """What problems over a data set have in common; client i descends weights[i]·(the mean loss of its rows)."""

    def __init__(
        self,
        data: Dataset,
        parts: Sequence[NDArray[np.int64]],
        local_steps: int,
        seed: int,
        batch_size: int,
        weighting: Literal["share", "exact"],
    ) -> None:
        self.data = data
        self.parts = parts
        self.local_steps = local_steps
        self.seed = seed
        self.dimension = 0  # each problem sets its own
        self.weights = client_weights(parts, weighting)
        self._batch_size = batch_size
        self._streams = Streams(seed, Purpose.SAMPLES, len(parts))

    def batches(self, client: int) -> Minibatches:
        """The mini-batches of a client, from its first round on."""
        rows = self.parts[client]
        return Minibatches(self.seed, client, rows, self.local_steps, self._batch_size, self._streams.open(client))

    def draw_start(self, width: float) -> NDArray[np.float64]:
        """A starting point with independent entries, uniform on (-width, width)."""
        return stream(self.seed, Purpose.START).uniform(-width, width, self.dimension)


class Minibatches:
    """Client `client`'s mini-batches in order: rows of `samples`, drawn with replacement; a round takes `steps`."""

    def __init__(
        self,
        seed: int,
        client: int,
        samples: NDArray[np.int64],
        steps: int,
        batch_size: int,
        generator: np.random.Generator | None = None,
    ) -> None:
        """`generator` is the client's stream of samples, where it is open already."""
        self._generator = stream(seed, Purpose.SAMPLES, client) if generator is None else generator
        self._samples = samples
        self._steps = steps
        # Whole rounds, so that a block ends where a round does and rounds need no concatenation.
        rounds_ahead = max(1, _DRAWS_AHEAD // (steps * batch_size))
        self._shape = (rounds_ahead * steps, batch_size)
        self._block = np.empty((0, batch_size), dtype=np.int64)
        self._next = 0

    def next_round(self) -> NDArray[np.int64]:
        """Row numbers of the next round, shape (steps, batch_size)."""
        return self.next_batches()

    def next_batches(self, count: int | None = None) -> NDArray[np.int64]:
        """Row numbers of the next `count` mini-batches, or of a round, shape (count, batch_size)."""
        if count is None:
            count = self._steps
        earlier = []
        while count > (left := len(self._block) - self._next):
            if left:
                earlier.append(self._block[self._next :])
            count -= left
            self._draw()
        rows: NDArray[np.int64] = self._block[self._next : self._next + count]
        self._next += count
        return np.concatenate([*earlier, rows]) if earlier else rows

    def skip(self, rounds: int) -> None:
        """Skip this number of rounds."""
        self.skip_batches(rounds * self._steps)

    def skip_batches(self, count: int) -> None:
        """Skip this number of mini-batches."""
        # Blocks are drawn although nobody takes them: the stream must be where it would be.
        while count > (left := len(self._block) - self._next):
            count -= left
            self._draw()
        self._next += count

    def _draw(self) -> None:
        """Replace the block, all of which is taken, by the next one."""
        self._block = self._samples[self._generator.integers(0, len(self._samples), self._shape)]
        self._next = 0
