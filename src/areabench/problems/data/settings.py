"""What every data set says of itself in an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from areabench.problems.datasets import Dataset

TEST_SHARE = "share of the samples, drawn once, that are for testing"
STANDARDISE = (
    "shift and scale each feature, and the targets of a regression, to mean 0 and standard deviation 1 over the "
    "training samples"
)
INTERCEPT = "add a feature that is always 1: an intercept for `logistic` and `hinge`, which have none of their own"


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The section [data]; each data set's file has a record of its own."""

    own: ClassVar[bool] = False  # whether this is a part of the user's own
    may_share_pass: ClassVar[bool] = True  # whether the memory of a lane is known before the data are loaded

    name: str = ""

    @property
    def train_samples(self) -> int | None:
        """Training samples; None where that is known only once they are loaded."""
        return None

    @property
    def model_entries(self) -> int | None:
        """Entries of a linear model of the classes; None where that is known only once the data are loaded."""
        return None

    @property
    def title(self) -> str:
        """The data in a few words."""
        return self.name

    def prepare(self, cache: Path) -> None:
        """Put into the cache folder, and check there, what the ranks of a node share; safe in several at once."""

    def load(self, cache: Path) -> Dataset:
        """The data set."""
        raise NotImplementedError
