"""Lanes: a run that shares a pass with others ends like the run alone, and can be repeated bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.support.edited import edited

from areabench.engine.events import State
from areabench.engine.lanes import MOST_LANES, build_pass, group_lanes
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFileError
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedasync import FedAsync
from areabench.methods.fedbuff import FedBuff
from areabench.methods.local import Local
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems.base import LocalLanes, ProblemSettings
from areabench.problems.data.digits import Digits
from areabench.problems.data.file import File
from areabench.problems.data.mnist import Mnist
from areabench.problems.data.settings import DataSettings
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.hinge import Hinge
from areabench.problems.logistic import Logistic
from areabench.problems.median import Median
from areabench.problems.quadratic import Quadratic
from areabench.problems.regression import Regression
from areabench.problems.robust import Robust
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.torch_module import TorchModule
from areabench.progress import ProgressLine, Style
from areabench.runfile.read import Run, open_run
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import NormalRates
from areabench.transports.options import RunOptions
from areabench.transports.replay import replay_run
from areabench.transports.session import simulate_together
from areabench.transports.simulator import simulate_lanes

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


def drawn(problem: ProblemSettings, **others: Any) -> Experiment:
    """The problem, which draws its own functions, with what else is to be changed."""
    return replace(SMALL, problem=problem, data=None, split=None, **others)


def run_together(experiments: Sequence[Experiment], folder: Path) -> list[Run]:
    """One pass, its files opened in the order of the experiments, which the pass must hold."""
    (members,) = group_lanes(experiments)
    paths = [folder / f"lane{number}.h5" for number in range(len(experiments))]
    simulate_together(
        [experiments[number] for number in members], [paths[number] for number in members],
        RunOptions(None, folder / "cache", "a test", False, Style.NONE),
    )  # fmt: skip
    return [open_run(path) for path in paths]


def outcome(run: Run, folder: Path) -> str:
    """What a repetition finds: the first difference, empty where there is none."""
    found = replay_run(run, build_scenario(run.experiment, folder / "cache"), ProgressLine("", None, Style.NONE))
    if found.difference is not None:
        return found.difference.what
    assert found.metrics is not None
    assert found.metrics.rows == len(run.snapshot_index)
    return found.metrics.difference or ""


def assert_same(lane: Run, alone: Run, tolerance: float = RUN_TOLERANCE) -> None:
    """Both had the same events, and nearly the same models."""
    assert (lane.experiment, lane.status) == (alone.experiment, alone.status)
    columns = ["time_s", "version", "event"]
    assert lane.snapshot_index[columns].tolist() == alone.snapshot_index[columns].tolist()
    assert lane.staleness.tolist() == alone.staleness.tolist()
    assert lane.served.tolist() == alone.served.tolist()
    counted = [name for name in alone.events_array.dtype.names or () if name not in ("digest", "step_size")]
    assert lane.events_array[counted].tolist() == alone.events_array[counted].tolist()
    np.testing.assert_allclose(lane.events_array["step_size"], alone.events_array["step_size"])
    for kind in ("models", "averages") if alone.experiment.record.average else ("models",):
        one, other = getattr(lane, kind)[-1], getattr(alone, kind)[-1]
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
    for name in alone.metrics_array.dtype.names or ():
        found, expected = lane.metrics_array[name], alone.metrics_array[name]
        if "accuracy" not in name:
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- grouping


def test_asynchronous_methods_and_step_sizes_of_a_trial_share_a_pass() -> None:
    experiments = with_methods((*SYNCHRONOUS, *ASYNCHRONOUS)) + with_methods(ASYNCHRONOUS, replace(SMALL, seed=4))
    passes = group_lanes(experiments)
    assert [set(members) for members in passes] == [{0, 1, 2}, set(range(3, 12)), set(range(12, 21))]
    names = [experiments[number].method.name for number in passes[1]]
    assert names == ["area"] * 3 + ["as-fedavg"] * 3 + ["fedbuff"] * 3


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
        replace(SMALL, method=ZERO[0]),  # clients that do not train first
        replace(SMALL, method=SYNCHRONOUS[0]),
    ],
)
def test_another_setting_needs_another_pass(other: Experiment) -> None:
    assert group_lanes([SMALL, other]) == [(0,), (1,)]


@pytest.mark.parametrize(
    "base",
    [
        replace(SMALL, record=replace(SMALL.record, snapshots="aggregations")),
        replace(SMALL, record=replace(SMALL.record, interval_s=0.001)),
        replace(SMALL, stop=Stop(iterations=10)),
        replace(SMALL, data=File(file="any.npz")),
        replace(SMALL, problem=TorchModule(module="a:b")),
        replace(SMALL, faults=Faults(lost=(1,), lost_at_s=(0.5,))),
        replace(SMALL, clients=Clients(count=5, work="ticks", tick_s=0.1)),
        replace(SMALL, delays=ExponentialDelays(per="step")),
        replace(SMALL, local=Local(prox=1.0)),
    ],
)
def test_runs_that_cannot_share_a_pass(base: Experiment) -> None:
    assert group_lanes(with_methods(ASYNCHRONOUS[:2], base)) == [(0,), (1,)]


def test_runs_with_other_rounds_of_s_fedavg_do_not_share_a_pass() -> None:
    three = SFedAvg(step_size=0.1, clients_per_round=3)
    assert group_lanes(with_methods((SYNCHRONOUS[0], three))) == [(0,), (1,)]


def test_runs_with_other_criteria_share_a_pass_in_groups_of_their_own(tmp_path: Path) -> None:
    others = (EveryUpdates(updates=2), SMALL.aggregation, EveryPeriod(period_s=0.5))
    experiments = [SMALL, *(replace(SMALL, aggregation=other) for other in others)]
    (members,) = group_lanes(experiments)
    groups = build_pass(build_scenario(SMALL, tmp_path), [experiments[number] for number in members])
    assert sorted(len(group.start) for group in groups) == [1, 1, 2]
    assert members.index(0) + 1 == members.index(2)  # lanes of one group are together


@pytest.mark.parametrize(
    ("base", "widths"),
    [
        (SMALL, [MOST_LANES, 3]),
        (replace(SMALL, data=Mnist(), clients=Clients(count=128)), [MOST_LANES, 3]),
        (replace(SMALL, data=Mnist(), clients=Clients(count=10_000)), [2] * 17 + [1]),
        (replace(SMALL, data=Mnist(), clients=Clients(count=100_000)), [1] * 35),
        (drawn(Quadratic(dimension=2000), clients=Clients(count=10_000)), [4] * 8 + [3]),
        (drawn(Quadratic(), stop=Stop(horizon_s=1e5), record=Record(interval_s=1e3)), [1] * 35),  # events
    ],
)
def test_a_pass_is_cut_where_it_is_too_wide_or_would_hold_more_than_a_gigabyte(
    base: Experiment, widths: list[int]
) -> None:
    methods = [Area(step_size=1.0 + number) for number in range(MOST_LANES + 3)]
    assert [len(members) for members in group_lanes(with_methods(methods, base))] == widths


@pytest.mark.parametrize(("data", "entries"), [(Mnist(), 7840), (Digits(), 640), (SMALL.data, 48)])
def test_the_size_of_a_model_is_known_before_the_data_is_loaded(data: DataSettings, entries: int) -> None:
    assert data.model_entries == entries


# ---------------------------------------------------------------------------------------------- lanes and runs alone


# client-driven methods, whose Delta, criterion and reply order differ
GROUPS = (
    *((method, SMALL.aggregation) for method in ASYNCHRONOUS[:2]),
    (Area(step_size=0.05), EveryUpdates(updates=1)),
    (AsFedAvg(step_size=0.05), EveryUpdates(updates=5)),
    (FedBuff(step_size=0.05, server_step_size=0.5), EveryPeriod(period_s=0.13)),
    (FedBuff(step_size=0.05, server_step_size=0.5), PoissonAggregation(rate=8.0)),
    (AsyncSgd(step_size=0.02), EveryUpdates(updates=1)),
    (FedAsync(step_size=0.05, prox=0.0), EveryUpdates(updates=1)),
)
EVERYTHING = Record(interval_s=0.1, average=True)  # with all models and the event log
AS_ALONE = 1e-12  # a stack rounds each model as alone, if an array's place in memory does not matter


@pytest.mark.parametrize(
    ("base", "tolerance"),
    [
        (SMALL, RUN_TOLERANCE),
        (replace(SMALL, stop=Stop(horizon_s=2.0, iterations=70)), RUN_TOLERANCE),  # one group ends after the other
        (replace(SMALL, stop=Stop(horizon_s=2.0, target_loss=1.45)), RUN_TOLERANCE),
        (replace(SMALL, record=EVERYTHING, schedule=InverseSchedule(offset=20.0)), RUN_TOLERANCE),
        (replace(SMALL, problem=Logistic(batch_size=8, minimiser=True)), RUN_TOLERANCE),
        (drawn(Quadratic(noise=0.5), record=EVERYTHING, stop=Stop(horizon_s=2.0, target_loss=23.0)), AS_ALONE),
        (drawn(Robust(), record=EVERYTHING), AS_ALONE),
        (drawn(Median(), record=EVERYTHING), AS_ALONE),
        (replace(SMALL, problem=Hinge(), record=EVERYTHING), AS_ALONE),
        (replace(SMALL, problem=Regression(loss="huber"), record=EVERYTHING), AS_ALONE),
    ],
)
def test_each_lane_is_the_run_alone_and_is_repeated_to_the_bit(
    base: Experiment, tolerance: float, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    experiments = [replace(base, method=method, aggregation=criterion) for method, criterion in GROUPS]
    runs = run_together(experiments, tmp_path)
    assert {run.provenance.lanes for run in runs} == {len(runs)}
    assert sorted(run.provenance.lane for run in runs) == list(range(len(runs)))
    for run, experiment in zip(runs, experiments, strict=True):
        assert_same(run, record(experiment), tolerance)
        assert outcome(run, tmp_path) == ""
    ends_s = {run.status.end_s for run in runs}
    assert (len(ends_s) > 1) == (base.stop.has_target or base.stop.iterations is not None)


@pytest.mark.parametrize("methods", [SYNCHRONOUS, ZERO], ids=["s-fedavg", "first message zero"])
def test_other_lanes_equal_single_runs(
    methods: Sequence[MethodSettings], tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    experiments = with_methods(methods)
    for run, experiment in zip(run_together(experiments, tmp_path), experiments, strict=True):
        assert_same(run, record(experiment))
        assert outcome(run, tmp_path) == ""


def test_one_round_at_the_width_of_the_paper() -> None:
    """784 features, ten classes, 21 lanes: there BLAS takes another path for the wide product."""
    data = Synthetic(train_samples=400, test_samples=20, features=784, classes=10)
    scenario = build_scenario(replace(SMALL, data=data), Path("unused"))
    step_sizes = np.geomspace(1e-2, 1.0, 21)
    start = np.repeat(scenario.start[None], 21, axis=0)
    lanes = cast("LocalLanes", scenario.problem.local(2)).descend_lanes([start], step_sizes)
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


# ---------------------------------------------------------------------------------------------------- divergence


@pytest.mark.parametrize("kept", [SMALL.record, EVERYTHING])
def test_a_lane_that_diverges_ends_alone(kept: Record, tmp_path: Path, record: Callable[[Experiment], Run]) -> None:
    """1 - alpha·nu = -4 for the middle lane: its model grows fivefold per step."""
    methods = (Area(step_size=0.1), Area(step_size=5000.0), Area(step_size=1.0))
    experiments = with_methods(methods, replace(SMALL, stop=replace(SMALL.stop, divergence_norm=1e6), record=kept))
    runs = run_together(experiments, tmp_path)
    assert [run.status.state for run in runs] == [State.DONE, State.DIVERGED, State.DONE]
    assert runs[1].status.end_s < 2.0
    assert_same(runs[0], record(experiments[0]))
    assert_same(runs[1], record(experiments[1]), tolerance=1e-3)
    assert [outcome(run, tmp_path) for run in runs] == [""] * 3


@pytest.mark.parametrize("kept", [SMALL.record, EVERYTHING])
def test_a_lane_that_is_not_finite_is_run_again_alone(
    kept: Record, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    """Its updates would have been refused."""
    experiments = with_methods((Area(step_size=0.1), Area(step_size=1e30)), replace(SMALL, record=kept))
    tame, wild = run_together(experiments, tmp_path)
    alone = record(experiments[1])
    assert (tame.status.state, wild.status.state) == (State.DONE, State.DIVERGED)
    assert (wild.status, wild.provenance.lanes) == (alone.status, 1)
    assert wild.status.refused > 0
    assert (tame.provenance.lanes, tame.status.refused) == (2, 0)


def test_a_pass_ends_when_no_lane_is_left(tmp_path: Path) -> None:
    """Two lanes are beyond the bound, one after the other, and one is not finite, which is run again alone."""
    experiments = with_methods((Area(step_size=5e3), Area(step_size=2e4), Area(step_size=1e30)))
    lanes = build_pass(build_scenario(experiments[0], tmp_path), experiments)
    with np.errstate(over="ignore", invalid="ignore"):
        slow, quick, wild = simulate_lanes(lanes, lambda time_s, updates: None)
    assert wild is None
    assert slow is not None
    assert quick is not None
    assert [slow.status.state, quick.status.state] == [State.DIVERGED, State.DIVERGED]
    assert quick.status.updates < slow.status.updates < 150


# ---------------------------------------------------------------------------------------------------- repetition


@pytest.mark.parametrize("kept", [SMALL.record, EVERYTHING])
@pytest.mark.parametrize("base", [SMALL, drawn(Quadratic(dimension=3), method=Area(step_size=0.01))])
def test_a_run_alone_is_repeated_bit_for_bit(
    base: Experiment, kept: Record, tmp_path: Path, record: Callable[[Experiment], Run]
) -> None:
    assert outcome(record(replace(base, record=kept)), tmp_path) == ""


def change_a_row(file: Any, name: str) -> None:
    rows = file[name][:]
    rows[3:4] = rows[2:3] if name == "snapshots/index" else rows[3:4] + 1
    file[name][:] = rows


def change_an_event(file: Any) -> None:
    rows = file["events"][:]
    rows["digest"][3] += 1
    file["events"][:] = rows


def change_the_status(file: Any, name: str, value: Any) -> None:
    status = file["status"][()]
    status[name] = value
    file["status"][...] = status


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: change_a_row(file, "snapshots/index"), "snapshot 3 is "),
        (lambda file: change_a_row(file, "tally/served"), "the number"),
        (lambda file: change_a_row(file, "tally/staleness"), "the staleness"),
        (change_an_event, "event 3 is "),
        (lambda file: change_the_status(file, "updates", 1), "status "),
        (lambda file: file["snapshots/index"].resize(4, axis=0), "21 snapshots, recorded 4"),
    ],
)
def test_what_was_changed_is_found(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    kept = replace(SMALL.record, events=change is change_an_event)
    path = run_together(with_methods(ASYNCHRONOUS[:2], replace(SMALL, record=kept)), tmp_path)[1].path
    with edited(path) as file:
        change(file)
    assert outcome(open_run(path), tmp_path).startswith(says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: change_the_status(file, "state", b"failed"), "is failed and has no event log"),
        (lambda file: file["provenance"].attrs.__setitem__("transport", "mpi"), "real time do not repeat"),
    ],
)
def test_what_cannot_be_repeated(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    path = run_together(with_methods(ASYNCHRONOUS[:2]), tmp_path)[1].path
    with edited(path) as file:
        change(file)
    with pytest.raises(RunFileError, match=says):
        outcome(open_run(path), tmp_path)
