"""The simulator: the same seed gives the same bits, draws belong to (client, round), and every run ends by name."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.quadratics import GivenQuadratic

from areabench.arrays import Vector
from areabench.engine.events import Kind, State
from areabench.engine.messages import Flag, Order
from areabench.engine.scenario import build_scenario
from areabench.engine.state import FirstOrders
from areabench.errors import RunFailure
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import AggregationSettings, EveryPeriod, EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems.data.synthetic import Synthetic
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import LocalQuadratic, Quadratic
from areabench.problems.splits.iid import Iid
from areabench.runfile.layout import ModelsInMemory
from areabench.runfile.read import Run
from areabench.settings.parse import to_toml
from areabench.streams import Purpose, stream
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates, NormalRates, UniformRates
from areabench.transports.simulator import LaneRecorder, Simulator, first_flights

Recorded = Callable[[Experiment], Run]

METHODS: tuple[MethodSettings, ...] = (
    Area(step_size=0.02),
    AsFedAvg(step_size=0.02),
    FedBuff(step_size=0.02, server_step_size=1.0),
    SFedAvg(step_size=0.02, clients_per_round=3),
    Area(step_size=0.02, first_message="zero"),
)
EXPERIMENT = Experiment(
    clients=Clients(count=4, local_steps=2),
    method=Area(step_size=0.02),
    stop=Stop(horizon_s=3.0),
    problem=Quadratic(dimension=5, noise=0.5, start_distance=10.0),
    rates=NormalRates(),
    aggregation=EveryUpdates(updates=2),
    record=Record(interval_s=0.25),
    seed=17,
)
FIXED = replace(EXPERIMENT, rates=UniformRates(rate=4.0), delays=FixedDelays())  # all deliver at 0.25 s, 0.5 s, ...


def fingerprint(run: Run) -> str:
    """A hash of all events and snapshots."""
    rows = (run.events_array, run.snapshot_index, run.models, run.metrics_array)
    return hashlib.sha256(b"".join(table.tobytes() for table in rows)).hexdigest()


def updates(run: Run) -> np.ndarray:
    """The events that are updates."""
    return np.asarray(run.events_array[run.events_array["kind"] == Kind.UPDATE])


def steps(run: Run) -> np.ndarray:
    """The events that are server steps."""
    return np.asarray(run.events_array[run.events_array["kind"] == Kind.STEP])


# ---------------------------------------------------------------------------------------------------- the same bits


def test_area_holds_one_memory_per_client(tmp_path: Path) -> None:
    """Models of the paper's first table: 128 memories, and the versions that open orders carry."""
    experiment = replace(
        EXPERIMENT,
        seed=1,
        method=Area(step_size=0.02),
        clients=Clients(count=128),
        rates=UniformRates(rate=10.0),
        aggregation=EveryUpdates(updates=4),
        record=Record(snapshots="none", events=False),
        stop=Stop(horizon_s=2.0),
    )
    held: list[int] = []

    def look(simulator: Simulator) -> None:
        clients = [client for client in simulator._clients.values() if client.round]
        memories = {id(client.memory_at(number)) for client in clients for number in (client.round - 1, client.round)}
        assert len(memories) == len(clients)
        orders = simulator._conductor.run_state(0.0).open_orders
        held.append(
            len(memories | {id(each.order.model) for each in orders} | {id(simulator._conductor._server.model)})
        )

    Simulator(build_scenario(experiment, tmp_path), LaneRecorder(1), lambda _time_s, _updates: None, look).run()
    assert max(held) == 201


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_same_seed_gives_the_same_bits(record: Recorded, method: MethodSettings) -> None:
    experiment = replace(EXPERIMENT, method=method)
    first, second = record(experiment), record(experiment)
    assert len(updates(first)) > 20
    assert fingerprint(first) == fingerprint(second)
    other = record(replace(experiment, seed=18))
    assert fingerprint(first) != fingerprint(other)
    assert not np.array_equal(first.model(0), other.model(0))


