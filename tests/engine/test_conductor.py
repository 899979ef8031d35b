"""The conductor, the aggregation criteria and the watches for a target."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
from tests.methods.table import answer, method_named_by
from tests.support.quadratics import GivenQuadratic
from tests.support.runs import recorder_of

from areabench.arrays import Vector
from areabench.engine.conductor import Conductor, TargetWatch
from areabench.engine.evaluation import BackgroundWatch, NoTarget, VirtualWatch, target_met
from areabench.engine.events import Kind, Reason, State, Status, exit_code
from areabench.engine.messages import Order, Update, UpdateHeader, digest
from areabench.engine.server import Server
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.as_fedavg import AsFedAvg, as_fedavg
from areabench.methods.criteria import (
    AggregationSettings,
    Criterion,
    EveryPeriod,
    EveryUpdates,
    PoissonAggregation,
    build_criterion,
)
from areabench.methods.s_fedavg import SFedAvg, s_fedavg
from areabench.problems.base import Metrics
from areabench.problems.quadratic import Quadratic
from areabench.streams import Purpose, stream

EXPERIMENT = Experiment(
    clients=Clients(count=2),
    method=AsFedAvg(step_size=0.5),
    stop=Stop(horizon_s=10.0),
    problem=Quadratic(dimension=2),
    aggregation=EveryUpdates(updates=2),
    record=Record(snapshots="grid", interval_s=1.0),
)


class Bench:
    """A conductor of AS-FedAvg from (8, 8) whose clock and updates the test makes; alpha_k = 1/(1 + k)."""

    def __init__(self, folder: Path, watch: TargetWatch | None = None, **changes: Any) -> None:
        """`changes` are sections of the experiment."""
        experiment = replace(EXPERIMENT, **changes)
        self.now_s = 0.0
        self.orders: list[Order] = []
        self.recorder = recorder_of(folder / "run.h5", experiment)
        start = np.array([8.0, 8.0])
        self.server = Server(as_fedavg(2), lambda iteration, _time_s: 1 / (1 + iteration), start, clients=2)
        criterion = build_criterion(experiment.aggregation, as_fedavg(2), experiment.seed)
        self.conductor = Conductor(
            experiment, self.server, criterion, self.recorder, watch or NoTarget(), self.orders.append,
            lambda: self.now_s, start,
        )  # fmt: skip
        self.conductor.start()

    def update(self, *updates: tuple[float, int, Sequence[float]]) -> None:
        """Updates come in: when, of whom, and what."""
        for self.now_s, client, model in updates:
            self.conductor.update(self.message(client, model), self.now_s)

    def end(self, time_s: float) -> Status:
        """The status of a run that has ended, after `finish`."""
        ended = self.conductor.ended(time_s)
        assert ended is not None
        return self.conductor.finish(ended)

    def message(self, client: int, model: Sequence[float]) -> Update:
        """The answer to the client's last order, with made-up times."""
        open_order = self.conductor.run_state(self.now_s).orders_by_client()[client]
        header = UpdateHeader(
            client, open_order.round, open_order.order.version, drawn_delay_s=0.25, realised_delay_s=0.3
        )
        return Update(header, np.array(model, dtype=np.float64))

    def close(self) -> tuple[np.ndarray, list[tuple[float, int, int]], np.ndarray]:
        """Events, snapshot index and snapshots as they are in the file."""
        self.recorder.close()
        with h5py.File(self.recorder.path, "r") as file:
            index = [row.tolist()[:3] for row in file["snapshots/index"][:]]
            return file["events"][:], index, file["snapshots/model"][:]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


STEP = ((0.5, 0, (2, 2)), (0.75, 1, (4, 0)))  # updates after which the server steps to (3, 1)

# ---------------------------------------------------------------------------------------------------- events


def test_a_run_ends_with_its_last_event_whenever_somebody_asks(tmp_path: Path) -> None:
    """Updates of the same poll are discarded after the end and before the server looks whether there was one."""
    bench = Bench(tmp_path, stop=Stop(iterations=1))
    bench.update((0.5, 0, [2, 2]))
    bench.now_s = 0.6
    bench.conductor.discard(bench.message(1, [4, 0]), 0.6)
    bench.now_s = 0.7
    ended = bench.conductor.ended(0.7)
    assert ended is not None
    assert (ended.reason, ended.end_s, ended.discarded) == ("1 iterations", 0.5, 1)


