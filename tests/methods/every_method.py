"""One small experiment per method, with the sections that it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods import METHODS
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryPeriod, EveryUpdates
from areabench.problems.quadratic import Quadratic
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates

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

# Methods whose server needs sums of updates only.
BY_SUMS = (
    "area", "fedbuff", "as-fedavg", "server-momentum", "server-adam", "fadas", "ca2fl", "afa-cs", "dude", "afa-cd",
)  # fmt: skip


def settings_of(name: str, step_size: float = 0.02) -> MethodSettings:
    """The settings of a method, with its defaults where there are any."""
    settings: MethodSettings = METHODS[name](step_size=step_size, **NEEDED.get(name, {}))
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