def test_fresh_processes_give_the_same_bits(record: Recorded, tmp_path: Path) -> None:
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(to_toml(EXPERIMENT))
    program = (
        "import sys; from pathlib import Path; from areabench.experiment.parse import load_experiment; "
        "from areabench.transports.session import simulate_run; from areabench.transports.options import RunOptions; "
        "from areabench.progress import Style; "
        "around = RunOptions(Path(sys.argv[2]), Path(sys.argv[3]), '', False, Style.NONE); "
        "simulate_run(load_experiment(Path(sys.argv[1])), around)"
    )
    outputs = [tmp_path / "first.h5", tmp_path / "second.h5"]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(experiment), str(output), str(tmp_path)])
        for output in outputs
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    with Run(outputs[0]) as first, Run(outputs[1]) as second:
        assert fingerprint(first) == fingerprint(second) == fingerprint(record(EXPERIMENT))


# ---------------------------------------------------------------------------------------------------- draws


def test_updates_arrive_after_the_drawn_delays(record: Recorded) -> None:
    run = record(EXPERIMENT)
    rates = build_scenario(EXPERIMENT, run.path.parent).rates
    for client in range(4):
        own = updates(run)[updates(run)["client"] == client]
        drawn = stream(17, Purpose.DELAYS, client).standard_exponential(len(own)) / rates[client]
        np.testing.assert_array_equal(own["drawn_delay_s"], drawn)
        np.testing.assert_allclose(own["time_s"], np.cumsum(drawn), rtol=1e-12)
        np.testing.assert_array_equal(own["round"], np.arange(len(own)))
        np.testing.assert_array_equal(own["realised_delay_s"], drawn)


def by_client_and_round(run: Run, column: str) -> dict[tuple[int, int], float]:
    """A column of the updates, by who sent them when."""
    return {(int(row["client"]), int(row["round"])): row[column] for row in updates(run)}


def test_delays_belong_to_client_and_round_whatever_the_method(record: Recorded) -> None:
    experiments = [replace(EXPERIMENT, method=method) for method in (*METHODS, Area(step_size=0.001))]
    experiments.append(replace(EXPERIMENT, aggregation=EveryPeriod(period_s=0.3)))
    found = [by_client_and_round(record(experiment), "drawn_delay_s") for experiment in experiments]
    for other in found[1:]:
        shared = found[0].keys() & other.keys()
        assert len(shared) > 10
        assert all(found[0][place] == other[place] for place in shared)


def test_delays_of_a_client_do_not_depend_on_the_others(record: Recorded) -> None:
    few = replace(EXPERIMENT, rates=ListedRates(values=(10.0, 5.0, 5.0, 5.0)))
    more = replace(few, clients=Clients(count=6), rates=ListedRates(values=(10.0, 1.0, 2.0, 3.0, 4.0, 5.0)))
    first = by_client_and_round(record(few), "drawn_delay_s")
    second = by_client_and_round(record(more), "drawn_delay_s")
    shared = [place for place in first.keys() & second.keys() if place[0] == 0]
    assert len(shared) > 10
    assert all(first[place] == second[place] for place in shared)


def test_gradient_noise_belongs_to_client_and_round(record: Recorded) -> None:
    """Models of the first version are the start, so first updates from it agree across AS-FedAvg and S-FedAvg."""
    base = replace(EXPERIMENT, problem=Quadratic(dimension=5, noise=5.0))
    asynchronous = record(replace(base, method=AsFedAvg(step_size=0.02)))
    synchronous = record(replace(base, method=SFedAvg(step_size=0.02, clients_per_round=4)))
    first, second = (by_client_and_round(run, "digest") for run in (asynchronous, synchronous))
    assert [first[client, 0] for client in range(4)] == [second[client, 0] for client in range(4)]
    assert len({first[client, 0] for client in range(4)}) == 4


def test_minibatches_belong_to_client_and_round(record: Recorded) -> None:
    """Without server steps all models are the start, so equal digests mean equal mini-batches; the order differs."""
    data = Synthetic(train_samples=200, test_samples=10, features=6, classes=3)
    base = replace(
        EXPERIMENT, problem=Logistic(batch_size=4), data=data, split=Iid(), method=AsFedAvg(step_size=0.5),
        aggregation=EveryUpdates(updates=10**6), rates=ListedRates(values=(9.0, 7.0, 5.0, 3.0)),
    )  # fmt: skip
    runs = record(base), record(replace(base, rates=ListedRates(values=(3.0, 5.0, 7.0, 9.0))))
    assert updates(runs[0])["client"][:20].tolist() != updates(runs[1])["client"][:20].tolist()
    first, second = (by_client_and_round(run, "digest") for run in runs)
    shared = first.keys() & second.keys()
    assert len(shared) > 20
    assert all(first[place] == second[place] for place in shared)
    assert len({first[place] for place in shared}) == len(shared)


