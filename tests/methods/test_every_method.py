"""What every method must do: it is listed, resumes and replays to the bit, survives lost clients and bad updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.every_method import (
    Spoilt,
    experiment_of,
    logistic_experiment,
    replays,
    same_end,
    settings_of,
    silent,
)
from tests.methods.table import arrival, inputs
from tests.transports.test_resume import around, assert_equal_after, stop_at

from areabench.engine.events import Kind, State
from areabench.engine.lanes import build_pass, group_lanes
from areabench.engine.scenario import build_scenario
from areabench.experiment.experiment import Clients, Experiment, Faults, Stop
from areabench.methods import METHODS
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import PoissonAggregation
from areabench.methods.local import Local
from areabench.methods.schedules import InverseRootTimeSchedule, InverseTimeSchedule
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import open_run
from areabench.timing.exponential import ExponentialDelays
from areabench.transports.session import simulate_run
from areabench.transports.simulator import simulate_lanes

__all__ = ["stop_at"]  # a fixture

UNIFORM = Clients(count=5, local_steps=6, work="uniform")
TICKS = Clients(count=5, local_steps=6, work="ticks", tick_s=0.05)
LONGER = Stop(horizon_s=6.0)
BY_STEP = ExponentialDelays(per="step")
OPTIONS = Local(prox=0.1, momentum=0.5, control_variates=True)

# Methods, with keys and sections that change who works, what is sent, or what a state holds.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "AREA, first messages zero": ("area", {"first_message": "zero"}),
    "AREA, prox": ("area", {"local": Local(prox=0.5)}),
    "AREA, momentum": ("area", {"local": Local(momentum=0.9)}),
    "AREA, steps drawn": ("area", {"clients": UNIFORM}),
    "AREA, timed steps drawn": ("area", {"clients": UNIFORM, "delays": BY_STEP}),
    "AREA, ticks": ("area", {"clients": TICKS}),
    "AREA, 1/t": ("area", {"schedule": InverseTimeSchedule(offset_s=0.5)}),
    "QuAFL, 1/sqrt(t)": ("quafl", {"schedule": InverseRootTimeSchedule(offset_s=0.5)}),
    "S-FedAvg, steps drawn": ("s-fedavg", {"clients": UNIFORM}),
    "S-FedAvg, timed steps drawn": ("s-fedavg", {"clients": UNIFORM, "delays": BY_STEP, "stop": LONGER}),
    "S-FedAvg, ticks": ("s-fedavg", {"clients": TICKS, "stop": LONGER}),
    "AFA-CS, steps drawn": ("afa-cs", {"clients": UNIFORM}),
    "AFA-CD, steps drawn": ("afa-cd", {"clients": UNIFORM}),
    "DuDe by a clock": ("dude", {"aggregation": PoissonAggregation(rate=20.0)}),
    "ACED, old entries": ("aced", {"max_delay": 7}),
    "FedBuff, 3 of 5": ("fedbuff-published", {"concurrency": 3}),
    "FADAS, delays": ("fadas", {"delay_threshold": 2}),
    "FedAsync, hinge": ("fedasync", {"staleness": "hinge", "hinge_delay": 2, "prox": 0.0}),
    "AsyncFedED, timed steps": ("asyncfeded", {"delays": BY_STEP, "target": 2.0, "most_steps": 6}),
    "AsyncSGD, adaptive": ("async-sgd", {"step": "adaptive"}),
    "AsyncSGD, threshold": ("async-sgd", {"step": "threshold", "threshold": 3}),
    "AsyncSGD, threshold, L": ("async-sgd", {"step": "threshold", "threshold": 3, "smoothness": 10.0}),
    "AsyncSGD, uniform": ("async-sgd", {"assignment": "uniform", "concurrency": 8}),
    "AsyncSGD, importance": ("async-sgd", {"assignment": "importance", "probabilities": (0.4, 0.3, 0.1, 0.1, 0.1)}),
    "AsyncSGD, shuffled": ("async-sgd", {"assignment": "shuffled", "concurrency": 3}),
    "AsyncSGD, idle": ("async-sgd", {"assignment": "idle-uniform", "concurrency": 2}),
    "Ringmaster, stops": ("ringmaster", {"max_delay": 3, "stops": True}),
    "Ringmaster, stops timed steps": ("ringmaster", {"max_delay": 3, "stops": True, "delays": BY_STEP}),
    # what [local] adds goes with every method; FedAsync has a proximal term of its own
    **{
        f"{name} with options": (name, {"local": replace(OPTIONS, prox=0.0) if name == "fedasync" else OPTIONS})
        for name in METHODS
    },
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {**{name: (name, {}) for name in METHODS}, **VARIANTS}
every_case = pytest.mark.parametrize("case", CASES)


def case_of(case: str) -> Experiment:
    """The experiment of a case."""
    name, changes = CASES[case]
    return experiment_of(name, **changes)


def test_every_method_has_its_own_label_and_colour() -> None:
    records = METHODS.values()
    assert len({record.label for record in records}) == len({record.colour for record in records}) == len(METHODS)


@every_case
def test_a_run_that_loses_clients_and_was_stopped_equals_one_that_was_not_stopped_and_replays(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
    case: str,
) -> None:
    """The slowest client is lost before it has reported; the run is stopped before and after the first step."""
    experiment = case_of(case)
    policy: Any = "keep" if experiment.local.control_variates else "remove"
    faults = Faults(lost=(4, 1), lost_at_s=(0.01, 0.9), lost_client=policy)
    experiment = replace(experiment, faults=faults)
    assert_equal_after(experiment, tmp_path, stop_at, 4, 9, 3)
    with open_run(tmp_path / "cut.h5") as run:
        events = run.events_array
        assert (run.status.state, run.status.lost) == (State.DONE, 2)
        late = events[(events["kind"] == Kind.UPDATE) & (events["time_s"] > 0.9)]
        assert set(late["client"]) <= {0, 2, 3}
        assert (events["kind"][len(events) // 2 :] == Kind.STEP).any()
    replays(tmp_path / "cut.h5", experiment)


@every_case
def test_a_run_with_refused_updates_ends_and_replays(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(case_of(case), faults=Faults(lost=(3,), lost_at_s=(1.1,)))
    local = Quadratic.local
    monkeypatch.setattr(
        Quadratic, "local",
        lambda settings, problem, client, steps: Spoilt(local(settings, problem, client, steps))
        if client == 0 else local(settings, problem, client, steps),
    )  # fmt: skip
    status = simulate_run(experiment, around(tmp_path / "run.h5", None))
    assert (status.state, status.lost) == (State.DONE, 1)
    assert status.refused >= 1
    replays(tmp_path / "run.h5", experiment)


# ---------------------------------------------------------------------------------------------------- lanes


SHARING = [case for case, (name, changes) in CASES.items() if "local" not in changes and "clients" not in changes]


def lanes_of(case: str) -> list[Experiment]:
    """The case on logistic regression, with two step sizes."""
    name, changes = CASES[case]
    return [logistic_experiment(name, size, **changes) for size in (0.05, 0.2)]


def shares(experiment: Experiment) -> bool:
    """Whether runs that differ in the step size alone are computed together."""
    return experiment.clients.work == "fixed" and experiment.method.shares_pass(experiment.clients)


def test_all_methods_whose_clients_work_all_the_time_share_one_pass() -> None:
    shared = [one for name in METHODS for one in lanes_of(name) if one.method.client_driven and shares(one)]
    passes = group_lanes(shared)
    assert sorted(place for members in passes for place in members) == list(range(len(shared)))
    assert len(passes) <= 2  # a pass has a greatest width


@pytest.mark.parametrize("case", SHARING)
def test_lanes_end_as_runs_alone(tmp_path: Path, case: str) -> None:
    """Whatever the criterion and the order of reply and step."""
    chosen = lanes_of(case)
    if not shares(chosen[0]):
        assert group_lanes(chosen) == [(0,), (1,)]
        return
    assert group_lanes(chosen) == [(0, 1)]
    lanes = simulate_lanes(build_pass(build_scenario(chosen[0], tmp_path), chosen), silent)
    for experiment, lane in zip(chosen, lanes, strict=True):
        same_end(lane, simulate_lanes([build_scenario(experiment, tmp_path)], silent)[0])


@pytest.mark.parametrize("name", METHODS)
def test_models_stay_float32_and_a_stack_of_models_is_each_alone(name: str) -> None:
    """With step sizes as a column, the rule does to each model what it does to it alone."""
    step_sizes = np.array([[0.5], [0.3]], np.float32)
    generator = np.random.default_rng(4)
    start = generator.standard_normal((2, 3)).astype(np.float32)
    settings: MethodSettings = settings_of(name)
    rules = [settings.build(inputs(3, step_size=float(size), period_s=1.0)) for size in step_sizes[:, 0]]
    starts = [*start]
    if settings.shares_pass(Clients(count=3)):
        rules.append(settings.build(inputs(3, step_size=step_sizes, period_s=1.0)))
        starts.append(start)
    states = [rule.start(model).state for rule, model in zip(rules, starts, strict=True)]
    for number, client in enumerate((0, 1, 1, 2, 1, 0, 2, 1, 1, 1, 1) * 3):
        payload = generator.standard_normal((2, 3)).astype(np.float32)
        for place, (rule, part) in enumerate(zip(rules, [*payload, payload], strict=False)):
            received = part.copy()
            state = rule.receive(states[place], arrival(client, received, model=part, staleness=number % 2)).state
            received.fill(np.nan)  # a payload is valid during the call only
            due = not rule.decides if rule.due is None else rule.due(state)
            states[place] = rule.aggregate(state).state if due else state
    models = [state.model for state in states]
    assert np.isfinite(models[0]).all()
    assert {model.dtype for model in models} == {np.dtype(np.float32)}
    for stack in models[2:]:
        assert not np.array_equal(stack, start)
        np.testing.assert_array_equal(stack, np.stack(models[:2]))
