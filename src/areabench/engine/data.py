"""The data of an experiment and its split, from the package or from functions of the user's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from areabench.errors import UserError
from areabench.problems.base import Problem, ProblemSettings
from areabench.problems.data.settings import DataSettings
from areabench.problems.datasets import Dataset, is_sparse
from areabench.settings.keys import is_own
from areabench.settings.limits import LARGEST

_ABSURD = 20.0  # how many times the loss of a guess


def load_data(settings: DataSettings, cache: Path, *, prepared: bool = False) -> Dataset:
    """The data set of an experiment; `prepared`: this node's cache was filled and checked just now."""
    if not prepared and not is_own(settings):
        settings.prepare(cache)
    return settings.load(cache)


def check_fit(problem: ProblemSettings, settings: DataSettings, data: Dataset) -> None:
    """Refuse data that a problem of the package does not take."""
    name = f"data.name = {settings.name!r}"
    task = f'problem "{problem.name}"'
    if is_sparse(data.train_features) and not problem.takes_sparse:
        raise UserError(f"{name}: has sparse features, which {task} does not take; set data.dense = true")
    if not data.classes and not problem.takes_targets:
        raise UserError(f'{name}: has numbers to predict, {task} takes classes; use problem "regression"')
    if data.train_features.dtype != np.uint8:
        _check_range(name, data)


def _check_range(name: str, data: Dataset) -> None:
    """Refuse features whose squares and products would not be finite in float32."""
    parts = (data.train_features, data.test_features)
    largest = max(abs(float(end)) for part in parts for end in _ends(part))
    if largest * max(1.0, abs(data.scale)) > LARGEST:
        raise UserError(
            f"{name}: has features up to {largest:.3g}, which the package's problems allow up "
            f"to {LARGEST:g}; scale them, for example to mean 0 and standard deviation 1"
        )


def guessing_loss(problem: Problem, data: Dataset) -> float:
    """About the loss of a model that ignores the features; at least 1 where it names a class."""
    if data.classes:
        return max(1.0, math.log(data.classes))
    constant = np.zeros(problem.dimension, dtype=problem.dtype)
    constant[-1] = data.train_labels.mean()
    return float(problem.evaluate([constant]).train_loss[0])


def absurd_loss(loss: float, guessing: float, data: Dataset) -> str:
    """A warning about the loss at the start where it is far above that of a guess; empty elsewhere."""
    if not loss > _ABSURD * guessing:
        return ""
    lowest, highest = feature_range(data)
    return (
        f"the loss at the start is {loss:,.4g}, that of a guess about {guessing:.3g}; inputs are from {lowest:.4g} to "
        f"{highest:.4g}: scale them (data.standardise or data.scale), or lower problem.start_width"
    )


def feature_range(data: Dataset) -> tuple[float, float]:
    """The least and the greatest input of a model, over training and test samples."""
    ends = [float(end) * data.scale for part in (data.train_features, data.test_features) for end in _ends(part)]
    return min(ends), max(ends)


def _ends(features: Any) -> tuple[Any, Any]:
    return features.min(), features.max()


@dataclass(frozen=True)
class ClassCount:
    """A class, and how many samples there are of it."""

    name: str
    train: int
    test: int


@dataclass(frozen=True)
class DataSummary:
    """What data are like: sizes, the range of a model's inputs, and classes, or the range of the targets."""

    name: str
    train_samples: int
    test_samples: int
    features: int
    type: str
    filled: float | None  # share of the features that are kept, of sparse ones
    lowest: float
    highest: float
    classes: tuple[ClassCount, ...]
    lowest_target: float | None
    highest_target: float | None


def describe(data: Dataset) -> DataSummary:
    """The summary of a data set."""
    train = data.train_labels
    test = data.test_labels
    features = data.train_features
    classes: tuple[ClassCount, ...] = ()
    lowest_target = highest_target = None
    if data.classes:
        names = data.class_names or tuple(map(str, range(data.classes)))
        counts = [np.bincount(each, minlength=len(names)).tolist() for each in (train, test)]
        classes = tuple(ClassCount(*each) for each in zip(names, *counts, strict=True))
    else:
        lowest_target = float(train.min())
        highest_target = float(train.max())
    filled = None
    if is_sparse(features):
        filled = features.nnz / math.prod(features.shape)
    lowest, highest = feature_range(data)
    return DataSummary(
        name=data.name,
        train_samples=len(train),
        test_samples=len(test),
        features=features.shape[1],
        type=str(features.dtype),
        filled=filled,
        lowest=lowest,
        highest=highest,
        classes=classes,
        lowest_target=lowest_target,
        highest_target=highest_target,
    )
