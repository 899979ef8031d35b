"""Replay: runs of every problem and record come out bit for bit, and what was tampered with is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.support.edited import edited

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.events import Kind, Reason, State
from areabench.engine.messages import Order
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFileError, UserError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.schedules import InverseSchedule
from areabench.problems import logistic_optimum
from areabench.problems.base import ProblemSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic
from areabench.problems.median import Median
from areabench.problems.quadratic import Quadratic
from areabench.problems.robust import Robust
from areabench.problems.splits.iid import Iid
from areabench.problems.torch_module import TorchModule
from areabench.progress import ProgressLine, Style
from areabench.runfile.layout import evaluated_at_once
from areabench.runfile.read import Run
from areabench.runfile.schema import METRIC
from areabench.transports.replay import Difference, MetricsResult, ReplayResult, compare_metrics, replay_run

Recorded = Callable[[Experiment], Run]

QUADRATIC = Quadratic(dimension=4, noise=0.5)
LOGISTIC = Logistic(batch_size=8)
PROBLEMS: tuple[ProblemSettings, ...] = (
    QUADRATIC,
    LOGISTIC,
    TorchModule(module="areabench.problems.examples:mlp", batch_size=8),
    Robust(dimension=4, samples=6),
    Median(dimension=4, samples=6),
    Hinge(batch_size=8),
)
LAST_ONLY = Record(interval_s=0.2, models="last")
RECORDS: tuple[tuple[AggregationSettings, Record], ...] = (
    (EveryUpdates(updates=3), Record(interval_s=0.2)),
    (EveryPeriod(period_s=0.13), replace(LAST_ONLY, average=True)),
    (PoissonAggregation(rate=8.0), Record(interval_s=0.2, average=True, loss_every=3)),
    (EveryUpdates(updates=3), Record(snapshots="aggregations")),
    (EveryPeriod(period_s=0.13), Record(snapshots="aggregations", events=False)),
    (PoissonAggregation(rate=8.0), replace(LAST_ONLY, events=False, average=True)),
    (EveryUpdates(updates=3), Record(snapshots="none")),
)


def experiment_on(problem: ProblemSettings = QUADRATIC, **changes: Any) -> Experiment:
    """Four clients for a second and a half."""
    data = Synthetic(train_samples=120, test_samples=20, features=5, classes=3) if problem.takes_data else None
    experiment = Experiment(
        clients=Clients(count=4, local_steps=2),
        method=Area(step_size=0.05),
        stop=Stop(horizon_s=1.5),
        problem=problem,
        data=data,
        split=Iid() if data else None,
        aggregation=EveryUpdates(updates=3),
        record=Record(interval_s=0.2),
        seed=4,
    )
    return replace(experiment, **changes)


def replayed(run: Run) -> ReplayResult:
    """The outcome of replaying a run file as it is now, metrics included."""
    with Run(run.path) as again:
        return replay_run(again, build_scenario(again.experiment, run.path.parent), ProgressLine("", None, Style.NONE))


def found_in(run: Run) -> Difference:
    """The difference that a replay finds; metrics are not compared then."""
    outcome = replayed(run)
    assert outcome.difference is not None
    assert outcome.metrics is None
    assert not outcome.equal
    return outcome.difference


def all_equal(run: Run) -> bool:
    """Whether a replay has compared all events, snapshots and metrics, and each was equal to the bit."""
    rows = len(run.snapshot_index)
    events = len(run.events_array) or run.status.updates + run.status.server_steps
    return replayed(run) == ReplayResult(events, rows, None, MetricsResult(rows, rows, rows, None))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
@pytest.mark.parametrize(("criterion", "kept"), RECORDS)
def test_replay_gives_the_same_bits(
    record: Recorded, problem: ProblemSettings, criterion: AggregationSettings, kept: Record
) -> None:
    if isinstance(problem, TorchModule):
        pytest.importorskip("torch")
    schedule = InverseSchedule(offset=5.0)
    run = record(experiment_on(problem, aggregation=criterion, record=kept, schedule=schedule))
    assert run.status.updates > 20
    assert all_equal(run)


def test_the_distance_to_the_minimiser_is_recorded_where_it_is_asked_for(record: Recorded) -> None:
    plain, solved = (record(experiment_on(replace(LOGISTIC, minimiser=wanted))) for wanted in (False, True))
    distance = solved.metrics_array["squared_distance"]
    assert np.isnan(plain.metrics_array["squared_distance"]).all()
    assert 0 < distance[-1] < distance[0]
    np.testing.assert_array_equal(plain.model(-1), solved.model(-1))


def test_a_minimiser_that_is_not_found_is_reported_before_the_run(
    record: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logistic_optimum, "TOLERANCE", 0.0)
    with pytest.raises(UserError, match="the solver for the minimiser stopped at a gradient of norm"):
        record(experiment_on(replace(LOGISTIC, minimiser=True)))
    assert not list(tmp_path.glob("*.h5"))


def test_a_run_whose_updates_are_refused(record: Recorded) -> None:
    stop = Stop(horizon_s=5.0, divergence_norm=1e300)
    run = record(experiment_on(LOGISTIC, method=Area(step_size=1e30), stop=stop))
    assert run.status.state == State.DIVERGED
    assert "the last update of every client at work was refused: " in run.status.reason
    assert run.status.refused == np.count_nonzero(run.events_array["reason"] == Reason.NOT_FINITE) > 0
    assert np.isfinite(run.model(-1)).all()  # what is not finite is not let in
    assert all_equal(run)


def test_a_run_that_diverged_without_events(record: Recorded) -> None:
    """The last snapshot, which the divergence brings, has an average too."""
    kept = Record(snapshots="aggregations", events=False, average=True)
    stop = Stop(horizon_s=5.0, divergence_norm=1e6)
    run = record(experiment_on(LOGISTIC, method=Area(step_size=5e4), stop=stop, record=kept))
    assert run.status.state == State.DIVERGED
    assert all_equal(run)


def test_after_a_refusal_replay_restores_what_the_client_remembered(
    record: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third update of client 1 is spoilt on its way; what AREA's clients send depends on their memory."""
    work = Client.work

    def spoilt(client: Client, order: Order, made: int | None = None) -> Vector:
        payload = work(client, order, made)
        return payload * np.nan if (order.client, client.round) == (1, 3) else payload

    with monkeypatch.context() as patched:
        patched.setattr(Client, "work", spoilt)
        run = record(experiment_on())
    events = run.events_array
    own = events["kind"][events["client"] == 1].tolist()
    assert own[:4] == [Kind.UPDATE, Kind.UPDATE, Kind.REFUSED, Kind.UPDATE]
    assert own.count(Kind.REFUSED) == 1
    assert all_equal(run)


