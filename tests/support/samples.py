"""Forty training and 25 test samples of random bytes, of three classes and six features, for two clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from areabench.problems.datasets import Dataset

FEATURES, CLASSES, TRAIN, TEST = 6, 3, 40, 25


def blobs() -> Dataset:
    """The samples; read-only, as from a file."""
    generator = np.random.default_rng(3)
    data = Dataset(
        name="bytes",
        train_features=generator.integers(0, 256, (TRAIN, FEATURES), dtype=np.uint8),
        train_labels=generator.integers(0, CLASSES, TRAIN),
        test_features=generator.integers(0, 256, (TEST, FEATURES), dtype=np.uint8),
        test_labels=generator.integers(0, CLASSES, TEST),
        classes=CLASSES,
        scale=1 / 255,
    )
    for array in (data.train_features, data.train_labels, data.test_features, data.test_labels):
        array.flags.writeable = False
    return data


def parts() -> list[NDArray[np.int64]]:
    """Client 0 holds the first ten rows, client 1 the other thirty."""
    return [np.arange(10), np.arange(10, TRAIN)]
