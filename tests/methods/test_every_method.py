"""What every method must do: it is listed, replays and resumes to the bit, survives lost clients and bad updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.methods.every_method import BY_CLOCK, experiment_of
from tests.transports.test_resume import around, assert_equal_after, stop_at

from areabench.arrays import Vector
from areabench.engine.events import State
from areabench.engine.lanes import build_pass, group_lanes
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods import METHODS
from areabench.methods.criteria import EveryPeriod, EveryUpdates
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.splits.iid import Iid
from areabench.runfile.read import open_run
from areabench.transports.replay import Replay
from areabench.transports.session import simulate_run
from areabench.transports.simulator import LaneEnd, play_alone, play_lanes

__all__ = ["stop_at"]  # a fixture
every_method = pytest.mark.parametrize("name", list(METHODS))


def silent(_time_s: float, _updates: int) -> None:
    """No progress is shown."""


def replay_equals(path: Path, scenario: Scenario) -> None:
    """The run file replays bit for bit."""
    with open_run(path) as run:
        found = Replay(run, scenario, silent).run()
        assert found.difference is None
        assert found.events == len(run.events_array) > 0


def test_every_method_is_listed_and_named() -> None:
    assert len({record.label for record in METHODS.values()}) == len(METHODS)


def test_every_method_has_its_own_colour() -> None:
    assert len({record.colour for record in METHODS.values()}) == len(METHODS)


@every_method
def test_a_simulated_run_replays_bit_for_bit(tmp_path: Path, name: str) -> None:
    experiment = experiment_of(name)
    assert simulate_run(experiment, around(tmp_path / "run.h5", None)).state == State.DONE
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path))


@every_method
def test_a_run_that_was_stopped_twice_equals_one_that_was_not(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
    name: str,
) -> None:
    assert_equal_after(experiment_of(name), tmp_path, stop_at, 9, 4)


@every_method
def test_a_run_that_loses_clients_ends_and_replays(tmp_path: Path, name: str) -> None:
    experiment = replace(experiment_of(name), faults=Faults(lost=(0, 3), lost_at_s=(0.4, 0.9)))
    status = simulate_run(experiment, around(tmp_path / "run.h5", None))
    assert (status.state, status.lost) == (State.DONE, 2)
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path))


class Spoilt:
    """A local problem whose third call gives a value that is not finite."""

    def __init__(self, local: object) -> None:
        self._local, self._calls = local, 0

    def _spoil(self, vector: Vector) -> Vector:
        self._calls += 1
        return np.full_like(vector, np.nan) if self._calls == 3 else vector

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        return self._spoil(self._local.descend(model, step_size, steps))  # type: ignore[attr-defined]

    def gradient(self, model: Vector) -> Vector:
        return self._spoil(self._local.gradient(model))  # type: ignore[attr-defined]

    def skip(self, steps: int) -> None:
        self._local.skip(steps)  # type: ignore[attr-defined]


@every_method
def test_a_run_with_refused_updates_ends_and_replays(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_of(name)
    scenario = build_scenario(experiment, tmp_path)
    local = type(scenario.problem).local
    monkeypatch.setattr(
        type(scenario.problem), "local",
        lambda problem, client: Spoilt(local(problem, client)) if client == 0 else local(problem, client),
    )  # fmt: skip
    status = simulate_run(experiment, around(tmp_path / "run.h5", None))
    assert status.state == State.DONE
    assert status.refused >= 1
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path))


# ---------------------------------------------------------------------------------------------------- lanes


def logistic_experiment(name: str, step_size: float) -> Experiment:
    """The method on logistic regression, as a run that may share a pass."""
    base = experiment_of(name, step_size)
    return check_combinations(
        replace(
            base,
            clients=Clients(count=5),
            problem=Logistic(batch_size=4),
            data=Synthetic(train_samples=60, test_samples=9, features=6, classes=3),
            split=Iid(),
            aggregation=EveryPeriod(period_s=0.1) if name in BY_CLOCK else EveryUpdates(updates=2),
            stop=Stop(horizon_s=3.0),
            record=Record(events=False, interval_s=0.5),
        )
    )


CLIENT_DRIVEN = [
    name for name in METHODS if experiment_of(name).method.client_driven and name not in ("asyncfeded", "asynccomm-sgd")
]


def same_end(lane: LaneEnd | None, alone: LaneEnd | None) -> None:
    """Both runs counted the same, and ended at the same model up to rounding."""
    assert lane is not None
    assert alone is not None
    assert lane.status == alone.status
    np.testing.assert_array_equal(lane.tally.staleness, alone.tally.staleness)
    for one, other in zip(lane.snapshots, alone.snapshots, strict=True):
        assert one[:3] == other[:3]
        np.testing.assert_allclose(np.ravel(one.models), np.ravel(other.models), rtol=2e-3, atol=2e-5)


def test_all_client_driven_methods_share_one_pass_and_end_as_alone(tmp_path: Path) -> None:
    """Whatever their aggregation criterion and the order of reply and step."""
    experiments = [logistic_experiment(name, size) for name in CLIENT_DRIVEN for size in (0.05, 0.2)]
    passes = group_lanes(experiments)
    assert sorted(place for members in passes for place in members) == list(range(len(experiments)))
    assert len(passes) <= 2  # a pass has a greatest width
    one = build_scenario(experiments[0], tmp_path)
    for members in passes:
        chosen = [experiments[place] for place in members]
        for experiment, lane in zip(chosen, play_lanes(build_pass(one, chosen), silent), strict=True):
            same_end(lane, play_alone(build_scenario(experiment, tmp_path), silent))