def test_update_is_answered_before_the_step_it_triggers(bench: Bench) -> None:
    bench.update(*STEP)
    replies = bench.orders[2:]
    assert [(order.client, order.version, order.iteration, order.step_size) for order in replies] == [
        (0, 0, 1, 1 / 2),
        (1, 0, 2, 1 / 3),
    ]
    np.testing.assert_array_equal(replies[1].model, [8, 8])
    np.testing.assert_array_equal(bench.server.model, [3, 1])
    assert bench.conductor.updates == 2


def test_events_are_recorded_with_staleness_and_the_step_size_that_was_used(bench: Bench) -> None:
    bench.update((0.5, 0, [2, 2]))  # k=1, from the first order: alpha_0 = 1
    bench.update((0.75, 0, [4, 0]))  # k=2, from the reply of k=1: alpha_1 = 1/2; then the step k=3
    bench.update((1.5, 1, [0, 0]))  # k=4, from the first order, one step ago
    events, _, _ = bench.close()
    assert [Kind(kind) for kind in events["kind"]] == [Kind.UPDATE, Kind.UPDATE, Kind.STEP, Kind.UPDATE]
    assert events["iteration"].tolist() == [1, 2, 3, 4]
    assert events["version"].tolist() == [0, 0, 1, 1]
    assert events["staleness"].tolist() == [0, 0, 0, 1]
    assert events["client"].tolist() == [0, 0, -1, 1]
    assert events["step_size"][[0, 1, 3]].tolist() == [1, 0.5, 1]
    assert events["time_s"].tolist() == [0.5, 0.75, 0.75, 1.5]
    assert events["round"].tolist() == [0, 1, -1, 0]
    assert events["drawn_delay_s"][0] == 0.25
    assert events["digest"].tolist() == [digest(np.array(v)) for v in ([2.0, 2.0], [4.0, 0.0], [3.0, 1.0], [0.0, 0.0])]


def test_events_say_how_long_an_update_waited_and_was_answered(bench: Bench) -> None:
    bench.now_s = 0.75  # when the reply has gone out
    bench.conductor.update(bench.message(0, [2, 2]), 0.5, queue_s=0.125)
    assert bench.conductor.service_s == 0.25
    events, _, _ = bench.close()
    assert (events["queue_s"].tolist(), events["service_s"].tolist()) == ([0.125], [0.25])


def test_snapshots_before_a_refusal_do_not_show_it(bench: Bench) -> None:
    bench.now_s = 2.5
    bench.conductor.refuse(0, Reason.LENGTH, 2.5)
    bench.conductor.pass_time(3.5)
    events, index, _ = bench.close()
    assert [(row["client"], row["reason"]) for row in events] == [(0, Reason.LENGTH)]
    assert index == [(0.0, 0, 0), (1.0, 0, 0), (2.0, 0, 0), (3.0, 0, 1)]


def test_a_client_may_be_lost_before_its_first_round_is_over(bench: Bench) -> None:
    bench.update((0.5, 0, [2, 2]))
    bench.conductor.lose([1], 0.6)
    events, _, _ = bench.close()
    assert [(row["kind"], row["client"], row["round"]) for row in events] == [(Kind.UPDATE, 0, 0), (Kind.LOST, 1, 0)]


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (State.DONE, "6 iterations", 0), (State.FAILED, "client 1 failed", 1), (State.DIVERGED, "", 3),
        (State.STOPPED, "SIGTERM", 4), (State.STOPPED, "SIGINT", 130), (State.FAILED, "SIGINT", 1),
        (State.RUNNING, "", 0),
    ],
)  # fmt: skip
def test_the_exit_code_tells_how_a_run_ended(state: State, reason: str, code: int) -> None:
    assert exit_code(Status(state, reason, 0.0, 0, 0, 0)) == code


def test_update_after_the_end_is_counted_and_changes_nothing(bench: Bench) -> None:
    bench.update((0.5, 0, [2, 2]))
    bench.conductor.discard(bench.message(1, [4, 0]), 11.0)
    assert (bench.server.iteration, bench.conductor.updates, len(bench.orders)) == (1, 1, 3)
    status = bench.recorder.tally.status(State.DONE, "")
    assert (status.updates, status.discarded, status.server_steps) == (1, 1, 0)
    events, _, _ = bench.close()
    assert events["kind"].tolist() == [Kind.UPDATE, Kind.DISCARDED]
    assert events["iteration"].tolist() == [1, 1]


# ---------------------------------------------------------------------------------------------------- the end


def test_run_ends_after_the_horizon_and_not_at_it(bench: Bench) -> None:
    assert bench.conductor.ended(10.0) is None
    assert bench.end(10.001) == Status(State.DONE, "horizon of 10 s", 10.0, 0, 0, 0)


