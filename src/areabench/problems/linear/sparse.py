"""The mini-batch gradient of logistic regression on sparse features, which are never made dense.

The model and its gradient are dense: a step costs the mini-batch's entries times the classes, and a pass over both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.problems.datasets import Dataset


class SparseWorkspace:
    """Computes mini-batch gradients of models of shape (classes, features) and keeps the last one."""

    def __init__(self, data: Dataset) -> None:
        self.gradient = np.empty((data.classes, data.train_features.shape[1]), dtype=np.float32)
        features = data.train_features.astype(np.float32, copy=False)
        self._features = features if data.scale == 1 else features * np.float32(data.scale)
        self._labels, self._identity = data.train_labels, np.eye(data.classes, dtype=np.float32)

    def differentiate(self, model: NDArray[Any], rows: NDArray[np.int64], rate: float) -> None:
        """Leave `rate` times the mini-batch gradient, without regulariser, in `gradient`."""
        inputs = self._features[rows]
        scores = inputs @ model.T
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        scores -= self._identity[self._labels[rows]]
        scores *= np.float32(rate / len(rows))
        np.copyto(self.gradient, (inputs.T @ scores).T)