@pytest.mark.parametrize("models", ["all", "last"])
def test_the_average_of_all_iterations(record: Recorded, models: Literal["all", "last"]) -> None:
    run = record(experiment_on(record=Record(interval_s=0.2, models=models, average=True)))
    plain = record(experiment_on(record=Record(snapshots="aggregations"), name="plain"))
    last, steps = int(run.snapshot_index["event"][-1]), plain.events_array[plain.events_array["kind"] == Kind.STEP]
    since = np.diff(np.concatenate([[0], steps["iteration"], [last]]))  # iterations that each model was current for
    scenario = build_scenario(run.experiment, run.path.parent)
    held = np.concatenate([scenario.start[None], plain.models[: len(steps)]])
    np.testing.assert_allclose(run.averages[-1], since @ held / last, rtol=1e-12)
    average_loss = scenario.problem.evaluate([run.averages[-1]]).train_loss[0]
    assert run.metrics_array["average_loss"][-1] == average_loss
    assert np.isnan(plain.metrics_array["average_loss"]).all()


# ---------------------------------------------------------------------------------------------------- killed runs


def kill(file: Any) -> None:
    """The file is that of a run that was killed."""
    status = file["status"][()]
    status["state"] = State.RUNNING.text.encode()
    file["status"][...] = status
    file["metrics"].resize(0, axis=0)


def drop_events(file: Any, *numbers: int) -> None:
    rows = np.delete(file["events"][:], numbers)
    file["events"].resize(len(rows), axis=0)
    file["events"][:] = rows


