"""Whole runs of every variant of asynchronous SGD and of the methods of optimal time: replay, resume, losses, lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.every_method import experiment_of
from tests.methods.test_every_method import Spoilt, logistic_experiment, replay_equals, same_end, silent
from tests.transports.test_resume import around, assert_equal_after, stop_at

from areabench.engine.events import Kind, State
from areabench.engine.lanes import build_pass, group_lanes
from areabench.engine.scenario import build_scenario
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.base import MethodSettings
from areabench.methods.malenia import Malenia
from areabench.methods.rennala import Rennala
from areabench.methods.ringleader import Ringleader
from areabench.methods.ringmaster import Ringmaster
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import Run, open_run
from areabench.timing.rates import ListedRates
from areabench.transports.session import simulate_run
from areabench.transports.simulator import play_alone, play_lanes

__all__ = ["stop_at"]  # a fixture
Recorded = Callable[[Experiment], Run]
VARIANTS: dict[str, MethodSettings] = {
    "constant": AsyncSgd(step_size=0.02),
    "adaptive": AsyncSgd(step_size=0.02, step="adaptive"),
    "threshold": AsyncSgd(step_size=0.02, step="threshold", threshold=3),
    "threshold, L": AsyncSgd(step_size=0.02, step="threshold", threshold=3, smoothness=10.0),
    "uniform": AsyncSgd(step_size=0.02, assignment="uniform", concurrency=8),
    "importance": AsyncSgd(step_size=0.02, assignment="importance", probabilities=(0.4, 0.3, 0.1, 0.1, 0.1)),
    "shuffled": AsyncSgd(step_size=0.02, assignment="shuffled", concurrency=3),
    "idle": AsyncSgd(step_size=0.02, assignment="idle-uniform", concurrency=2),
    "ringmaster": Ringmaster(step_size=0.02, max_delay=3),
    "ringmaster, stops": Ringmaster(step_size=0.02, max_delay=3, stops=True),
    "rennala": Rennala(step_size=0.02, batch=3),
    "malenia": Malenia(step_size=0.02, batch=8.0),
    "ringleader": Ringleader(step_size=0.02),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def experiment_with(variant: str) -> Experiment:
    """Five clients of uneven speed."""
    return check_combinations(replace(experiment_of("async-sgd"), method=VARIANTS[variant]))


@every_variant
def test_a_run_replays_bit_for_bit(tmp_path: Path, variant: str) -> None:
    experiment = experiment_with(variant)
    assert simulate_run(experiment, around(tmp_path / "run.h5", None)).state == State.DONE
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path))


@every_variant
def test_a_stopped_run_continues_to_the_bit(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
    variant: str,
) -> None:
    assert_equal_after(experiment_with(variant), tmp_path, stop_at, 9, 5, 3)


@every_variant
def test_a_run_with_losses_and_a_refused_update_replays(
    tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(experiment_with(variant), faults=Faults(lost=(1, 3), lost_at_s=(0.6, 1.1)))
    local = type(build_scenario(experiment, tmp_path).problem).local
    monkeypatch.setattr(
        type(build_scenario(experiment, tmp_path).problem), "local",
        lambda problem, client: Spoilt(local(problem, client)) if client == 0 else local(problem, client),
    )  # fmt: skip
    status = simulate_run(experiment, around(tmp_path / "run.h5", None))
    assert (status.state, status.lost, status.refused) == (State.DONE, 2, 1)
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path))


def test_stops_are_recorded(tmp_path: Path) -> None:
    simulate_run(experiment_with("ringmaster, stops"), around(tmp_path / "run.h5", None))
    with open_run(tmp_path / "run.h5") as run:
        events = run.events_array
        assert (events["kind"] == Kind.CANCELLED).sum() > 3
        assert events["staleness"][events["kind"] == Kind.UPDATE].max() == 2  # below R = 3


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "ringmaster, stops"])
def test_lanes_end_as_runs_alone(tmp_path: Path, variant: str) -> None:
    chosen = [
        replace(logistic_experiment("async-sgd", size), method=replace(VARIANTS[variant], step_size=size))
        for size in (0.05, 0.2)
    ]
    assert group_lanes(chosen) == [(0, 1)]
    lanes = play_lanes(build_pass(build_scenario(chosen[0], tmp_path), chosen), silent)
    for experiment, lane in zip(chosen, lanes, strict=True):
        alone = play_alone(build_scenario(experiment, tmp_path), silent)
        same_end(lane, alone)
        assert lane is not None
        assert lane.snapshots[-1].models.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- where they end


def end_of(record: Recorded, method: MethodSettings, horizon_s: float = 400.0) -> float:
    """|x - x*|² without noise, with rates from 20 to 2."""
    experiment = replace(
        experiment_of("async-sgd"),
        clients=Clients(count=5),
        method=method,
        problem=Quadratic(dimension=3, noise=0.0),
        stop=Stop(horizon_s=horizon_s),
        record=Record(interval_s=horizon_s, events=False),
    )
    return float(record(check_combinations(experiment)).metrics_array["squared_distance"][-1])


@pytest.mark.parametrize("method", [Malenia(step_size=0.2, batch=5), Ringleader(step_size=0.02)], ids=lambda m: m.name)
def test_exact_methods_end_at_the_minimiser(record: Recorded, method: MethodSettings) -> None:
    assert end_of(record, method) < 1e-20


def mean_end(folder: Path, method: MethodSettings, horizon_s: float) -> float:
    """|x - x*|² without noise, the mean over six seeds, each with eight quadratics and rates from 40 to 1."""
    ends = []
    for seed in range(20, 26):
        experiment = replace(
            experiment_of("async-sgd"),
            clients=Clients(count=8),
            rates=ListedRates(values=(40.0, 20.0, 10.0, 5.0, 2.0, 1.0, 1.0, 1.0)),
            method=method,
            problem=Quadratic(dimension=20, curvature_max=2.0, zeta=1.0, noise=0.0, start_distance=2.0),
            stop=Stop(horizon_s=horizon_s),
            record=Record(interval_s=horizon_s, events=False),
            seed=seed,
        )
        scenario = build_scenario(check_combinations(experiment), folder)
        end = play_alone(scenario, silent)
        assert end is not None
        minimiser = scenario.problem.optimum.minimiser  # type: ignore[attr-defined]
        ends.append(float(((end.snapshots[-1].models - minimiser) ** 2).sum()))
    return float(np.mean(ends))


@pytest.mark.parametrize(
    ("assignment", "concurrency", "exact"),
    [("uniform", None, True), ("shuffled", None, True), ("idle-uniform", 4, False)],
)
def test_a_smaller_step_removes_noise_and_leaves_bias(
    tmp_path: Path, assignment: Any, concurrency: int | None, exact: bool
) -> None:
    """A quarter of gamma, four times the time: noise in proportion to gamma falls to 1/4, a bias stays."""
    large, small = (
        mean_end(tmp_path, AsyncSgd(step_size=gamma, assignment=assignment, concurrency=concurrency), horizon_s)
        for gamma, horizon_s in ((0.01, 200.0), (0.0025, 800.0))
    )
    assert (large / small > 2) == exact  # between 1 and 4
