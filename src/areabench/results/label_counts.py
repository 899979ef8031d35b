"""Who holds how many samples of which class: what figures and pages show of a split."""

from __future__ import annotations

from pathlib import Path

from areabench.engine.data import load_data
from areabench.errors import UserError
from areabench.experiment.experiment import Experiment
from areabench.plugins.callables import BUILT_IN_MODULES
from areabench.plugins.paths import user_functions
from areabench.problems.splits.rows import Rows, count_labels


def recorded_labels(experiment: Experiment, source: Path, cache: Path) -> Rows:
    """As `labels_held`, for a run file that may come from anybody: code that it names for data or split is not run."""
    parts = user_functions(experiment)
    # A picture of a file from somebody else must not run code that the file names.
    named = [parts[section].name for section in ("data", "split") if section in parts]
    if own := [path for path in named if path.partition(":")[0] not in BUILT_IN_MODULES]:
        raise UserError(
            f"{source}: its labels come from {' and '.join(map(repr, own))}, code that the run file names and that is "
            "not run for a picture; draw them from your experiment file with `areabench figures --split`"
        )
    return labels_held(experiment, source, cache)


def labels_held(experiment: Experiment, source: Path, cache: Path) -> Rows:
    """Samples of each class that each client holds, shape (clients, classes); `source` is the file that says so."""
    if experiment.data is None or experiment.split is None:
        problem = experiment.problem.name
        raise UserError(f"{source}: problem `{problem}` has no labels to split; take one with [data] and [split]")
    data = load_data(experiment.data, cache)
    parts = experiment.split.rows(data.groups, experiment.clients.count, experiment.seed)
    return count_labels(data.groups, parts, data.classes or int(data.groups.max()) + 1)
