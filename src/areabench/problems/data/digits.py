"""scikit-learn's digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from areabench.problems.data.scikit_learn import scikit_learn_table
from areabench.problems.data.settings import DataSettings
from areabench.problems.datasets import Dataset, frozen


@dataclass(frozen=True, kw_only=True)
class Digits(DataSettings):
    """scikit-learn's 8×8 digits: 1,437 training and 360 test images (needs scikit-learn)."""

    name: str = "digits"

    @property
    def train_samples(self) -> int:
        """Training samples: four fifths of 1,797."""
        return 1437

    @property
    def model_entries(self) -> int | None:
        """64 pixels, ten classes."""
        return 640

    def load(self, cache: Path) -> Dataset:
        """The digits in their own order: the first for training, the last 360 for testing."""
        table = scikit_learn_table("digits", self.name)
        features = frozen(table.data.astype(np.uint8))
        labels = frozen(table.target.astype(np.int64))
        train = slice(None, self.train_samples)
        test = slice(self.train_samples, None)
        return Dataset("digits", features[train], labels[train], features[test], labels[test], classes=10, scale=1 / 16)