# ---------------------------------------------------------------------------------------------------- order in time


def test_first_updates_arrive_by_time_then_in_the_order_of_the_calls() -> None:
    clients = np.array([5, 0, 3, 1])
    orders = FirstOrders(Order(-1, np.zeros(1), 0.5, 0, 0, Flag.FIRST, 2), clients)
    arrived = first_flights(orders, np.array([2.0, 1.0, 2.0, 4.0]))
    assert [(*flight[:4], flight.order.client) for flight in arrived] == [
        (1.0, 2, 1.0, 2, 0), (2.0, 1, 2.0, 2, 5), (2.0, 3, 2.0, 2, 3), (4.0, 4, 4.0, 2, 1),
    ]  # fmt: skip


def test_ties_break_by_sequence_number(record: Recorded) -> None:
    run = record(replace(FIXED, method=AsFedAvg(step_size=0.02), aggregation=EveryUpdates(updates=4)))
    assert updates(run)["client"].tolist() == 12 * [0, 1, 2, 3]  # 3 s of a delivery each 0.25 s
    assert updates(run)["time_s"].tolist() == [0.25 * number for number in range(1, 13) for _ in range(4)]
    # The replies leave before the step, so from the second round on all clients are one version behind.
    assert updates(run)["staleness"].tolist() == 4 * [0] + 44 * [1]


def test_fast_client_delivers_more_often(record: Recorded) -> None:
    run = record(replace(FIXED, rates=ListedRates(values=(8.0, 2.0, 1.0, 0.5))))
    counts = np.bincount(updates(run)["client"])
    assert counts.tolist() == [24, 6, 3, 1]
    fast, slow = (updates(run)[updates(run)["client"] == client] for client in (0, 3))
    assert slow["staleness"].max() > fast["staleness"].max()
    np.testing.assert_array_equal(updates(run)["staleness"], updates(run)["version"] - updates(run)["base_version"])


def test_step_sizes_follow_the_schedule(record: Recorded) -> None:
    run = record(replace(EXPERIMENT, schedule=InverseSchedule(offset=10.0)))
    told = dict.fromkeys(range(4), 0.02)
    for row in updates(run):
        assert row["step_size"] == told[int(row["client"])]
        told[int(row["client"])] = 0.02 / (1 + row["iteration"] / 10.0)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_iterations_count_updates_and_steps(record: Recorded, method: MethodSettings) -> None:
    run = record(replace(EXPERIMENT, method=method))
    events, size = run.events_array, 3 if method.name == "s-fedavg" else 2
    assert events["iteration"].tolist() == list(range(1, len(events) + 1))
    assert np.array_equal(events["version"], np.cumsum(events["kind"] == Kind.STEP))
    assert (np.flatnonzero(events["kind"] == Kind.STEP) % (size + 1) == size).all()
    assert (np.diff(events["time_s"]) >= 0).all()
    assert run.status.updates == len(updates(run))
    assert run.status.server_steps == len(steps(run))
    assert run.status.discarded == 0


def test_s_fedavg_rounds_wait_for_the_slowest(record: Recorded) -> None:
    run = record(replace(EXPERIMENT, method=METHODS[3]))
    assert (updates(run)["staleness"] == 0).all()
    begun_s = 0.0
    for number, step in enumerate(steps(run)):
        own = updates(run)[3 * number : 3 * number + 3]
        assert len(set(own["client"])) == 3
        np.testing.assert_allclose(own["time_s"], begun_s + own["drawn_delay_s"], rtol=1e-12)
        begun_s = step["time_s"]
        assert begun_s == own["time_s"].max()


# ---------------------------------------------------------------------------------------------------- criteria


@pytest.mark.parametrize(
    ("criterion", "times_s"),
    [
        (EveryPeriod(period_s=0.4), 0.4 * np.arange(1, 8)),
        (PoissonAggregation(rate=5.0), np.cumsum(stream(17, Purpose.AGGREGATION).standard_exponential(100) / 5.0)),
    ],
)
def test_steps_by_the_clock(record: Recorded, criterion: AggregationSettings, times_s: np.ndarray) -> None:
    found = steps(record(replace(EXPERIMENT, aggregation=criterion)))["time_s"]
    assert len(found) > 5
    np.testing.assert_allclose(found, times_s[times_s <= 3.0], rtol=1e-12)


