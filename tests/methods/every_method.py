"""One small experiment per method, with the sections that it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from areabench.experiment.checks import check_combinations
from areabench.experiment.fields import SAMPLE_PATH
from areabench.experiment.method_records import MethodSettings
from areabench.experiment.parse import name_of
from areabench.experiment.problem_records import Quadratic
from areabench.experiment.records import (
    Clients,
    EveryPeriod,
    EveryUpdates,
    Experiment,
    ExponentialDelays,
    ListedRates,
    Record,
    Stop,
)

NEEDED: dict[str, dict[str, Any]] = {  # keys without a default
    "ringmaster": {"max_delay": 4},
    "rennala": {"batch": 3},
    "malenia": {"batch": 5.0},
    "quafl": {"period_s": 0.2, "clients_per_round": 2},
    "favas": {"period_s": 0.2, "clients_per_round": 2},
    "s-fedavg": {"clients_per_round": 3},
    "fedcompass": {"min_steps": 1, "max_steps": 4},
}
BY_CLOCK = ("fedfix", "mifa")
PER_STEP = ("quafl", "favas", "fedcompass")

RECORDS = {name_of(record): record for record in get_args(MethodSettings) if name_of(record) != SAMPLE_PATH}


def settings_of(name: str, step_size: float = 0.02) -> MethodSettings:
    """The settings of a method, with its defaults where there are any."""
    settings: MethodSettings = RECORDS[name](step_size=step_size, **NEEDED.get(name, {}))
    return settings


def experiment_of(name: str, step_size: float = 0.02) -> Experiment:
    """Five clients of uneven speed with noisy quadratics, two local steps, 2 s."""
    experiment = Experiment(
        clients=Clients(count=5, local_steps=2),
        method=settings_of(name, step_size),
        aggregation=EveryPeriod(period_s=0.1) if name in BY_CLOCK else EveryUpdates(updates=2),
        delays=ExponentialDelays(per="step") if name in PER_STEP else ExponentialDelays(),
        rates=ListedRates(values=(20.0, 12.0, 8.0, 4.0, 2.0)),
        problem=Quadratic(dimension=3, noise=0.5),
        stop=Stop(horizon_s=2.0),
        record=Record(interval_s=0.25, average=True),
        seed=7,
    )
    if name == "asynccomm-sgd":
        experiment = replace(experiment, clients=Clients(count=5, local_steps=20, work="ticks", tick_s=0.05))
    return check_combinations(experiment)
