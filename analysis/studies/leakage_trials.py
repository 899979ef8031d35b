"""Whom the study attacks: runs by setting, victims by seed, and the scores of all attacks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies import leakage_cnn, leakage_logistic
from studies.leakage_matching import Effort
from studies.leakage_observations import (
    RECOVERED,
    Observation,
    determined,
    distances_of_mean,
    from_histories,
    from_message,
    from_sum,
    relative_errors,
)
from studies.leakage_runs import Message, RecordedRun, record
from studies.leakage_scores import Picture, Score, class_means, guess, score

from areabench.api import read_experiment
from areabench.problems.datasets import Dataset, default_cache
from areabench.results.statistics import SIGNIFICANCE, bounded_interval, holm, mean_interval, paired_difference

METHODS = ("area", "fedbuff", "as-fedavg")
PUBLIC = 1000  # test images that the attacker has: their mean, and how the model sees each class
_VICTIMS, _ATTACK = 1, 2  # streams of a seed


@dataclass(frozen=True)
class Setting:
    """What is varied."""

    model: str  # logistic or cnn
    batch_size: int
    local_steps: int
    updates: int  # Delta


@dataclass(frozen=True)
class Plan:
    """How much is run; a small one is for tests."""

    experiment: Path
    trials: int = 4
    victims: int = 4  # of each trial
    cnn_victims: int = 2
    effort: Effort = Effort()
    cnn_effort: Effort = Effort(iterations=200, starts=1)
    batches: tuple[int, ...] = (1, 4, 32)
    local_steps: tuple[int, ...] = (1, 10, 50)
    updates: tuple[int, ...] = (2, 4, 8, 16)
    summed: tuple[tuple[int, int], ...] = ((1, 1), (4, 1), (1, 10))  # mini-batch and M under secure aggregation
    cnn: tuple[tuple[int, int], ...] = ((1, 1), (4, 1), (32, 1), (1, 10))  # mini-batch and M
    cnn_updates: tuple[int, ...] = (2, 4, 8)
    clients: int = 128
    rounds: int = 4  # of a client, on average


@dataclass(frozen=True, eq=False)
class Attack:
    """One victim: what it held, what was found of it, and what two guesses without a message are worth."""

    held: Picture
    found: Score
    guessed: Score  # the mean image, the most frequent label
    classed: Score  # mean images of all classes


@dataclass(frozen=True, eq=False)
class Cell:
    """All attacks on one kind of observation: `view` is message, history or sum."""

    setting: Setting
    method: str
    view: str
    attacks: tuple[Attack, ...]

    @property
    def found(self) -> Values:
        """Of what was found, one row per victim."""
        return _values([attack.found for attack in self.attacks])

    @property
    def guessed(self) -> Values:
        """The same of who says the mean image and the most frequent label."""
        return _values([attack.guessed for attack in self.attacks])

    @property
    def classed(self) -> Values:
        """The same of who says the mean images of all classes."""
        return _values([attack.classed for attack in self.attacks])

    @property
    def has_learnt(self) -> bool:
        """Whether images or labels are better than both guesses, outside the noise."""
        chances = []
        for own, *others in zip(self.found, self.guessed, self.classed, strict=True):
            better = [paired_difference(own, other) for other in others]
            chances.append(max(each.p if each.mean > 0 else 1.0 for each in better))
        return min(holm(chances)) < SIGNIFICANCE


class Values(NamedTuple):
    """Scores of all victims, each of shape (victims,)."""

    psnr_db: NDArray[np.float64]
    label_percent: NDArray[np.float64]

    def __str__(self) -> str:
        """Both means with their 95 % intervals over the victims."""
        low, high = mean_interval(self.psnr_db)
        least, most = bounded_interval(self.label_percent, "test_accuracy")
        labels = f"{self.label_percent.mean():.0f} % ({least:.0f} to {most:.0f})"
        return f"{self.psnr_db.mean():.1f} dB ({low:.1f} to {high:.1f}); {labels}"


def _values(scores: Sequence[Score]) -> Values:
    return Values(np.array([each.psnr_db for each in scores]), np.array([100 * each.label_share for each in scores]))


@dataclass(frozen=True, eq=False)
class Fact:
    """Of all pseudo-gradients of the runs of a setting: the relative error of what the server has for each."""

    setting: Setting
    method: str
    view: str
    errors: NDArray[np.float64]
    determined: int = 0  # x_i that the sums determine; of secure aggregation only

    @property
    def recovered(self) -> float:
        """The share that was recovered."""
        return float((self.errors < RECOVERED).mean())


@dataclass(frozen=True, eq=False)
class Found:
    """Cells and facts, in the order of the plan."""

    cells: tuple[Cell, ...]
    facts: tuple[Fact, ...]

    def cell(self, setting: Setting, method: str, view: str) -> Cell:
        """One cell."""
        return next(each for each in self.cells if (each.setting, each.method, each.view) == (setting, method, view))


# ---------------------------------------------------------------------------------------------------- settings


def single_settings(plan: Plan) -> list[Setting]:
    """Settings in which the server sees each message."""
    logistic = [Setting("logistic", batch, steps, 4) for batch in plan.batches for steps in plan.local_steps]
    return logistic + [Setting("cnn", *each, 4) for each in plan.cnn]


def summed_settings(plan: Plan) -> list[Setting]:
    """Settings in which it sees the sum of a server step."""
    logistic = [Setting("logistic", *each, updates) for each in plan.summed for updates in plan.updates]
    return logistic + [Setting("cnn", *plan.cnn[0], updates) for updates in plan.cnn_updates]


# ---------------------------------------------------------------------------------------------------- attacks


def run_plan(plan: Plan, show: Callable[[str], None]) -> Found:
    """Make all runs and attack their messages; `show` is told what is next."""
    cells: list[Cell] = []
    facts: list[Fact] = []
    work = [(setting, False) for setting in single_settings(plan)]
    work += [(setting, True) for setting in summed_settings(plan)]
    for number, (setting, summed) in enumerate(work):
        for method in METHODS:
            words = f"{setting.model}, mini-batch {setting.batch_size}, M = {setting.local_steps}"
            show(f"{number + 1}/{len(work)}  {words}, Delta = {setting.updates}, {method}")
            made = _summed(plan, setting, method) if summed else _single(plan, setting, method)
            cells += made.cells
            facts += made.facts
    return Found(tuple(cells), tuple(facts))


def _single(plan: Plan, setting: Setting, method: str) -> Found:
    """Attacks on single messages, alone and with their history."""
    alone: list[Attack] = []
    known: list[Attack] = []
    errors: list[NDArray[np.float64]] = []
    sums: list[NDArray[np.float64]] = []
    for run in _runs(plan, setting, method):
        messages = [from_message(method, message) for message in run.messages]
        histories = list(from_histories(run))
        errors.append(relative_errors(run, messages))
        sums.append(relative_errors(run, histories))
        for victim in _victims(plan, run):
            alone.append(attack(plan, run, messages[victim.number]))
            if method == "area":
                known.append(attack(plan, run, histories[victim.number]))
    cells = [Cell(setting, method, "message", tuple(alone))]
    if method == "area":  # of the others a history says nothing more
        cells.append(Cell(setting, method, "history", tuple(known)))
    facts = [
        Fact(setting, method, view, np.concatenate(each)) for view, each in (("message", errors), ("history", sums))
    ]
    return Found(tuple(cells), tuple(facts))


def _summed(plan: Plan, setting: Setting, method: str) -> Found:
    """Attacks on the sums of server steps."""
    attacks: list[Attack] = []
    distances: list[NDArray[np.float64]] = []
    count = 0
    for run in _runs(plan, setting, method):
        distances.append(distances_of_mean(run))
        count += int(determined(run).sum())
        attacks += [attack(plan, run, from_sum(run, step)) for step in _steps(plan, run)]
    facts = [Fact(setting, method, "sum", np.concatenate(distances), count)]
    return Found((Cell(setting, method, "sum", tuple(attacks)),), tuple(facts))


def _runs(plan: Plan, setting: Setting, method: str) -> Iterator[RecordedRun]:
    """The runs of a setting, one per trial; methods share arrivals and mini-batches."""
    import os

    updates, pace = plan.clients * plan.rounds, setting.updates / plan.clients  # an update counts 1/n, as in AREA
    changes: dict[str, Any] = {
        "clients": {"count": plan.clients, "local_steps": setting.local_steps},
        "method": {"name": method, "step_size": 0.1} | ({"server_step_size": pace} if method == "fedbuff" else {}),
        "aggregation": {"updates": setting.updates},
        "stop": {"iterations": updates + updates // setting.updates},
    }
    if setting.model == "cnn":
        module = "studies.leakage_cnn:small_cnn"
        changes["problem"] = {"name": "torch", "module": module, "batch_size": setting.batch_size}
    else:
        changes["problem"] = {"batch_size": setting.batch_size}
    for trial in range(plan.trials):
        yield record(read_experiment(plan.experiment, seed=1 + trial, **changes), default_cache(os.environ))


def _generator(run: RecordedRun, purpose: int, number: int = 0) -> np.random.Generator:
    return np.random.default_rng([run.scenario.experiment.seed, purpose, number])


def _victims(plan: Plan, run: RecordedRun) -> list[Message]:
    """Messages of the second half that are not their client's first, drawn by the seed."""
    late = [message for message in run.messages[len(run.messages) // 2 :] if message.round > 0]
    chosen = _generator(run, _VICTIMS).permutation(len(late))[: _count(plan, run)]
    return [late[place] for place in chosen]


def _steps(plan: Plan, run: RecordedRun) -> list[int]:
    """Server steps of the second half, drawn by the seed; first those whose updates come from different clients."""
    late: list[int] = _generator(run, _VICTIMS).permutation(np.arange(run.steps // 2, run.steps)).tolist()
    late.sort(key=lambda step: -len({message.client for message in run.of_step(step)}))
    return late[: _count(plan, run)]


def _count(plan: Plan, run: RecordedRun) -> int:
    """Victims of a run."""
    return plan.cnn_victims if run.settings.name == "torch" else plan.victims


def attack(plan: Plan, run: RecordedRun, observation: Observation) -> Attack:
    """Look for the images behind an observation, and compare with what the victims held."""
    held = held_picture(run, observation.victims)
    public = public_picture(_data(run))
    found = _found(plan, run, observation, public)
    classed = class_means(public, len(held.labels))
    return Attack(held, score(found, held), score(guess(public), held), score(classed, held))


def held_picture(run: RecordedRun, victims: Sequence[Message]) -> Picture:
    """The images that the victims used in their rounds."""
    data = _data(run)
    rows = np.concatenate([run.held(victim).ravel() for victim in victims])
    return Picture(data.train_features[rows] * data.scale, data.train_labels[rows])


def public_picture(data: Dataset) -> Picture:
    """Images that everybody has."""
    return Picture(data.test_features[:PUBLIC] * data.scale, data.test_labels[:PUBLIC])


def _data(run: RecordedRun) -> Dataset:
    assert run.scenario.data is not None
    return run.scenario.data


def _found(plan: Plan, run: RecordedRun, observation: Observation, public: Picture) -> Picture:
    settings = run.settings
    data = _data(run)
    generator = _generator(run, _ATTACK, observation.rounds[0].number)
    steps = run.local_steps
    batch_size = settings.batch_size
    if settings.name == "torch":
        module = _network(data.train_features.shape[1], data.classes)
        mean = public.images.mean(axis=0)
        network = leakage_cnn.NetworkRound(module, data.classes, steps, batch_size)
        return leakage_cnn.match_images(observation, network, mean, generator, plan.cnn_effort)
    known = leakage_logistic.LogisticRound(data.classes, settings.regularisation, steps, batch_size)
    if len(observation.rounds) * steps * batch_size == 1:
        return leakage_logistic.closed_form(observation, known)
    return leakage_logistic.match_images(observation, known, public, generator, plan.effort)


@cache
def _network(features: int, classes: int) -> Any:
    """The network without a model of its own: matching gives it those that were sent."""
    return leakage_cnn.small_cnn(features, classes).double()