def test_update_at_the_time_of_a_step_comes_first(record: Recorded) -> None:
    run = record(replace(FIXED, aggregation=EveryPeriod(period_s=0.25), stop=Stop(horizon_s=0.5)))
    assert run.events_array["kind"].tolist() == 2 * (4 * [Kind.UPDATE] + [Kind.STEP])


# ---------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("stop", "reason", "end_s", "updates_and_steps"),
    [
        (Stop(horizon_s=3.0), "horizon of 3 s", 3.0, (48, 24)),  # what happens at the horizon still counts
        (Stop(iterations=10**6, horizon_s=0.3), "horizon of 0.3 s", 0.3, (4, 2)),
        # 0.25 s: u u S u u S (6); 0.5 s: u u S u (10)
        (Stop(iterations=10, horizon_s=3.0), "10 iterations", 0.5, (7, 3)),
    ],
)
def test_ends_at_the_horizon_or_after_the_iterations(
    record: Recorded, stop: Stop, reason: str, end_s: float, updates_and_steps: tuple[int, int]
) -> None:
    status = record(replace(FIXED, stop=stop)).status
    assert (status.state, status.reason, status.end_s) == (State.DONE, reason, end_s)
    assert (status.updates, status.server_steps) == updates_and_steps


def test_ends_at_the_target_loss(record: Recorded) -> None:
    whole = record(replace(EXPERIMENT, problem=Quadratic(dimension=5, start_distance=10.0)))
    losses = whole.metrics_array["train_loss"]
    target = float((losses[4] + losses[5]) / 2)
    assert (losses[:5] > target).all()
    run = record(replace(whole.experiment, stop=Stop(horizon_s=3.0, target_loss=target)))
    assert (run.status.state, run.status.end_s) == (State.TARGET, 1.25)
    assert run.status.reason.startswith("training loss ")
    assert run.status.reason.endswith(f"<= {target:g} at 1.25 s")
    assert run.snapshot_index["time_s"].tolist() == [0.25 * number for number in range(6)]
    np.testing.assert_array_equal(run.models, whole.models[:6])
    assert run.events_array["time_s"][-1] <= 1.25
    assert record(replace(run.experiment, stop=Stop(horizon_s=1.0, target_loss=target))).status.state == State.DONE
    at_the_end = record(replace(run.experiment, stop=Stop(horizon_s=1.25, target_loss=target))).status
    assert (at_the_end.state, at_the_end.reason) == (run.status.state, run.status.reason)


def test_target_and_iterations_reached_at_once(record: Recorded) -> None:
    base = replace(EXPERIMENT, record=Record(snapshots="aggregations"))
    loss = float(record(replace(base, stop=Stop(iterations=6))).metrics_array["train_loss"][-1])
    run = record(replace(base, stop=Stop(iterations=6, target_loss=loss)))
    assert (run.status.state, len(run.events_array)) == (State.TARGET, 6)