def test_a_killed_run_has_no_model_where_only_the_last_is_kept(record: Recorded) -> None:
    run = record(experiment_on(record=LAST_ONLY))
    events, last = len(run.events_array), len(run.snapshot_index) - 1
    assert [run.has_model(number) for number in (-1, 0, last - 1, last)] == [True, False, False, True]
    run.close()
    with edited(run.path) as file:
        file["snapshots/model"].resize(0, axis=0)
        kill(file)
    assert replayed(run) == ReplayResult(events, last + 1, None)
    with Run(run.path) as killed:
        assert not killed.has_model(-1)
        with pytest.raises(RunFileError, match="keeps the last model only"):
            killed.model(-1)


def test_a_killed_run_may_lack_its_last_events(run: Run) -> None:
    """Snapshots and events are written in blocks of their own; snapshots after the last event are left out."""
    events, index = run.events_array, run.snapshot_index
    with edited(run.path) as file:
        drop_events(file, -1, -2)
        kill(file)
    outcome = replayed(run)
    assert (outcome.difference, outcome.events) == (None, len(events) - 2)
    with Run(run.path) as killed:
        assert len(killed.snapshot_index) == np.count_nonzero(index["event"] <= len(events) - 2) < len(index)


# ---------------------------------------------------------------------------------------------------- metrics


def test_metrics_of_more_snapshots_than_are_evaluated_at_once(record: Recorded) -> None:
    run = record(experiment_on(LOGISTIC, record=Record(interval_s=0.005)))
    assert len(run.snapshot_index) == 301 > evaluated_at_once(*run.model_size)
    assert all_equal(run)


@pytest.mark.parametrize("column", ["train_loss", "test_accuracy", "average_loss", "average_accuracy"])
@pytest.mark.parametrize("events", [True, False])
def test_a_metric_that_was_changed_is_found(record: Recorded, column: str, events: bool) -> None:
    run = record(experiment_on(LOGISTIC, record=Record(interval_s=0.2, average=True, events=events)))
    run.close()
    with edited(run.path) as file:
        rows = file["metrics"][()]
        rows[column][3] *= 1.01
        file["metrics"][...] = rows
    outcome = replayed(run)
    assert outcome.difference is None
    assert outcome.metrics is not None
    assert not outcome.equal
    assert (outcome.metrics.rows, outcome.metrics.equal, outcome.metrics.to_the_bit) == (9, 8, 8)
    assert str(outcome.metrics.difference).startswith(f"row 3 (0.6 s): {column} is ")


def test_metrics_that_are_missing_are_told(run: Run) -> None:
    for rows, told in ((3, MetricsResult(9, 0, 0, "3 rows for 9 snapshots")), (0, None)):  # none, as of a killed run
        with edited(run.path) as file:
            file["metrics"].resize(rows, axis=0)
        assert replayed(run).metrics == told


def test_rounding_by_hand() -> None:
    time_s = np.array([0.0, 0.5, 1.0, 1.5])
    recorded = np.full(4, np.nan, METRIC)
    recorded["train_loss"], recorded["test_accuracy"] = [1.0, 2.0, np.inf, 0.0], [10.0, 50.0, 90.0, 0.0]
    found = recorded.copy()
    assert compare_metrics(recorded, found, time_s) == MetricsResult(4, 4, 4, None)
    found["train_loss"][1] = 2.0000199  # 1e-5 of it is 2e-5
    found["test_accuracy"][2] = 90.04
    assert compare_metrics(recorded, found, time_s) == MetricsResult(4, 4, 2, None)
    found["train_loss"][1] = 2.0000201
    difference = "row 1 (0.5 s): train_loss is 2.0000201, recorded 2"
    assert compare_metrics(recorded, found, time_s) == MetricsResult(4, 3, 2, difference)
    found["test_accuracy"][0] = 10.06
    difference = "row 0 (0 s): test_accuracy is 10.06, recorded 10"
    assert compare_metrics(recorded, found, time_s) == MetricsResult(4, 2, 1, difference)
    found["train_loss"][2] = np.nan
    assert compare_metrics(recorded, found, time_s).equal == 1


# ---------------------------------------------------------------------------------------------------- tampering


