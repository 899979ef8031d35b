"""Which step sizes the paper keeps of its grid, and which its rule keeps of our runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from paper.published import published

from areabench.problems.data.mnist import Mnist
from areabench.problems.datasets import Dataset, default_cache
from areabench.results.retention import Rule, Selection, by_step_size
from areabench.runfile.read import open_run
from areabench.sweeps.result import Result

SINGLE_PRECISION_GAP = 103.0  # exp(-103.3) is the smallest positive float32; beyond it log(softmax) is -inf
Gaps = Mapping[Path, float]  # the score gap at the end of each run file that has its last model
_NO_GAPS: Gaps = MappingProxyType({})
_MODELS_AT_ONCE = 64
_IMAGES_AT_ONCE = 4000


def as_published(results: Sequence[Result], seeds: Sequence[int]) -> Selection:
    """The step sizes that the paper's table shows, as far as they were run."""
    shown = {result.experiment.method.step_size for result in results if published(result.experiment) is not None}
    return Selection(tuple(sorted(shown)), tuple(sorted(set(seeds))))


def largest_finite(
    results: Sequence[Result], seeds: Sequence[int], bound: float = math.inf, gaps: Gaps = _NO_GAPS
) -> Selection:
    """The paper's rule: the two largest step sizes that end with a finite loss in all trials.

    A loss above `bound` counts as not finite, and so does one in single precision, where the score gap is known.
    """

    def is_finite(trial: Result) -> bool:
        if trial.has_diverged or gaps.get(trial.path, 0.0) > SINGLE_PRECISION_GAP:
            return False
        return trial.final_loss <= bound

    finite = [size for size, trials in by_step_size(results) if all(map(is_finite, trials))]
    return Selection(tuple(finite[-2:]), tuple(sorted(set(seeds))))


PUBLISHED = Rule("published", "of each method the step sizes that the paper's table shows", as_published)
PAPER_RULE = Rule(
    "paper-rule", "of each method the two largest step sizes whose final loss is finite in all trials", largest_finite
)


def score_gaps(results: Sequence[Result]) -> Gaps:
    """By how much a wrong class outscores the right one at the end of each run, at worst over MNIST's training images.

    Beyond SINGLE_PRECISION_GAP the loss is infinite if it is a plain log(softmax) in single precision.
    """
    paths = [result.path for result in results if not result.has_diverged and result.path.is_file()]
    if not paths:
        return {}
    data = Mnist().load(default_cache(os.environ))
    shape = (data.classes, data.train_features.shape[1])
    found: dict[Path, float] = {}
    for first in range(0, len(paths), _MODELS_AT_ONCE):
        chosen = paths[first : first + _MODELS_AT_ONCE]
        weights = np.stack([_last_model(path).reshape(shape) for path in chosen])
        found.update(zip(chosen, widest_gaps(weights, data).tolist(), strict=True))
    return found


def _last_model(path: Path) -> NDArray[np.float32]:
    with open_run(path) as run:
        return run.model(-1)


def widest_gaps(weights: NDArray[np.float32], data: Dataset) -> NDArray[np.float64]:
    """The score gap of each of some models, shape (models, classes, features), over the training samples."""
    models, classes, features = weights.shape
    widest = np.zeros(models)
    for first in range(0, len(data.train_labels), _IMAGES_AT_ONCE):
        rows = slice(first, first + _IMAGES_AT_ONCE)
        labels = data.train_labels[rows]
        inputs = data.train_features[rows].astype(np.float32) * np.float32(data.scale)
        scores = (weights.reshape(-1, features) @ inputs.T).reshape(models, classes, len(labels))
        right = scores[:, labels, np.arange(len(labels))]
        widest = np.maximum(widest, (scores.max(axis=1) - right).max(axis=1))
    return widest
