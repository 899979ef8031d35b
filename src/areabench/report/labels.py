"""The label distribution of the split: computed again from experiment and data, without code that a run file names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.figures.data import Page
from areabench.figures.words import split_name
from areabench.label_counts import recorded_labels
from areabench.problem_settings import DataSettings, SplitSettings
from areabench.report.records import Labels, Numbers

MOST_CLIENTS = 256
_NO_COUNTS = np.empty((0, 0), np.int64)


@dataclass(frozen=True)
class _Key:
    """What a split depends on."""

    data: DataSettings | None
    split: SplitSettings | None
    clients: int
    seed: int


def labels_of(pages: Sequence[Page], cache: Path) -> Iterator[Labels]:
    """The split of the first run of each setting; what several settings share is computed once."""
    shared: dict[_Key, list[int]] = {}
    for index, page in enumerate(pages):
        experiment = page.experiment
        key = _Key(experiment.data, experiment.split, experiment.clients.count, experiment.seed)
        shared.setdefault(key, []).append(index)
    for settings in shared.values():
        first = pages[settings[0]]
        yield _labels(tuple(settings), first.experiment, first.results[0].path, cache)


def _labels(settings: tuple[int, ...], experiment: Experiment, path: Path, cache: Path) -> Labels:
    title, clients = f"{split_name(experiment)}, seed {experiment.seed}", experiment.clients.count
    try:
        counts = _count(experiment, path, cache)
    except UserError as error:
        return Labels(title, settings, str(error), clients, _NO_COUNTS)
    return Labels(title, settings, "", clients, counts[:MOST_CLIENTS])


def _count(experiment: Experiment, path: Path, cache: Path) -> Numbers:
    """Samples of each class that each client holds; a UserError where there are none to know."""
    if experiment.data is None or experiment.split is None:  # said to somebody who looks at a page, not at a file
        raise UserError(f"The problem {experiment.problem.name} has no labels to split.")
    return recorded_labels(experiment, path, cache)
