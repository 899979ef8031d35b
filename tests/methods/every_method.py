"""One small experiment for each method, and what must hold for a run of any of them.

The experiments follow from the methods' records: a new method needs no line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.events import Kind
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods import AGGREGATIONS, METHODS, SCHEDULES
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryUpdates
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.iid import Iid
from areabench.runfile.read import Run, open_run
from areabench.settings.keys import Need
from areabench.settings.parse import hints_of
from areabench.timing import DELAYS
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates
from areabench.transports.replay import Replay
from areabench.transports.simulator import LaneEnd

OF_SECTION = {"aggregation": AGGREGATIONS, "delays": DELAYS, "schedule": SCHEDULES}
SHORT_ROUNDS = {"fedcompass": {"min_steps": 1, "max_steps": 4}}  # by default one takes longer than the run


def settings_of(name: str, step_size: float = 0.02, **keys: object) -> MethodSettings:
    """The settings of a method, with values for the keys that have no default."""
    record = METHODS[name]
    required = {item.name for item in fields(record) if item.default is MISSING} - {"step_size"}
    usual: dict[Any, object] = {int: 4, float: 5.0}
    chosen = {key: 0.2 if key.endswith("_s") else usual[hints_of(record)[key]] for key in required}
    settings: MethodSettings = record(step_size=step_size, **(chosen | SHORT_ROUNDS.get(name, {}) | keys))
    return settings


def with_need(experiment: Experiment, need: Need) -> Experiment:
    """The experiment with a value of another section that its method can do with."""
    section, _, name = need.key.partition(".")
    record = getattr(experiment, section)
    if getattr(record, name) in need.allowed:
        return experiment
    if name == "name":
        part = OF_SECTION[section][need.allowed[0]]
        record = part(**{item.name: 0.1 for item in fields(part) if item.default is MISSING})
    else:
        record = replace(record, **{name: need.allowed[0]})
    if section == "clients":
        record = replace(record, tick_s=0.05 if record.work == "ticks" else None)
    return replace(experiment, **{section: record})


def experiment_of(name: str, step_size: float = 0.02, **changes: Any) -> Experiment:
    """Five clients of uneven speed with noisy quadratics, two local steps, 2 s.

    `changes` are of sections, or else keys of the method.
    """
    sections = {item.name for item in fields(Experiment)}
    method = settings_of(name, step_size, **{key: value for key, value in changes.items() if key not in sections})
    experiment = Experiment(
        clients=Clients(count=5, local_steps=2),
        method=method,
        aggregation=EveryUpdates(updates=2),
        # steps that take time of their own show what a contact interrupts
        delays=ExponentialDelays(per="round" if method.contacts_per_second is None else "step"),
        rates=ListedRates(values=(20.0, 12.0, 8.0, 4.0, 2.0)),
        problem=Quadratic(dimension=3, noise=0.5),
        stop=Stop(horizon_s=2.0),
        record=Record(interval_s=0.25, average=True),
        seed=7,
    )
    for need in method.needs:
        experiment = with_need(experiment, need)
    if experiment.clients.work == "ticks":
        experiment = replace(experiment, clients=replace(experiment.clients, local_steps=20))
    given = {key: value for key, value in changes.items() if key in sections}
    return check_combinations(replace(experiment, **given))


def logistic_experiment(name: str, step_size: float, **keys: Any) -> Experiment:
    """The method on logistic regression, as a run that may share a pass."""
    base = experiment_of(name, step_size, **keys)
    return check_combinations(
        replace(
            base,
            clients=replace(base.clients, local_steps=1),
            problem=Logistic(batch_size=4),
            data=Synthetic(train_samples=60, test_samples=9, features=6, classes=3),
            split=Iid(),
            stop=Stop(horizon_s=3.0),
            record=Record(events=False, interval_s=0.5),
        )
    )


# Methods whose server needs sums of updates only.
BY_SUMS = tuple(
    name
    for name in METHODS
    if settings_of(name).build(experiment_of(name).method_inputs(np.ones(5), np.ones(5, np.int64))).add is not None
)


# ---------------------------------------------------------------------------------------------------- runs


Recorded = Callable[[Experiment], Run]  # the fixture `record`


def updates(run: Run) -> NDArray[Any]:
    """The events that are updates."""
    return np.asarray(run.events_array[run.events_array["kind"] == Kind.UPDATE])


def silent(_time_s: float, _updates: int) -> None:
    """No progress is shown."""


def replay_equals(path: Path, scenario: Scenario) -> None:
    """The run file replays bit for bit."""
    with open_run(path) as run:
        found = Replay(run, scenario, silent).run()
        assert found.difference is None
        assert found.events == len(run.events_array) > 0


def replays(path: Path, experiment: Experiment) -> None:
    """The run file of an experiment replays bit for bit."""
    replay_equals(path, build_scenario(experiment, path.parent))


class Spoilt:
    """A local problem whose third call gives a value that is not finite."""

    def __init__(self, local: Any) -> None:
        self._local = local
        self._calls = 0

    def _spoil(self, vector: Vector) -> Vector:
        self._calls += 1
        return np.full_like(vector, np.nan) if self._calls == 3 else vector

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        return self._spoil(self._local.descend(model, step_size, steps))

    def gradient(self, model: Vector) -> Vector:
        return self._spoil(self._local.gradient(model))

    def skip(self, steps: int) -> None:
        self._local.skip(steps)


def same_end(lane: LaneEnd | None, alone: LaneEnd | None) -> None:
    """Both runs counted the same, and ended at the same model up to rounding, in single precision."""
    assert lane is not None
    assert alone is not None
    assert lane.status == alone.status
    np.testing.assert_array_equal(lane.tally.staleness, alone.tally.staleness)
    for one, other in zip(lane.snapshots, alone.snapshots, strict=True):
        assert one[:3] == other[:3]
        assert one.models.dtype == np.float32
        np.testing.assert_allclose(np.ravel(one.models), np.ravel(other.models), rtol=2e-3, atol=2e-5)