@pytest.fixture
def run(record: Recorded) -> Run:
    """A recorded run on the quadratic, its file closed so that it can be written."""
    recorded = record(experiment_on(record=Record(interval_s=0.2, average=True)))
    assert len(recorded.events_array) > 40
    assert len(recorded.snapshot_index) == len(recorded.models)
    recorded.close()
    return recorded


Change = Callable[[int], float]
CHANGED_EVENTS: tuple[tuple[Kind, int, str, Change, str], ...] = (
    (Kind.UPDATE, 5, "digest", lambda old: old ^ 1, "the update of client"),
    (Kind.STEP, 5, "digest", lambda old: old ^ 1, "the model after the server step: digest"),
    (Kind.UPDATE, 8, "client", lambda old: (old + 1) % 4, ""),
    (Kind.UPDATE, 0, "client", lambda _: 99, "an update of client 99, which had no order"),
    (Kind.UPDATE, 0, "step_size", lambda _: 0.051, "step size 0.05"),
    *((Kind.UPDATE, 10, name, lambda old: old + 1, "") for name in ("round", "base_version", "iteration", "version")),
    *((Kind.STEP, 10, name, lambda old: old + 1, "") for name in ("iteration", "version")),
    (Kind.STEP, 10, "kind", lambda _: Kind.NO_STEP, "the rule steps"),
)


@pytest.mark.parametrize(("kind", "place", "column", "change", "says"), CHANGED_EVENTS)
def test_a_changed_event_is_found(run: Run, kind: Kind, place: int, column: str, change: Change, says: str) -> None:
    number = int(np.flatnonzero(run.events_array["kind"] == kind)[place])
    with edited(run.path) as file:
        row = file["events"][number]
        row[column] = change(row[column].item())
        file["events"][number] = row
    difference = found_in(run)
    assert difference.event == number
    assert says in difference.what


@pytest.mark.parametrize("kind", [Kind.UPDATE, Kind.STEP])
def test_an_event_that_is_missing_in_the_middle_is_found(run: Run, kind: Kind) -> None:
    """The row after it no longer fits, at the latest by its iteration."""
    number = int(np.flatnonzero(run.events_array["kind"] == kind)[6])
    with edited(run.path) as file:
        drop_events(file, number)
    assert found_in(run).event == number


def test_events_that_are_missing_at_the_end_are_found(run: Run) -> None:
    count = len(run.events_array)
    with edited(run.path) as file:
        drop_events(file, -1, -2)
    difference = found_in(run)
    assert difference.event == count - 2
    assert f"taken after {count} events, {count - 2} are recorded" in difference.what


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("snapshots/model", 3, "1 of 4 entries differ"),
        ("snapshots/model", 0, "1 of 4 entries differ"),
        ("snapshots/average", 3, "the average differs"),
    ],
)
def test_one_bit_of_a_snapshot_is_found(run: Run, name: str, row: int, says: str) -> None:
    with edited(run.path) as file:
        vector = file[name][row]
        vector.view(np.uint8)[0] ^= 1
        file[name][row] = vector
    outcome = replayed(run)
    assert outcome.difference == Difference(int(run.snapshot_index["event"][row]), f"snapshot {row}: {says}")
    assert outcome.snapshots == row


@pytest.mark.parametrize("events", [True, False])
def test_models_that_are_not_kept_are_compared_by_their_checksums(record: Recorded, events: bool) -> None:
    run = record(experiment_on(record=replace(LAST_ONLY, events=events)))
    run.close()
    with edited(run.path) as file:
        row = file["snapshots/index"][2]
        row["digest"] ^= 1
        file["snapshots/index"][2] = row
    assert found_in(run).what.startswith("snapshot 2")


def test_an_average_of_a_run_without_events_is_compared(record: Recorded) -> None:
    run = record(experiment_on(record=replace(LAST_ONLY, average=True, events=False)))
    run.close()
    with edited(run.path) as file:
        file["snapshots/average"][0, 0] += 1e-9
    assert found_in(run).what == "the average at the end differs"


def test_another_seed_is_found(run: Run) -> None:
    """A file whose experiment was edited does not replay."""
    with edited(run.path) as file:
        file.attrs["experiment"] = file.attrs["experiment"].replace(b"seed = 4", b"seed = 5")
    assert found_in(run).event == 0
