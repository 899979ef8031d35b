"""The ergodic average of the server's models, which Theorem 2 speaks of: a running mean, one vector whatever K is."""

from __future__ import annotations

import numpy as np

from areabench.problems.base import Vector


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
        """The mean after so many iterations, where `model` is current; the start before the first."""
        if iteration == 0:
            return model
        mean = (self.total + (iteration - self.since) * model.astype(np.float64)) / iteration
        return mean.astype(model.dtype)