def test_run_ends_at_the_iteration_count_even_before_a_due_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, stop=Stop(iterations=2))
    bench.update((0.5, 0, [2, 2]))
    assert bench.conductor.ended(0.6) is None
    bench.update((0.75, 1, [4, 0]))  # k=2: the step would be k=3
    assert bench.end(0.8) == Status(State.DONE, "2 iterations", 0.75, 2, 0, 0)
    np.testing.assert_array_equal(bench.server.model, [8, 8])


@pytest.mark.parametrize("entry", [3e5, 1e150])
def test_run_that_diverges_is_named_so(tmp_path: Path, entry: float) -> None:
    bench = Bench(tmp_path, stop=Stop(horizon_s=10.0, divergence_norm=1e5))
    bench.update((0.5, 0, [entry, 0]))
    assert bench.conductor.ended(0.6) is None  # nothing has reached x_s
    bench.update((0.75, 1, [0, 0]))
    status = bench.end(0.8)
    assert (status.state, status.end_s) == (State.DIVERGED, 0.75)
    assert "at iteration 3 is beyond 100000" in status.reason


def test_divergence_comes_before_other_ends(tmp_path: Path) -> None:
    stop = Stop(horizon_s=10.0, iterations=3, divergence_norm=1.0)
    bench = Bench(tmp_path, stop=stop)
    bench.update((0.5, 0, [2, 2]), (0.75, 1, [2, 2]))
    assert bench.end(11.0).state == State.DIVERGED


class FirstBelow:
    """A watch that is met by the first snapshot whose first entry is below a limit."""

    def __init__(self, limit: float) -> None:
        self.limit, self.offered, self.found = limit, list[float](), ""

    def offer(self, time_s: float, model: Vector) -> None:
        self.offered.append(time_s)
        if model[0] < self.limit and not self.found:
            self.found = f"below at {time_s:g} s"

    def reached(self) -> str | None:
        return self.found or None

    def conclude(self) -> str | None:
        return self.reached()


def test_run_ends_with_the_snapshot_that_meets_the_target(tmp_path: Path) -> None:
    watch = FirstBelow(4)
    bench = Bench(tmp_path, watch)
    bench.update(*STEP)
    assert bench.conductor.ended(0.9) is None
    status = bench.end(3.5)  # the grid's point at 1 s shows it; nothing else happened until 3.5 s
    assert status == Status(State.TARGET, "below at 1 s", 1.0, 2, 0, 1)
    assert watch.offered == [0.0, 1.0]
    _, index, models = bench.close()
    assert index == [(0, 0, 0), (1, 1, 3)]
    np.testing.assert_array_equal(models, [[8, 8], [3, 1]])


@pytest.mark.parametrize("snapshots", ["grid", "aggregations"])
def test_a_run_that_diverged_has_not_reached_its_target(
    tmp_path: Path, snapshots: Literal["grid", "aggregations"]
) -> None:
    """Even where the last snapshot, that of the model that is too large, meets the target."""
    watch = FirstBelow(0)
    record = Record(snapshots=snapshots, interval_s=1.0)
    bench = Bench(tmp_path, watch, stop=Stop(divergence_norm=1e5), record=record)
    bench.update((0.5, 0, [-3e5, 0]), (0.75, 1, [0, 0]))
    assert bench.end(0.8).state == State.DIVERGED
    assert watch.found == "below at 0.75 s"


def test_start_that_meets_the_target_ends_the_run_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FirstBelow(9))
    assert bench.end(0.5) == Status(State.TARGET, "below at 0 s", 0.0, 0, 0, 0)
    assert bench.close()[1] == [(0, 0, 0)]


# ---------------------------------------------------------------------------------------------------- snapshots


def test_grid_snapshot_shows_all_events_up_to_and_including_its_time(bench: Bench) -> None:
    bench.update((1.0, 0, [2, 2]))
    bench.update((2.0, 1, [4, 0]))  # the step at 2 s exactly belongs to the snapshot at 2 s
    bench.update((3.5, 1, [0, 0]))
    bench.end(10.5)
    _, index, models = bench.close()
    assert [time_s for time_s, _, _ in index] == [float(time_s) for time_s in range(11)]
    assert [event for _, _, event in index] == [0, 1, 3, 3] + 7 * [4]
    assert [version for _, version, _ in index] == [0, 0] + 9 * [1]
    np.testing.assert_array_equal(models[:3], [[8, 8], [8, 8], [3, 1]])


def test_grid_snapshot_shows_no_later_loss(bench: Bench) -> None:
    bench.conductor.lose([1], 1.5)
    bench.end(10.5)
    assert [event for _, _, event in bench.close()[1]] == [0, 0] + 9 * [1]


