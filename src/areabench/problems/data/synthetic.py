"""Gaussian blobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from areabench.problems.data.settings import DataSettings
from areabench.problems.datasets import Dataset, frozen
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST, LARGEST_SIZE

_SYNTHETIC_ENTROPY = 0x64617461  # keeps the streams of the data apart from those of `streams`
_SYNTHETIC_WIDTH = 3.0  # standard deviations that map to half the range of uint8; values beyond are clipped
_VALUES_AT_ONCE = 2**18  # of synthetic samples drawn per call: their float64 copies stay in the cache


@dataclass(frozen=True, kw_only=True)
class Synthetic(DataSettings):
    """Gaussian blobs, one per class, as uint8 features; the same for all trials."""

    name: str = "synthetic"
    train_samples: int = key("training samples", 2000, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    test_samples: int = key("test samples", 500, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    features: int = key("features per sample", 20, minimum=1, maximum=LARGEST_SIZE)
    classes: int = key("classes", 10, minimum=2, maximum=255)
    spread: float = key(
        "standard deviation within a class, in units of the spread between classes", 1.0, minimum=0, maximum=LARGEST
    )
    seed: int = key("seed of the data", 0, minimum=0, below=2**32)

    @property
    def model_entries(self) -> int | None:
        """As the keys say."""
        return self.features * self.classes

    def load(self, cache: Path) -> Dataset:
        """Blobs around centres from N(0, 1), one per class; training and test samples have separate streams."""
        centres = self._stream(0).standard_normal((self.classes, self.features))
        train = self._draw_blobs(centres, self.train_samples, self._stream(1))
        test = self._draw_blobs(centres, self.test_samples, self._stream(2))
        return Dataset("synthetic", *train, *test, self.classes, scale=1 / 255)

    def _stream(self, part: int) -> np.random.Generator:
        entropy = [self.seed, _SYNTHETIC_ENTROPY, part]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def _draw_blobs(
        self, centres: NDArray[np.float64], samples: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Features (samples, features) and labels; the labels as balanced as can be, in random order."""
        labels = generator.permutation(np.arange(samples, dtype=np.int64) % self.classes)
        features = np.empty((samples, self.features), dtype=np.uint8)
        # That of the centres and that within a class together; hypot does not overflow.
        deviation = math.hypot(1.0, self.spread)
        standardised = centres / deviation
        rows_at_once = max(1, _VALUES_AT_ONCE // self.features)
        for first in range(0, samples, rows_at_once):
            rows = slice(first, first + rows_at_once)
            values = generator.standard_normal(features[rows].shape)
            values *= self.spread / deviation
            values += standardised[labels[rows]]
            # whole numbers from 0 to 255: 0 in the middle, three standard deviations at the ends
            values *= 127.5 / _SYNTHETIC_WIDTH
            values += 127.5
            np.rint(values, out=values)
            features[rows] = np.clip(values, 0, 255, out=values)
        return frozen(features), frozen(labels)
