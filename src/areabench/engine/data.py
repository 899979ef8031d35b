"""The data of an experiment and its split, from the package or from functions of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from areabench.engine.plugins.parts import own_data, own_split
from areabench.experiment.fields import OwnPart
from areabench.experiment.problem_records import DataSettings, SplitSettings
from areabench.problems import datasets
from areabench.problems.datasets import Dataset
from areabench.problems.splits import split


@dataclass(frozen=True)
class ClientData:
    """A data set, and which of its training rows each client holds."""

    data: Dataset
    parts: Sequence[NDArray[np.int64]]


def prepare_data(settings: DataSettings, cache: Path) -> None:
    """Put into the cache folder, and check there, what the ranks of this node share; safe in several at once."""
    if isinstance(settings, OwnPart):
        own_data(settings, cache)  # which may leave files there for the ranks that follow
    else:
        datasets.prepare(settings, cache)


def load_data(settings: DataSettings, cache: Path, *, prepared: bool = False) -> Dataset:
    """The data set of an experiment; `prepared`: this node's cache was filled and checked just now."""
    if isinstance(settings, OwnPart):
        return own_data(settings, cache)
    return datasets.load(settings, cache, prepared=prepared)


def split_rows(settings: SplitSettings, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    """The sorted training rows of each client."""
    if isinstance(settings, OwnPart):
        return own_split(settings, labels, clients, seed)
    return split(settings, labels, clients, seed)