AFTER_STEPS: dict[str, Any] = {"record": Record(snapshots="aggregations", interval_s=1.0)}


@pytest.mark.parametrize(
    ("changes", "times_s", "end_s", "index"),
    [
        (AFTER_STEPS, (1.5, 2.25, 3.0), 10.5, [(2.25, 1, 3), (10, 1, 4)]),
        (AFTER_STEPS | {"stop": Stop(iterations=3)}, (1.5, 2.25), 2.5, [(2.25, 1, 3)]),  # the last is not taken twice
        ({"record": Record(snapshots="none")}, (1.5, 2.25), 10.5, [(10, 1, 3)]),
    ],
)
def test_snapshots_after_steps_and_at_the_end(
    changes: dict[str, Any],
    times_s: Sequence[float],
    end_s: float,
    index: list[tuple[float, int, int]],
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, **changes)
    bench.update(*((time_s, min(place, 1), (2, 2)) for place, time_s in enumerate(times_s)))
    bench.end(end_s)
    assert bench.close()[1] == index


# ---------------------------------------------------------------------------------------------------- criteria


def criterion(settings: AggregationSettings, seed: int = 0) -> Criterion:
    """The criterion of an asynchronous method."""
    experiment = replace(EXPERIMENT, aggregation=settings, seed=seed)
    return build_criterion(experiment.aggregation, method_named_by(experiment), experiment.seed)


def times(found: Criterion, count: int) -> list[float]:
    """The next times of a criterion."""

    def walk() -> Iterator[float]:
        while True:
            yield found.next_s
            found.advance()

    return list(islice(walk(), count))


def test_counting_criterion() -> None:
    found = criterion(EveryUpdates(updates=3))
    assert [found.counted(updates) for updates in (0, 2, 3)] == [False, False, True]
    assert times(found, 2) == [math.inf] * 2


def test_periodic_criterion_does_not_add_up_rounding() -> None:
    found = criterion(EveryPeriod(period_s=0.1))
    assert not found.counted(10**9)
    assert found.passed == 0
    assert times(found, 30) == [0.1 * number for number in range(1, 31)]
    assert found.passed == 29


def test_poisson_criterion_draws_from_its_own_stream() -> None:
    gaps = stream(7, Purpose.AGGREGATION).standard_exponential(5) / 4.0
    found = criterion(PoissonAggregation(rate=4.0), seed=7)
    assert not found.counted(10**9)
    assert times(found, 5) == pytest.approx(np.cumsum(gaps).tolist(), rel=1e-15)
    assert times(criterion(PoissonAggregation(rate=4.0), seed=8), 1)[0] != pytest.approx(gaps[0])


def test_synchronous_method_brings_its_own_criterion() -> None:
    method = s_fedavg(5, 2, 0)
    for aggregation in (EveryUpdates(updates=1), EveryPeriod(period_s=0.5)):
        experiment = replace(EXPERIMENT, method=SFedAvg(step_size=1, clients_per_round=2), aggregation=aggregation)
        found = build_criterion(experiment.aggregation, method, experiment.seed)
        assert (found.counted(7), found.next_s) == (False, math.inf)  # never met: the rule says when
    server = Server(method, lambda _iteration, _time_s: 0.5, np.zeros(2), clients=5)
    due = []
    for order in server.begin():
        server.receive(answer(order, np.zeros(2)), order, 0.0)
        due.append(server.due)
    assert due == [False, True]


def test_timer_steps_and_is_set_to_the_next_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, aggregation=EveryPeriod(period_s=0.5))
    for client in (0, 1, 0):
        bench.update((0.25, client, [2, 2]))
    assert (bench.server.version, bench.conductor.timer_s) == (0, 0.5)
    bench.conductor.timer(0.5)
    np.testing.assert_array_equal(bench.server.model, [2, 2])
    bench.conductor.timer(1.0)  # no update has arrived since
    np.testing.assert_array_equal(bench.server.model, [2, 2])
    assert (bench.server.iteration, bench.server.version, bench.conductor.timer_s) == (5, 2, 1.5)


# ---------------------------------------------------------------------------------------------------- watches


BOWL = ([[[1, 0], [0, 1]]], [[0, 0]], [8, 8], 1)  # f(x) = |x|²/2


def metrics(loss: float, accuracy: float) -> Metrics:
    """The quality of one model."""
    return Metrics(np.array([loss]), np.array([accuracy]), np.array([np.nan]))


