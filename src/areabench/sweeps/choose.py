"""The choice of a tuned sweep: of each method the best setting on the tuning seeds, and the runs that test it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from areabench.errors import UserError
from areabench.experiment.labels import method_label
from areabench.sweeps.file import SweepFile
from areabench.sweeps.plan import Candidates, Member, candidates_of, members_at
from areabench.sweeps.tune import Metric, Tune

if TYPE_CHECKING:
    from areabench.sweeps.read import Result, Sweep


@dataclass(frozen=True)
class Tuning:
    """What was tuned and chosen in a sweep, for readers of its tables."""

    tune: Tune
    results: tuple[Result, ...]  # of the tuning seeds
    missing: tuple[Member, ...]  # without which nothing is chosen
    notes: tuple[str, ...] = ()  # best settings at the edge, and methods without one
    test_seeds: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The tuned keys."""
        return tuple(one.key for one in self.tune.keys)

    @property
    def sentence(self) -> str:
        """What the tables show, in words."""
        tune = self.tune
        seeds = f"seed {tune.seeds[0]}" if len(tune.seeds) == 1 else f"seeds {tune.seeds[0]} to {tune.seeds[-1]}"
        return (
            f"of each method the setting with the {tune.words}, of at most {tune.budget} tried "
            f"({tune.search} search over {', '.join(self.keys)}) on {seeds}; "
            "shown on other seeds"
        )


def tuning_notes(sweep: Sweep) -> list[str]:
    """What the views of a tuned sweep show, and what is to be said about the choice; nothing of other sweeps."""
    tuning = sweep.tuning
    return [] if tuning is None else [f"{sweep.plan.name} shows {tuning.sentence}", *tuning.notes]


def chosen(file: SweepFile, results: Mapping[str, Result]) -> tuple[list[Member], tuple[str, ...]]:
    """The test runs of a sweep whose tuning runs are done, given by file name; and what to say about the choice."""
    assert file.tune is not None
    members: list[Member] = []
    notes: dict[str, list[str]] = {}  # what is to be said, and of whom
    for group in candidates_of(file):
        scores = []
        for number, point in enumerate(group.points):
            files = [member.file for member in members_at(file, group, point, file.tune.seeds)]
            trials = [results[name] for name in files if name in results]
            if trials and not any(trial.has_diverged for trial in trials):
                scores.append((score_of(trials, file.tune.metric, file.tune.target), number))
        if not scores:
            failed = "no setting that was tried is without a diverged or failed trial"
            notes.setdefault(failed, []).append(_name(file, group))
            continue
        best = group.points[min(scores)[1]]
        members += members_at(file, group, best, None)
        for words in edges(group.points, best):
            notes.setdefault(words, []).append(_name(file, group))
    return members, tuple(f"{'; '.join(names)}: {words}" for words, names in notes.items())


def edges(points: Sequence[tuple[tuple[str, Any], ...]], best: tuple[tuple[str, Any], ...]) -> list[str]:
    """The numbers of the best setting that are the smallest or largest of those tried."""
    found = []
    for key, value in best:
        tried = sorted({dict(point)[key] for point in points if isinstance(dict(point)[key], int | float)})
        if len(tried) > 1 and value in (tried[0], tried[-1]):
            found.append(
                f"the best {key} = {value:g} is at the edge of the grid ({tried[0]:g} to {tried[-1]:g}); "
                "a better one may lie beyond it"
            )
    return found


def _name(file: SweepFile, group: Candidates) -> str:
    """The method and its rates in words."""
    experiment = next((one.experiment for one in members_at(file, group, group.points[0], None)), None)
    return (
        group.method
        if experiment is None
        else (f"{method_label(experiment.method.name)}, {experiment.rates.describe()}")
    )


def score_of(trials: Sequence[Result], metric: Metric, target: float) -> tuple[float, ...]:
    """Smaller is better. By time: fewest trials that never reach the target, then the mean time of those that do."""
    if metric == "loss":
        return (statistics.fmean(trial.final_loss for trial in trials),)
    accuracy = statistics.fmean(trial.final_accuracy for trial in trials)
    if math.isnan(accuracy):
        raise UserError('the problem has no accuracy to choose by; use --metric loss, or metric = "loss" in [tune]')
    if metric == "accuracy":
        return (-accuracy,)
    if not all(trial.knows_time_to(target) for trial in trials):
        raise UserError(
            f'the time to {target:g} % is not known (record.snapshots = "none", or a run ended before its horizon); '
            'use --metric accuracy, or metric = "accuracy" in [tune]'
        )
    times_s = [trial.time_to_accuracy(target) for trial in trials]
    reached_s = [time_s for time_s in times_s if math.isfinite(time_s)]
    return (len(times_s) - len(reached_s), statistics.fmean(reached_s) if reached_s else math.inf, -accuracy)
