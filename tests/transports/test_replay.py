"""Replay: every method on every problem comes out bit for bit, and what was tampered with is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

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
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems import logistic_optimum
from areabench.problems.base import ProblemSettings
from areabench.problems.data.settings import DataSettings
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
from areabench.transports.replay import (
    MetricsResult,
    Repetition,
    Replay,
    ReplayResult,
    compare_metrics,
    replay_run,
)

Recorded = Callable[[Experiment], Run]

ASYNCHRONOUS: tuple[MethodSettings, ...] = (
    Area(step_size=0.05),
    Area(step_size=0.05, first_message="zero"),
    AsFedAvg(step_size=0.05),
    FedBuff(step_size=0.05, server_step_size=0.5),
)
SYNCHRONOUS = SFedAvg(step_size=0.05, clients_per_round=2)
CRITERIA: tuple[AggregationSettings, ...] = (
    EveryUpdates(updates=3),
    EveryPeriod(period_s=0.13),
    PoissonAggregation(rate=8.0),
)
COMBINATIONS = [(method, criterion) for method in ASYNCHRONOUS for criterion in CRITERIA]
COMBINATIONS.append((SYNCHRONOUS, EveryUpdates()))
PROBLEMS: tuple[ProblemSettings, ...] = (
    Quadratic(dimension=4, noise=0.5),
    Logistic(batch_size=8),
    TorchModule(module="areabench.problems.examples:mlp", batch_size=8),
)
NONSMOOTH: tuple[ProblemSettings, ...] = (
    Robust(dimension=4, samples=6),
    Median(dimension=4, samples=6),
    Hinge(batch_size=8),
)
DATA = Synthetic(train_samples=120, test_samples=20, features=5, classes=3)


def experiment_on(problem: ProblemSettings) -> Experiment:
    """Four clients for a second and a half."""
    data: DataSettings | None = None if not problem.takes_data else DATA
    return Experiment(
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


def replayed(run: Run) -> ReplayResult:
    """The outcome of replaying a run file as it is now."""
    with Run(run.path) as again:
        return Replay(again, build_scenario(again.experiment, run.path.parent), lambda _time_s, _number: None).run()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
@pytest.mark.parametrize(
    ("method", "criterion"), COMBINATIONS, ids=[f"{method.name} {each.name}" for method, each in COMBINATIONS]
)
def test_replay_gives_the_same_bits(
    record: Recorded, problem: ProblemSettings, method: MethodSettings, criterion: AggregationSettings
) -> None:
    if isinstance(problem, TorchModule):
        pytest.importorskip("torch")
    run = record(replace(experiment_on(problem), method=method, aggregation=criterion))
    assert len(run.events_array) > 20
    assert replayed(run) == ReplayResult(len(run.events_array), len(run.models), None)


@pytest.mark.parametrize("problem", NONSMOOTH, ids=lambda problem: problem.name)
def test_replay_of_subgradient_methods(record: Recorded, problem: ProblemSettings) -> None:
    run = record(experiment_on(problem))
    assert len(run.events_array) > 20
    assert replayed(run) == ReplayResult(len(run.events_array), len(run.models), None)
    loss = run.metrics_array["train_loss"]
    assert loss[-1] < loss[0]


def test_distance_to_the_minimiser_is_recorded_where_asked_for(record: Recorded) -> None:
    plain, solved = (record(experiment_on(Logistic(batch_size=8, minimiser=wanted))) for wanted in (False, True))
    distance = solved.metrics_array["squared_distance"]
    assert np.isnan(plain.metrics_array["squared_distance"]).all()
    assert 0 < distance[-1] < distance[0]
    np.testing.assert_array_equal(plain.model(-1), solved.model(-1))


def test_a_minimiser_that_is_not_found_is_reported_before_the_run(
    record: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logistic_optimum, "TOLERANCE", 0.0)
    with pytest.raises(UserError, match="the solver for the minimiser stopped at a gradient of norm .* above 0;"):
        record(experiment_on(Logistic(batch_size=8, minimiser=True)))
    assert not list(tmp_path.glob("*.h5"))


def test_replay_follows_a_schedule_and_snapshots_after_steps(record: Recorded) -> None:
    experiment = replace(
        experiment_on(PROBLEMS[0]), schedule=InverseSchedule(offset=5.0), record=Record(snapshots="aggregations")
    )
    run = record(experiment)
    assert replayed(run) == ReplayResult(len(run.events_array), len(run.models), None)


def test_replay_of_a_run_that_diverged(record: Recorded) -> None:
    stop = Stop(horizon_s=5.0, divergence_norm=1e300)
    run = record(replace(experiment_on(PROBLEMS[1]), method=Area(step_size=1e30), stop=stop))
    assert run.status.state == State.DIVERGED
    assert "the last update of every client at work was refused: " in run.status.reason
    assert run.status.refused == np.count_nonzero(run.events_array["reason"] == Reason.NOT_FINITE) > 0
    assert np.isfinite(run.model(-1)).all()  # what is not finite is not let in
    assert replayed(run).difference is None


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
        run = record(experiment_on(PROBLEMS[0]))
    events = run.events_array
    own = events["kind"][events["client"] == 1].tolist()
    assert own[:4] == [Kind.UPDATE, Kind.UPDATE, Kind.REFUSED, Kind.UPDATE]
    assert own.count(Kind.REFUSED) == 1
    assert replayed(run).difference is None


def test_replay_of_a_file_without_snapshots_but_the_last(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[0]), record=Record(snapshots="none")))
    assert replayed(run) == ReplayResult(len(run.events_array), 1, None)


@pytest.mark.parametrize("models", ["all", "last"])
def test_average_of_all_iterations_is_kept_evaluated_and_replayed(
    record: Recorded, models: Literal["all", "last"]
) -> None:
    settings = Record(interval_s=0.2, models=models, average=True)
    run = record(replace(experiment_on(PROBLEMS[0]), record=settings))
    plain = record(replace(experiment_on(PROBLEMS[0]), record=Record(snapshots="aggregations"), name="plain"))
    last, steps = int(run.snapshot_index["event"][-1]), plain.events_array[plain.events_array["kind"] == Kind.STEP]
    since = np.diff(np.concatenate([[0], steps["iteration"], [last]]))  # iterations that each model was current for
    held = np.concatenate([build_scenario(run.experiment, run.path.parent).start[None], plain.models[: len(steps)]])
    np.testing.assert_allclose(run.averages[-1], since @ held / last, rtol=1e-12)
    problem = build_scenario(run.experiment, run.path.parent).problem
    assert run.metrics_array["average_loss"][-1] == problem.evaluate([run.averages[-1]]).train_loss[0]
    assert np.isnan(plain.metrics_array["average_loss"]).all()
    assert replayed(run).difference is None


def test_models_that_are_not_kept_are_compared_by_their_checksums(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[0]), record=Record(interval_s=0.2, models="last")))
    last = len(run.snapshot_index) - 1
    assert [run.has_model(number) for number in (-1, 0, last - 1, last)] == [True, False, False, True]
    assert replayed(run) == ReplayResult(len(run.events_array), last + 1, None)
    run.close()
    with edited(run.path) as file:
        row = file["snapshots/index"][2]
        row["digest"] ^= 1
        file["snapshots/index"][2] = row
    difference = replayed(run).difference
    assert difference is not None
    assert difference.what.startswith("snapshot 2: digest 0x")


def test_no_model_is_there_of_a_run_that_was_killed_before_its_last_one(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[0]), record=Record(interval_s=0.2, models="last")))
    events, snapshots = len(run.events_array), len(run.snapshot_index)
    run.close()
    with edited(run.path) as file:
        file["snapshots/model"].resize(0, axis=0)
        status = file["status"][()]
        status["state"] = State.RUNNING.text.encode()
        file["status"][...] = status
    assert replayed(run) == ReplayResult(events, snapshots, None)
    with Run(run.path) as killed:
        assert not killed.has_model(-1)
        with pytest.raises(RunFileError, match="keeps the last model only"):
            killed.model(-1)


def test_snapshots_after_the_last_event_of_a_killed_run_are_left_out(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[0]), record=Record(interval_s=0.2, models="last")))
    events, index = run.events_array, run.snapshot_index
    run.close()
    keep_events(run, np.arange(len(events) - 2))
    with edited(run.path) as file:
        status = file["status"][()]
        status["state"] = State.RUNNING.text.encode()
        file["status"][...] = status
    with Run(run.path) as killed:
        assert len(killed.snapshot_index) == np.count_nonzero(index["event"] <= len(events) - 2) < len(index)


def test_average_of_a_run_without_events_is_compared(record: Recorded) -> None:
    settings = Record(interval_s=0.2, models="last", average=True, events=False)
    run = record(replace(experiment_on(PROBLEMS[0]), record=settings))
    scenario = build_scenario(run.experiment, run.path.parent)
    assert Repetition(run, scenario, lambda _time_s, _number: None).run().difference is None
    run.close()
    with edited(run.path) as file:
        file["snapshots/average"][0, 0] += 1e-9
    with Run(run.path) as again:
        difference = Repetition(again, scenario, lambda _time_s, _number: None).run().difference
    assert difference is not None
    assert difference.what == "the average at the end differs"


def test_an_average_that_was_changed_is_found(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[0]), record=Record(interval_s=0.2, average=True)))
    run.close()
    with edited(run.path) as file:
        file["snapshots/average"][3, 0] += 1e-9
    difference = replayed(run).difference
    assert difference is not None
    assert difference.what == "snapshot 3: the average differs"


# ---------------------------------------------------------------------------------------------------- metrics


def with_metrics(run: Run) -> ReplayResult:
    """The outcome of replaying a run file as it is now, metrics included."""
    with Run(run.path) as again:
        return replay_run(again, build_scenario(again.experiment, run.path.parent), ProgressLine("", None, Style.NONE))


def change_metric(run: Run, row: int, column: str, factor: float) -> None:
    """Multiply one entry of the metrics."""
    run.close()
    with edited(run.path) as file:
        rows = file["metrics"][()]
        rows[column][row] *= factor
        file["metrics"][...] = rows


RECORDS = (
    Record(interval_s=0.2),
    Record(interval_s=0.2, models="last", average=True),
    Record(interval_s=0.2, average=True, loss_every=3),
    Record(snapshots="aggregations", events=False),
    Record(interval_s=0.2, events=False, average=True, models="last"),
)


@pytest.mark.parametrize("problem", [*PROBLEMS, *NONSMOOTH], ids=lambda problem: problem.name)
@pytest.mark.parametrize("settings", RECORDS, ids=str)
def test_metrics_are_the_same_bits(record: Recorded, problem: ProblemSettings, settings: Record) -> None:
    if isinstance(problem, TorchModule):
        pytest.importorskip("torch")
    run = record(replace(experiment_on(problem), record=settings))
    rows = len(run.snapshot_index)
    assert with_metrics(run).metrics == MetricsResult(rows, rows, rows, None)


def test_metrics_of_more_snapshots_than_are_evaluated_at_once(record: Recorded) -> None:
    run = record(replace(experiment_on(PROBLEMS[1]), record=Record(interval_s=0.005)))
    assert len(run.snapshot_index) == 301 > evaluated_at_once(*run.model_size)
    assert with_metrics(run).metrics == MetricsResult(301, 301, 301, None)


@pytest.mark.parametrize("column", ["train_loss", "test_accuracy", "average_loss", "average_accuracy"])
@pytest.mark.parametrize("events", [True, False])
def test_a_metric_that_was_changed_is_found(record: Recorded, column: str, events: bool) -> None:
    settings = Record(interval_s=0.2, average=True, events=events)
    run = record(replace(experiment_on(PROBLEMS[1]), record=settings))
    change_metric(run, 3, column, 1.01)
    outcome = with_metrics(run)
    assert outcome.difference is None
    assert outcome.metrics is not None
    assert not outcome.equal
    assert (outcome.metrics.rows, outcome.metrics.equal, outcome.metrics.to_the_bit) == (9, 8, 8)
    assert str(outcome.metrics.difference).startswith(f"row 3 (0.6 s): {column} is ")


def test_metrics_of_a_run_that_diverged_without_events(record: Recorded) -> None:
    """The last snapshot, which the divergence brings, has an average too."""
    settings = Record(snapshots="aggregations", events=False, average=True)
    stop = Stop(horizon_s=5.0, divergence_norm=1e6)
    run = record(replace(experiment_on(PROBLEMS[1]), method=Area(step_size=5e4), stop=stop, record=settings))
    assert run.status.state == State.DIVERGED
    rows = len(run.snapshot_index)
    assert with_metrics(run).metrics == MetricsResult(rows, rows, rows, None)


def test_metrics_that_are_missing_are_told(record: Recorded, run: Run) -> None:
    with edited(run.path) as file:
        file["metrics"].resize(3, axis=0)
    assert with_metrics(run).metrics == MetricsResult(9, 0, 0, "3 rows for 9 snapshots")
    with edited(run.path) as file:
        file["metrics"].resize(0, axis=0)
    assert with_metrics(run).metrics is None  # as of a run that was killed


def test_metrics_are_not_compared_where_models_differ(run: Run) -> None:
    change_event(run, 0, "step_size", 0.051)
    outcome = with_metrics(run)
    assert outcome.metrics is None
    assert not outcome.equal


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
    recorded = record(experiment_on(PROBLEMS[0]))
    assert len(recorded.events_array) > 40
    assert len(recorded.snapshot_index) == len(recorded.models)
    recorded.close()
    return recorded


def change_event(run: Run, number: int, column: str, value: float) -> None:
    """Write one entry of the event log anew."""
    with edited(run.path) as file:
        row = file["events"][number]
        row[column] = value
        file["events"][number] = row


def test_one_bit_of_a_snapshot(run: Run) -> None:
    with edited(run.path) as file:
        model = file["snapshots/model"][3]
        model.view(np.uint8)[0] ^= 1
        file["snapshots/model"][3] = model
    outcome = replayed(run)
    assert outcome.difference is not None
    assert outcome.difference.event == run.snapshot_index["event"][3]
    assert outcome.difference.what == "snapshot 3: 1 of 4 entries differ"
    assert outcome.snapshots == 3


def test_one_bit_of_the_first_snapshot(run: Run) -> None:
    with edited(run.path) as file:
        model = file["snapshots/model"][0]
        model.view(np.uint8)[-1] ^= 128
        file["snapshots/model"][0] = model
    difference = replayed(run).difference
    assert difference is not None
    assert (difference.event, difference.what) == (0, "snapshot 0: 1 of 4 entries differ")


@pytest.mark.parametrize("kind", [Kind.UPDATE, Kind.STEP])
def test_one_digest(run: Run, kind: Kind) -> None:
    number = int(np.flatnonzero(run.events_array["kind"] == kind)[5])
    change_event(run, number, "digest", int(run.events_array["digest"][number]) ^ 1)
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == number
    assert "digest" in difference.what
    assert ("the model after the server step" in difference.what) == (kind == Kind.STEP)


def test_client_of_an_event(run: Run) -> None:
    number = int(np.flatnonzero(run.events_array["kind"] == Kind.UPDATE)[8])
    change_event(run, number, "client", (run.events_array["client"][number] + 1) % 4)
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == number


def test_client_that_does_not_exist(run: Run) -> None:
    change_event(run, 0, "client", 99)
    difference = replayed(run).difference
    assert difference is not None
    assert (difference.event, difference.what) == (0, "an update of client 99, which had no order")


@pytest.mark.parametrize(
    ("kind", "column"),
    [(Kind.UPDATE, column) for column in ("round", "base_version", "iteration", "version")]
    + [(Kind.STEP, column) for column in ("iteration", "version")],
)
def test_counter_of_an_event(run: Run, kind: Kind, column: str) -> None:
    number = int(np.flatnonzero(run.events_array["kind"] == kind)[10])
    change_event(run, number, column, run.events_array[column][number] + 1)
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == number


def test_step_size_of_an_event(run: Run) -> None:
    change_event(run, 0, "step_size", 0.051)
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == 0
    assert "step size 0.05" in difference.what


def keep_events(run: Run, numbers: np.ndarray) -> None:
    """Rewrite the event log with these rows alone."""
    with edited(run.path) as file:
        rows = file["events"][:][numbers]
        file["events"].resize(len(rows), axis=0)
        file["events"][:] = rows


@pytest.mark.parametrize("kind", [Kind.UPDATE, Kind.STEP])
def test_event_missing_in_the_middle(run: Run, kind: Kind) -> None:
    """The row after the one that is missing no longer fits, at the latest by its iteration."""
    number = int(np.flatnonzero(run.events_array["kind"] == kind)[6])
    keep_events(run, np.delete(np.arange(len(run.events_array)), number))
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == number


def test_events_missing_at_the_end(run: Run) -> None:
    keep_events(run, np.arange(len(run.events_array) - 2))
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == len(run.events_array) - 2
    assert f"taken after {len(run.events_array)} events, {len(run.events_array) - 2} are recorded" in difference.what


def test_run_that_was_killed_may_lack_its_last_events(run: Run) -> None:
    """Snapshots and events are written in blocks of their own, so the file of a killed run ends raggedly."""
    keep_events(run, np.arange(len(run.events_array) - 2))
    with edited(run.path) as file:
        status = file["status"][()]
        status["state"] = State.RUNNING.text.encode()
        file["status"][...] = status
    outcome = replayed(run)
    assert outcome.difference is None
    assert outcome.events == len(run.events_array) - 2


def test_other_seed(run: Run) -> None:
    """A file whose experiment was edited does not replay."""
    with edited(run.path) as file:
        file.attrs["experiment"] = file.attrs["experiment"].replace(b"seed = 4", b"seed = 5")
    difference = replayed(run).difference
    assert difference is not None
    assert difference.event == 0
