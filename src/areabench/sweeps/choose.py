"""The choice of a tuned sweep: of each method the best setting on the tuning seeds, and the runs that test it."""

from __future__ import annotations

import hashlib
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from areabench.errors import RunFailure, UserError
from areabench.experiment.labels import method_label
from areabench.files import check_checksum, replace_text, with_checksum
from areabench.settings.toml import block, read_text, read_toml
from areabench.sweeps.file import SweepFile
from areabench.sweeps.passes import part_of
from areabench.sweeps.plan import Candidates, Member, SweepPlan, candidates_of
from areabench.sweeps.tune import Metric, Setting

if TYPE_CHECKING:
    from areabench.sweeps.read import Sweep
    from areabench.sweeps.result import Result

CHOICE_FILE = "chosen.toml"


@dataclass(frozen=True)
class TunedChoice:
    """What a tuned sweep has chosen, by point of its grids; None where no setting can be used."""

    settings: tuple[Setting | None, ...]
    notes: tuple[str, ...]  # best settings at the edge, and methods without one

    def tested(self, plan: SweepPlan) -> SweepPlan:
        """The plan with the runs that test the chosen settings."""
        members: list[Member] = []
        for group, setting in zip(candidates_of(plan.file), self.settings, strict=True):
            if setting is not None:
                members += group.test_runs(setting)
        return replace(plan, members=tuple(members))


def tuning_notes(sweep: Sweep) -> list[str]:
    """What the views of a tuned sweep show, and what is to be said about the choice; nothing of other sweeps."""
    if sweep.tuning is None:
        return []
    return [f"{sweep.plan.name} shows {sweep.tuning.sentence}", *sweep.tuning.notes]


def choose_settings(file: SweepFile, results: Mapping[str, Result]) -> TunedChoice:
    """The choice of a sweep whose tuning runs are done, given by file name."""
    assert file.tune is not None
    settings: list[Setting | None] = []
    notes: dict[str, list[str]] = {}  # what is to be said, and of whom
    for group in candidates_of(file):
        scores = []
        for number, point in enumerate(group.points):
            trials = [results[member.file] for member in group.tuning_runs(point) if member.file in results]
            # A setting that diverges once in a while is of no use, however fast it is otherwise.
            if trials and not any(trial.has_diverged for trial in trials):
                # Of equally good settings the first is taken.
                scores.append((score_of(trials, file.tune.metric, file.tune.target), number))
        best = None
        said = ["no setting that was tried is without a diverged or failed trial"]
        if scores:
            best = group.points[min(scores)[1]]
            said = edges(group.points, best)
        settings.append(best)
        for words in said:
            notes.setdefault(words, []).append(_name(group))
    return TunedChoice(tuple(settings), tuple(f"{'; '.join(names)}: {words}" for words, names in notes.items()))


def write_choice(folder: Path, plan: SweepPlan, choice: TunedChoice) -> None:
    """Write the choice of a sweep down, for all who read its folder."""
    blocks = [block({"sweep": _digest(plan), "notes": choice.notes})]
    for group, setting in zip(candidates_of(plan.file), choice.settings, strict=True):
        lines = block({"method": _name(group)})
        if setting is not None:
            lines += block({"settings": dict(setting)})
        blocks.append(f"[[chosen]]\n{lines}")
    path = folder / CHOICE_FILE
    try:
        replace_text(path, with_checksum("\n".join(blocks)), part_of(path, os.getpid()))
    except OSError as error:
        raise RunFailure(f"{path}: cannot be written: {error.strerror}; make room") from error


def read_choice(folder: Path, plan: SweepPlan) -> TunedChoice | None:
    """The choice of a sweep; None where it has not been made, or was made by another sweep."""
    path = folder / CHOICE_FILE
    if not path.is_file():
        return None
    text = read_text(path)
    check_checksum(path, text)
    table = read_toml(text, str(path))
    if table["sweep"] != _digest(plan):
        return None
    settings = [tuple(entry["settings"].items()) if "settings" in entry else None for entry in table["chosen"]]
    return TunedChoice(tuple(settings), tuple(table["notes"]))


def _digest(plan: SweepPlan) -> str:
    """What tells sweeps apart that are written differently."""
    return hashlib.sha256(plan.file.text().encode()).hexdigest()


def _name(group: Candidates) -> str:
    """The method and its rates in words."""
    for member in group.test_runs(group.points[0]):
        if (experiment := member.experiment) is not None:
            return f"{method_label(experiment.method.name)}, {experiment.rates.describe()}"
    return group.method


def edges(points: Sequence[Setting], best: Setting) -> list[str]:
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
