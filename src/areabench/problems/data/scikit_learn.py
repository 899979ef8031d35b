"""Small tables that scikit-learn carries."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
        from areabench.problems.data.samples import RawSamples, dataset_of, with_intercept  # few runs need them

        table = scikit_learn_table(self.set, self.name)
        names = getattr(table, "target_names", None)
        if names is None:
            labels = table.target
            task = "regression"
        else:
            labels = np.asarray(names)[table.target]
            task = "classification"
        data = dataset_of(self.set, f"data set {self.set}", RawSamples(table.data, labels), None, self, task)
        return with_intercept(data) if self.intercept else data


def scikit_learn_table(name: str, data: str) -> Any:
    """One of scikit-learn's tables for the data set `data`, which begins an error."""
    try:
        return getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    except ImportError as error:
        raise UserError(
            f"data `{data}` needs scikit-learn, which cannot be imported ({error}); pip install scikit-learn"
        ) from error
