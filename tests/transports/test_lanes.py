"""Lanes: a run that shares a pass with others ends like the run alone, and can be repeated bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.edited import edited

from areabench.engine.events import State, Status
from areabench.engine.lanes import MOST_LANES, build_pass, group_lanes
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFileError
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedasync import FedAsync
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems.data.digits import Digits
from areabench.problems.data.file import File
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.settings import DataSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.progress import ProgressLine, Style
from areabench.runfile.read import Run, open_run
from areabench.timing.rates import NormalRates
from areabench.transports.options import RunOptions
from areabench.transports.replay import replay_run
from areabench.transports.session import simulate_together
from areabench.transports.simulator import LaneRecorder, play_lanes

# What a wide product may change: each step rounds differently in the last bits of a float32.
STEP_TOLERANCE = 2e-6  # of the largest entry, after one round of local steps
RUN_TOLERANCE = 1e-4  # of the largest entry, after a whole run at step sizes where the run converges

STEP_SIZES = (0.01, 0.1, 1.0)
ASYNCHRONOUS: tuple[MethodSettings, ...] = (
    *(Area(step_size=size) for size in STEP_SIZES),
    *(AsFedAvg(step_size=size) for size in STEP_SIZES),
    *(FedBuff(step_size=size, server_step_size=0.5) for size in STEP_SIZES),
)
ZERO = tuple(Area(step_size=size, first_message="zero") for size in STEP_SIZES)
SYNCHRONOUS = tuple(SFedAvg(step_size=size, clients_per_round=2) for size in STEP_SIZES)
SMALL = Experiment(
    clients=Clients(count=5, local_steps=3),
    method=Area(step_size=0.1),
    stop=Stop(horizon_s=2.0),
    problem=Logistic(batch_size=8, weighting="exact"),
    data=Synthetic(train_samples=300, test_samples=60, features=12, classes=4),
    split=Dirichlet(concentration=0.5),
    rates=NormalRates(),
    aggregation=EveryUpdates(updates=3),
    record=Record(interval_s=0.1, models="last", loss_every=4, events=False),
    seed=3,
)


def with_methods(methods: Sequence[MethodSettings], base: Experiment = SMALL) -> list[Experiment]:
    return [replace(base, method=method) for method in methods]


def run_together(experiments: Sequence[Experiment], folder: Path) -> list[Run]:
    """One pass, its files opened; the caller closes nothing: the folder goes with the test."""
    outputs = [folder / f"lane{number}.h5" for number in range(len(experiments))]
    simulate_together(experiments, outputs, RunOptions(None, folder / "cache", "a test", False, Style.NONE))
    return [open_run(output) for output in outputs]


def distance(run: Run, alone: Run) -> float:
    """Largest difference of the last models, relative to the largest entry."""
    one, other = run.model(-1), alone.model(-1)
    return float(np.abs(one - other).max() / np.abs(other).max())


# ---------------------------------------------------------------------------------------------------- grouping


def test_asynchronous_methods_and_step_sizes_of_a_trial_share_a_pass() -> None:
    experiments = with_methods((*SYNCHRONOUS, *ASYNCHRONOUS)) + with_methods(ASYNCHRONOUS, replace(SMALL, seed=4))
    passes = group_lanes(experiments)
    assert [set(members) for members in passes] == [{0, 1, 2}, set(range(3, 12)), set(range(12, 21))]
    assert [experiments[number].method.name for number in passes[1]] == ["area"] * 3 + ["as-fedavg"] * 3 + [
        "fedbuff"
    ] * 3


@pytest.mark.parametrize(
    "other",
    [
        replace(SMALL, seed=9),
        replace(SMALL, clients=Clients(count=5, local_steps=2)),
        replace(SMALL, stop=Stop(horizon_s=2.5)),
        replace(SMALL, rates=NormalRates(deviation=1.0)),
        replace(SMALL, schedule=InverseSchedule(offset=5.0)),
        replace(SMALL, record=replace(SMALL.record, interval_s=0.2)),
        replace(SMALL, problem=Logistic(batch_size=4)),
        replace(SMALL, split=Dirichlet(concentration=0.25)),
        replace(SMALL, data=Mnist()),
    ],
)
def test_another_setting_needs_another_pass(other: Experiment) -> None:
    assert group_lanes([SMALL, other]) == [(0,), (1,)]


@pytest.mark.parametrize(
    "base",
    [
        replace(SMALL, record=replace(SMALL.record, events=True)),
        replace(SMALL, stop=Stop(horizon_s=2.0, target_loss=0.1)),
        replace(SMALL, record=replace(SMALL.record, snapshots="aggregations")),
        replace(SMALL, record=replace(SMALL.record, interval_s=0.001)),
        replace(SMALL, stop=Stop(iterations=10)),
        replace(SMALL, problem=Quadratic(dimension=3), data=None, split=None),
        replace(SMALL, data=File(file="any.npz")),
    ],
)
def test_runs_that_cannot_share_a_pass(base: Experiment) -> None:
    assert group_lanes(with_methods(ASYNCHRONOUS[:2], base)) == [(0,), (1,)]


def test_clients_that_do_not_train_first_have_a_pass_of_their_own() -> None:
    assert group_lanes(with_methods((*ZERO[:2], *ASYNCHRONOUS[2:4]))) == [(0, 1), (2, 3)]


def test_runs_with_other_criteria_share_a_pass_in_parts_of_their_own() -> None:
    others = (EveryUpdates(updates=2), SMALL.aggregation, EveryPeriod(period_s=0.5))
    experiments = [SMALL, *(replace(SMALL, aggregation=other) for other in others)]
    (members,) = group_lanes(experiments)
    assert sorted(members) == [0, 1, 2, 3]
    assert members.index(0) + 1 == members.index(2)  # lanes of one part are together


def test_runs_with_other_rounds_of_s_fedavg_do_not_share_a_pass() -> None:
    three = SFedAvg(step_size=0.1, clients_per_round=3)
    assert group_lanes(with_methods((SYNCHRONOUS[0], three))) == [(0,), (1,)]


def test_a_wide_group_is_cut() -> None:
    methods = [Area(step_size=1.0 + number) for number in range(MOST_LANES + 3)]
    assert [len(members) for members in group_lanes(with_methods(methods))] == [MOST_LANES, 3]


@pytest.mark.parametrize(("clients", "widths"), [(128, [21]), (10_000, [2] * 10 + [1]), (100_000, [1] * 21)])
def test_a_pass_holds_at_most_a_gigabyte_of_models(clients: int, widths: list[int]) -> None:
    base = replace(SMALL, data=Mnist(), clients=Clients(count=clients), stop=Stop(horizon_s=10.0))
    base = replace(base, record=replace(base.record, interval_s=0.1))
    methods = [Area(step_size=1.0 + number) for number in range(21)]
    assert [len(members) for members in group_lanes(with_methods(methods, base))] == widths


@pytest.mark.parametrize(("data", "entries"), [(Mnist(), 7840), (Digits(), 640), (SMALL.data, 48)])
def test_the_size_of_a_model_is_known_before_the_data_is_loaded(data: DataSettings, entries: int) -> None:
    assert data.model_entries == entries


def test_a_lane_alone_has_its_method(tmp_path: Path) -> None:
    scenario = build_scenario(SMALL, tmp_path)
    for method in (Area(step_size=0.1), FedBuff(step_size=0.1)):
        (part,) = build_pass(scenario, [replace(SMALL, method=method)]).parts
        assert (part.method.name, part.lanes) == (method.name, slice(0, 1))


# ---------------------------------------------------------------------------------------------- lanes and runs alone


@pytest.mark.parametrize(
    "criterion", [EveryUpdates(updates=3), EveryPeriod(period_s=0.13), PoissonAggregation(rate=8.0)]
)
@pytest.mark.parametrize("schedule", [SMALL.schedule, InverseSchedule(offset=20.0)])
def test_lanes_equal_single_runs(
    criterion: AggregationSettings, schedule: InverseSchedule, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    base = replace(SMALL, aggregation=criterion, schedule=schedule)
    for run, experiment in zip(
        run_together(with_methods(ASYNCHRONOUS, base), tmp_path), with_methods(ASYNCHRONOUS, base), strict=True
    ):
        alone = record(experiment)
        assert distance(run, alone) < RUN_TOLERANCE
        assert run.status == alone.status
        assert run.snapshot_index[["time_s", "version", "event"]].tolist() == (
            alone.snapshot_index[["time_s", "version", "event"]].tolist()
        )
        np.testing.assert_allclose(run.metrics_array["train_loss"], alone.metrics_array["train_loss"], rtol=1e-4)
        assert run.staleness.tolist() == alone.staleness.tolist()
        assert run.served.tolist() == alone.served.tolist()
        assert run.experiment == experiment


@pytest.mark.parametrize("methods", [SYNCHRONOUS, ZERO], ids=["s-fedavg", "first message zero"])
def test_other_lanes_equal_single_runs(
    methods: Sequence[MethodSettings], tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    experiments = with_methods(methods)
    for run, experiment in zip(run_together(experiments, tmp_path), experiments, strict=True):
        alone = record(experiment)
        assert distance(run, alone) < RUN_TOLERANCE
        assert run.status == alone.status


PARTS = (  # client-driven methods, whose Delta, criterion and reply order differ
    replace(SMALL, method=Area(step_size=0.1)),
    replace(SMALL, method=Area(step_size=1.0)),
    replace(SMALL, method=Area(step_size=0.1), aggregation=EveryUpdates(updates=1)),
    replace(SMALL, method=AsFedAvg(step_size=0.1), aggregation=EveryUpdates(updates=5)),
    replace(SMALL, method=FedBuff(step_size=0.1, server_step_size=0.5), aggregation=EveryPeriod(period_s=0.13)),
    replace(SMALL, method=FedBuff(step_size=0.1, server_step_size=0.5), aggregation=PoissonAggregation(rate=8.0)),
    replace(SMALL, method=AsyncSgd(step_size=0.02), aggregation=EveryUpdates(updates=1)),
    replace(SMALL, method=FedAsync(step_size=0.1, prox=0.0), aggregation=EveryUpdates(updates=1)),
)


def test_the_parts_of_a_pass_reply_before_or_after_their_own_steps(tmp_path: Path) -> None:
    (members,) = group_lanes(PARTS)
    lanes = build_pass(build_scenario(SMALL, tmp_path), [PARTS[number] for number in members])
    assert {part.method.reply for part in lanes.parts} == {"before", "after"}
    assert [part.lanes.stop - part.lanes.start for part in lanes.parts] == [1, 2, 1, 1, 1, 1, 1]
    assert [each.method.step_size for each in (PARTS[number] for number in members)] == (
        np.concatenate([part.step_sizes for part in lanes.parts]).tolist()
    )


@pytest.mark.parametrize(
    "stop", [SMALL.stop, Stop(horizon_s=2.0, iterations=70)], ids=["together", "one part after the other"]
)
def test_each_part_of_a_pass_equals_its_runs_alone(
    stop: Stop, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    """Also where the parts end one after the other: what is left of a pass continues."""
    experiments = [replace(experiment, stop=stop) for experiment in PARTS]
    (members,) = group_lanes(experiments)
    ends_s = set()
    for run, number in zip(run_together([experiments[each] for each in members], tmp_path), members, strict=True):
        alone = record(experiments[number])
        np.testing.assert_allclose(run.model(-1), alone.model(-1), atol=RUN_TOLERANCE * np.abs(alone.model(-1)).max())
        assert (run.experiment, run.status) == (experiments[number], alone.status)
        columns = ["time_s", "version", "event"]
        assert run.snapshot_index[columns].tolist() == alone.snapshot_index[columns].tolist()
        assert run.staleness.tolist() == alone.staleness.tolist()
        assert run.served.tolist() == alone.served.tolist()
        assert outcome(run, tmp_path) == ""
        ends_s.add(run.status.end_s)
    assert (len(ends_s) > 1) == (stop.iterations is not None)


def test_lanes_record_the_distance_to_the_minimiser(tmp_path: Path, record: Callable[[Experiment], Run]) -> None:
    base = replace(SMALL, problem=Logistic(batch_size=8, weighting="exact", minimiser=True))
    experiments = with_methods(ASYNCHRONOUS, base)
    assert len(group_lanes(experiments)) == 1
    for run, experiment in zip(run_together(experiments, tmp_path), experiments, strict=True):
        found, alone = (each.metrics_array["squared_distance"] for each in (run, record(experiment)))
        np.testing.assert_allclose(found, alone, rtol=1e-4)
        assert len(set(found)) > 5


def test_one_round_at_the_width_of_the_paper() -> None:
    """784 features, ten classes, 21 lanes: there BLAS takes another path for the wide product."""
    data = Synthetic(train_samples=400, test_samples=20, features=784, classes=10)
    scenario = build_scenario(replace(SMALL, data=data), Path("unused"))
    step_sizes = np.geomspace(1e-2, 1.0, 21)
    start = np.repeat(scenario.start[None], 21, axis=0)
    lanes = scenario.problem.local(2).descend_lanes([start], step_sizes)  # type: ignore[attr-defined]
    for lane, step_size in enumerate(step_sizes):
        alone = scenario.problem.local(2).descend(scenario.start, step_size)
        assert np.abs(lanes[lane] - alone).max() < STEP_TOLERANCE * np.abs(alone).max()


def test_an_event_log_is_the_same_run(record: Callable[[Experiment], Run]) -> None:
    """Leaving out the log changes nothing but the file."""
    kept, left_out = record(replace(SMALL, record=replace(SMALL.record, events=True))), record(SMALL)
    assert kept.model(-1).tobytes() == left_out.model(-1).tobytes()
    assert kept.snapshot_index.tolist() == left_out.snapshot_index.tolist()
    assert (kept.staleness.tolist(), kept.served.tolist()) == (left_out.staleness.tolist(), left_out.served.tolist())
    assert len(kept.events_array) == kept.status.updates + kept.status.server_steps
    assert len(left_out.events_array) == 0


def test_the_loss_is_computed_where_it_is_asked_for(tmp_path: Path) -> None:
    for run in run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path):
        found = np.flatnonzero(~np.isnan(run.metrics_array["train_loss"])).tolist()
        assert found == [0, 4, 8, 12, 16, 20]  # 21 snapshots of two seconds, each fourth and the last
        assert not np.isnan(run.metrics_array["test_accuracy"]).any()


# ---------------------------------------------------------------------------------------------------- divergence


def test_a_lane_that_diverges_ends_alone(tmp_path: Path, record: Callable[[Experiment], Run]) -> None:
    """1 - alpha·nu = -4 for the middle lane: its model grows fivefold per step."""
    methods = (Area(step_size=0.1), Area(step_size=5000.0), Area(step_size=1.0))
    experiments = with_methods(methods, replace(SMALL, stop=replace(SMALL.stop, divergence_norm=1e6)))
    first, wild, last = run_together(experiments, tmp_path)
    assert [run.status.state for run in (first, wild, last)] == [State.DONE, State.DIVERGED, State.DONE]
    alone = record(experiments[1])
    assert wild.status.reason.startswith("|x_s| = ")
    assert wild.status.end_s == alone.status.end_s < 2.0
    assert (wild.status.updates, wild.status.server_steps) == (alone.status.updates, alone.status.server_steps)
    assert len(wild.snapshot_index) == len(alone.snapshot_index)
    assert wild.served.sum() == wild.status.updates
    assert distance(first, record(experiments[0])) < RUN_TOLERANCE


def test_a_pass_ends_when_all_lanes_have_diverged(tmp_path: Path) -> None:
    experiments = with_methods((Area(step_size=5e3), Area(step_size=2e4)))
    lanes = build_pass(build_scenario(experiments[0], tmp_path), experiments)
    with np.errstate(over="ignore", invalid="ignore"):
        slow, quick = play_lanes(lanes, lambda time_s, updates: None)
    assert slow is not None
    assert quick is not None
    assert [slow.status.state, quick.status.state] == [State.DIVERGED, State.DIVERGED]
    assert quick.status.updates < slow.status.updates < 150


def test_a_lane_that_is_not_finite_is_run_again_alone(tmp_path: Path, record: Callable[[Experiment], Run]) -> None:
    """Its updates would have been refused."""
    experiments = with_methods((Area(step_size=0.1), Area(step_size=1e30)))
    tame, wild = run_together(experiments, tmp_path)
    alone = record(experiments[1])
    assert (tame.status.state, wild.status.state) == (State.DONE, State.DIVERGED)
    assert (wild.status, wild.provenance.lanes) == (alone.status, 1)
    assert wild.status.refused > 0
    assert (tame.provenance.lanes, tame.status.refused) == (2, 0)


# ---------------------------------------------------------------------------------------------------- repetition


def outcome(run: Run, tmp_path: Path) -> str:
    """What a repetition finds: the first difference, empty where there is none."""
    progress = ProgressLine("", None, Style.NONE)
    found = replay_run(run, build_scenario(run.experiment, tmp_path / "cache"), progress)
    if found.difference is not None:
        return found.difference.what
    assert found.metrics is not None
    assert found.metrics.rows == len(run.snapshot_index)
    return found.metrics.difference or ""


@pytest.mark.parametrize("methods", [ASYNCHRONOUS, SYNCHRONOUS, (*ASYNCHRONOUS, FedBuff(step_size=1e4))])
def test_every_lane_is_repeated_bit_for_bit(methods: Sequence[MethodSettings], tmp_path: Path) -> None:
    runs = run_together(with_methods(methods), tmp_path)
    assert [(run.provenance.lanes, run.provenance.lane) for run in runs] == [(len(runs), n) for n in range(len(runs))]
    assert [outcome(run, tmp_path) for run in runs] == [""] * len(runs)


@pytest.mark.parametrize(
    "base", [SMALL, replace(SMALL, problem=Quadratic(dimension=3), data=None, split=None, method=Area(step_size=0.01))]
)
def test_a_run_alone_is_repeated_bit_for_bit(
    base: Experiment, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    assert outcome(record(base), tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [("snapshots/index", "snapshot 3 is "), ("tally/served", "the number"), ("tally/staleness", "the staleness")],
)
def test_what_was_changed_is_found(name: str, words: str, tmp_path: Path) -> None:
    path = run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path)[1].path
    with edited(path) as file:
        rows = file[name][:]
        rows[3:4] = rows[2:3] if name == "snapshots/index" else rows[3:4] + 1
        file[name][:] = rows
    assert outcome(open_run(path), tmp_path).startswith(words)


def test_the_status_is_compared(tmp_path: Path) -> None:
    path = run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path)[1].path
    with edited(path) as file:
        status = file["status"][()]
        status["updates"] += 1
        file["status"][...] = status
    assert outcome(open_run(path), tmp_path).startswith("status ")


def test_a_run_that_has_not_ended_cannot_be_repeated(tmp_path: Path) -> None:
    path = run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path)[1].path
    with edited(path) as file:
        status = file["status"][()]
        status["state"] = b"failed"
        file["status"][...] = status
    with pytest.raises(RunFileError, match="is failed and has no event log"):
        outcome(open_run(path), tmp_path)


def test_real_time_cannot_be_repeated(tmp_path: Path) -> None:
    path = run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path)[1].path
    with edited(path) as file:
        file["provenance"].attrs["transport"] = "mpi"
    with pytest.raises(RunFileError, match="arrivals in real time do not repeat"):
        outcome(open_run(path), tmp_path)


def test_the_snapshots_of_a_pass_are_counted() -> None:
    recorder = LaneRecorder(2)
    assert not recorder.covers(0.0)
    recorder.snapshot(0.5, 1, np.zeros((2, 3)), None)
    assert (recorder.snapshots, recorder.covers(0.5), recorder.covers(0.6)) == (1, True, False)


def test_a_pass_ends_when_no_lane_is_left() -> None:
    """One lane is beyond the bound, and one is not finite, which is run again alone."""
    recorder, models = LaneRecorder(3), np.array([[3.0, 4.0], [0.0, 1.0], [math.inf, 0.0]])
    assert recorder.diverged(models, 4.0, 10) == ""
    models[1] = 5.0
    assert recorder.diverged(models, 4.0, 20) == "all lanes have diverged"
    first, second, third = recorder.ends(Status(State.DIVERGED, "", 0.0, 0, 0, 0))
    assert first is not None
    assert second is not None
    assert (first.status.reason, third) == ("|x_s| = 5 at iteration 10 is beyond 4", None)
    assert "at iteration 20" in second.status.reason
