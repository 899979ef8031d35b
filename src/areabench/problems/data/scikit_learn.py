"""Small tables that scikit-learn carries."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from areabench.errors import UserError
from areabench.problems.data.settings import INTERCEPT, STANDARDISE, TEST_SHARE, DataSettings
from areabench.problems.datasets import Dataset
from areabench.settings.keys import key


@dataclass(frozen=True, kw_only=True)
class ScikitLearn(DataSettings):
    """A small table that scikit-learn carries (needs scikit-learn); `diabetes` is for regression."""

    name: str = "scikit-learn"
    set: Literal["iris", "wine", "breast_cancer", "diabetes"] = key("which table")
    standardise: bool = key(STANDARDISE, True)
    intercept: bool = key(INTERCEPT, False)
    test_share: float = key(TEST_SHARE, 0.2, above=0, below=1)
    seed: int = key("seed of that draw; the same for all trials", 0, minimum=0, below=2**32)

    @property
    def title(self) -> str:
        """Which table."""
        return self.set

    def load(self, cache: Path) -> Dataset:
        """The table."""
        from areabench.problems.data.formats import FileSamples, RawSamples  # few runs need them
        from areabench.problems.data.samples import dataset_of, with_intercept

        try:
            bunch = getattr(importlib.import_module("sklearn.datasets"), f"load_{self.set}")()
        except ImportError as error:
            raise UserError(
                f"data `scikit-learn` needs scikit-learn, which cannot be imported ({error}); pip install scikit-learn"
            ) from error
        names = getattr(bunch, "target_names", None)
        labels = bunch.target if names is None else np.asarray(names)[bunch.target]
        task = "regression" if names is None else "classification"
        found = FileSamples(RawSamples(bunch.data, labels))
        data = dataset_of(self.set, f"data set {self.set}", found, self, task)
        return with_intercept(data) if self.intercept else data