@pytest.mark.parametrize(
    ("stop", "loss", "accuracy", "expected"),
    [
        (Stop(target_accuracy=80.0), 0.5, 80.0, "test accuracy 80.00 % >= 80 %"),
        (Stop(target_accuracy=80.0), 0.5, 79.99, None),
        (Stop(target_accuracy=80.0), 0.5, math.nan, None),
        (Stop(target_loss=0.5), 0.5, math.nan, "training loss 0.5 <= 0.5"),
        (Stop(target_loss=0.5), 0.51, 99.0, None),
        (Stop(target_loss=0.5), math.nan, 99.0, None),
        (Stop(target_loss=0.5, target_accuracy=80.0), 0.4, 70.0, "training loss 0.4 <= 0.5"),
        (Stop(), 0.0, 100.0, None),
    ],
)
def test_target_met(stop: Stop, loss: float, accuracy: float, expected: str | None) -> None:
    assert target_met(stop, metrics(loss, accuracy)) == expected
    assert stop.has_target == (stop != Stop())


def test_virtual_watch_keeps_the_first_that_meets_the_target() -> None:
    watch = VirtualWatch(Stop(target_loss=2.5), GivenQuadratic(*BOWL))
    watch.offer(0.0, np.array([3.0, 0.0]))  # 4.5
    assert watch.reached() is None
    watch.offer(0.1, np.array([2.0, 1.0]))  # 2.5
    watch.offer(0.2, np.array([0.0, 0.0]))
    assert watch.reached() == "training loss 2.5 <= 2.5 at 0.1 s"


class Gated(GivenQuadratic):
    """|x|²/2 whose evaluation waits for a gate and may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(*BOWL)
        self.gate, self.fails, self.evaluated = threading.Event(), fails, list[float]()

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        assert self.gate.wait(30)
        if self.fails:
            raise ValueError("the evaluation failed")
        self.evaluated.append(float(models[0][0]))
        return super().evaluate(models, with_loss=with_loss)


def open_gate(problem: Gated, watch: BackgroundWatch) -> None:
    """Let the running evaluation end, and wait for it."""
    problem.gate.set()
    watch.close()


def test_background_watch_skips_snapshots_while_it_evaluates() -> None:
    problem = Gated()
    watch = BackgroundWatch(Stop(target_loss=2.5), problem)
    watch.offer(0.1, np.array([2.0, 1.0]))
    watch.offer(0.2, np.array([0.0, 0.0]))
    assert watch.reached() is None  # does not wait
    open_gate(problem, watch)
    assert watch.reached() == "training loss 2.5 <= 2.5 at 0.1 s"
    watch.offer(0.3, np.array([1.0, 0.0]))  # the target has been met: nothing more to do
    assert watch.reached() == "training loss 2.5 <= 2.5 at 0.1 s"
    assert problem.evaluated == [2.0]


def test_background_watch_looks_at_the_last_snapshot_when_the_run_is_over() -> None:
    problem = Gated()
    watch = BackgroundWatch(Stop(target_loss=2.5), problem)
    assert watch.conclude() is None  # nothing was offered
    watch.offer(0.1, np.array([4.0, 1.0]))
    watch.offer(0.2, np.array([2.0, 0.0]))  # passed over
    problem.gate.set()
    assert watch.conclude() == "training loss 2 <= 2.5 at 0.2 s"
    assert problem.evaluated == [4.0, 2.0]
    watch.close()


def test_background_watch_continues_until_the_target_is_met() -> None:
    problem = Gated()
    problem.gate.set()
    watch = BackgroundWatch(Stop(target_loss=2.5), problem)
    for time_s, entry in ((0.1, 4.0), (0.2, 3.0), (0.3, 1.0)):
        watch.offer(time_s, np.array([entry, 0.0]))
        assert watch._under_way is not None
        watch._under_way.exception(30)  # it has ended
        watch.reached()
    assert problem.evaluated == [4.0, 3.0, 1.0]
    assert watch.reached() == "training loss 0.5 <= 2.5 at 0.3 s"
    watch.close()


def test_exception_of_the_evaluation_is_raised_by_the_watch() -> None:
    problem, stop = Gated(fails=True), Stop(target_loss=2.5)
    watch = BackgroundWatch(stop, problem)
    watch.offer(0.1, np.array([2.0, 1.0]))
    open_gate(problem, watch)
    with pytest.raises(ValueError, match="the evaluation failed"):
        watch.reached()
    assert watch.conclude() is None  # a run that is over is not lost
    with pytest.raises(ValueError, match="the evaluation failed"):
        VirtualWatch(stop, problem).offer(0.1, np.array([2.0, 1.0]))
