"""Who holds how many samples of which class: what figures and pages show of a split."""

from __future__ import annotations

from pathlib import Path

from areabench import datasets
from areabench.errors import UserError
from areabench.experiment import Experiment
from areabench.partition import Rows, count_labels, split


def labels_held(experiment: Experiment, source: Path, cache: Path) -> Rows:
    """Samples of each class that each client holds, shape (clients, classes); `source` is the file that says so."""
    if experiment.data is None or experiment.split is None:
        problem = experiment.problem.name
        raise UserError(f"{source}: problem `{problem}` has no labels to split; take one with [data] and [split]")
    data = datasets.load(experiment.data, cache)
    parts = split(experiment.split, data.train_labels, experiment.clients.count, experiment.seed)
    return count_labels(data.train_labels, parts, data.classes)