def test_more_snapshots_than_a_file_takes(record: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.runfile.record.MOST_SNAPSHOTS", 100)
    with pytest.raises(RunFailure, match=r"more than 100 snapshots at 10 s; use a larger record\.interval_s"):
        record(
            replace(EXPERIMENT, rates=UniformRates(rate=1e-7), stop=Stop(iterations=5), record=Record(interval_s=0.1))
        )


def test_ends_at_the_target_accuracy(record: Recorded) -> None:
    data = Synthetic(train_samples=200, test_samples=50, features=6, classes=3, spread=0.1)
    experiment = replace(
        EXPERIMENT, problem=Logistic(weighting="exact", start_width=0.0), data=data, split=Iid(),
        method=Area(step_size=2.0), stop=Stop(horizon_s=20.0, target_accuracy=90.0),
    )  # fmt: skip
    run = record(experiment)
    assert run.status.state == State.TARGET
    assert run.status.reason.startswith("test accuracy ")
    assert run.status.end_s == run.snapshot_index["time_s"][-1] == run.time_to_accuracy(90.0)
    assert (run.metrics_array["test_accuracy"][:-1] < 90).all()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_ends_as_diverged(record: Recorded, method: MethodSettings) -> None:
    run = record(replace(EXPERIMENT, method=replace(method, step_size=1e4)))
    assert run.status.state == State.DIVERGED
    assert "is beyond 1e+15" in run.status.reason
    assert run.status.end_s == run.snapshot_index["time_s"][-1] < 3.0
    assert not np.linalg.norm(run.model(-1)) <= 1e15


def test_ends_as_diverged_in_float32_beyond_its_range(record: Recorded) -> None:
    data = Synthetic(train_samples=100, test_samples=10, features=6, classes=3)
    experiment = replace(
        EXPERIMENT, problem=Logistic(regularisation=1.0, weighting="exact"), data=data, split=Iid(),
        stop=Stop(horizon_s=20.0, divergence_norm=1e300),
    )  # fmt: skip
    run = record(replace(experiment, method=Area(step_size=1e6)))
    assert run.status.state == State.DIVERGED
    assert math.isinf(float(run.status.reason.split()[2])) or "nan" in run.status.reason


# ---------------------------------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize(
    ("experiment", "times_s"),
    [
        (replace(EXPERIMENT, stop=Stop(horizon_s=1.1)), [0.0, 0.25, 0.5, 0.75, 1.0, 1.1]),
        (replace(FIXED, stop=Stop(horizon_s=0.5)), [0.0, 0.25, 0.5]),  # with the steps of these moments
        (replace(EXPERIMENT, record=Record(snapshots="none")), [3.0]),
    ],
)
def test_a_snapshot_shows_all_events_up_to_its_time(
    record: Recorded, experiment: Experiment, times_s: Sequence[float]
) -> None:
    run = record(experiment)
    index, events = run.snapshot_index, run.events_array
    assert index["time_s"].tolist() == times_s
    for number, row in enumerate(index):
        shown = events["time_s"] <= row["time_s"]
        assert row["event"] == np.count_nonzero(shown)
        assert row["version"] == np.count_nonzero(events["kind"][shown] == Kind.STEP)
        if row["event"] == 0:
            np.testing.assert_array_equal(run.model(number), build_scenario(experiment, run.path.parent).start)


def test_snapshots_after_steps(record: Recorded) -> None:
    grid = record(FIXED)
    run = record(replace(FIXED, record=Record(snapshots="aggregations")))
    assert run.snapshot_index["time_s"].tolist() == steps(run)["time_s"].tolist()
    assert run.snapshot_index["version"].tolist() == list(range(1, 25))
    np.testing.assert_array_equal(run.models[1::2], grid.models[1:])  # two steps each 0.25 s


# ---------------------------------------------------------------------------------------------------- refusals


class SpoiltRound(LocalQuadratic):
    """A local problem whose second round leads nowhere finite."""

    rounds = 0

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        self.rounds += 1
        return np.full_like(model, math.inf) if self.rounds == 2 else super().descend(model, step_size, steps)


class SpoiltQuadratic(GivenQuadratic):
    """f_i = |x - c_i|²/2 with c_i = (0, 0) and (4, 4); client 1 has a spoilt round."""

    def __init__(self) -> None:
        super().__init__([np.eye(2)] * 2, [[0, 0], [4, 4]], [8, 0], local_steps=1)

    def local(self, client: int) -> LocalQuadratic:
        kind = SpoiltRound if client == 1 else LocalQuadratic
        return kind(self.function(client), np.random.default_rng(0), 1, 0.0)


def test_a_client_whose_update_is_refused_forgets_it(tmp_path: Path) -> None:
    """Else the mean of the memories would no longer be what the server has."""
    experiment = replace(FIXED, clients=Clients(count=2), problem=Quadratic(dimension=2), stop=Stop(horizon_s=0.6))
    scenario = replace(build_scenario(experiment, tmp_path), problem=SpoiltQuadratic(), start=np.array([8.0, 0.0]))
    simulator = Simulator(scenario, LaneRecorder(1), lambda _time_s, _updates: None)
    status = simulator.run()
    assert (status.updates, status.refused) == (3, 1)
    checkpoint = simulator.checkpoint(ModelsInMemory())
    state = checkpoint.run_state.server.state
    memories = np.mean([checkpoint.memories[client] for client in range(2)], axis=0)
    np.testing.assert_allclose(state.model + state.aggregator, memories)
