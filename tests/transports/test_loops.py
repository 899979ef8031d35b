"""The server's and the clients' loop in real time, over wires made of lists and queues instead of MPI."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.runs import nothing, recorder_of
from tests.support.wires import (
    EXPERIMENT,
    NoRecall,
    ScriptedLink,
    SlowBowl,
    WorkerWire,
    client_of,
    order,
    own_clock,
    rounds_of,
    update,
)

from areabench.arrays import Vector
from areabench.engine.client import Client, Placement, place
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import Kind, Reason, State, Status
from areabench.engine.messages import Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import Scenario, build_scenario
from areabench.experiment.experiment import Experiment, Record, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryPeriod
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import Run
from areabench.timing.delays import RoundTime
from areabench.timing.rates import UniformRates
from areabench.transports.clock import Backoff, RealClock
from areabench.transports.replay import Replay
from areabench.transports.server_loop import ClientFailure, RealTimeServer, RunMonitors
from areabench.transports.worker_loop import ClientRoundFailure, HostedClient, Worker

BeginRound = Callable[[Order, int], tuple[Order, RoundTime]]
PATIENCE_S = 2.0  # what a loaded machine may need for something that takes milliseconds
TWO = replace(EXPERIMENT, stop=Stop(iterations=2, horizon_s=60.0))

# ---------------------------------------------------------------------------------------------------- the server


class Served:
    """A server on a scripted wire, with its run file."""

    def __init__(self, folder: Path, link: ScriptedLink, experiment: Experiment = EXPERIMENT) -> None:
        self.recorder = recorder_of(folder / "run.h5", experiment)
        self.shown: list[int] = []  # updates
        monitors = RunMonitors(NoTarget(), lambda _time_s, updates: self.shown.append(updates))
        self.server = RealTimeServer(build_scenario(experiment, folder), link, self.recorder, monitors)

    def run(self) -> tuple[Status, np.ndarray]:
        """How the run ended, and its events."""
        status = self.server.run()
        assert self.server.all_left
        self.recorder.close()
        with Run(self.recorder.path) as run:
            return status, run.events_array


def test_all_arrivals_of_a_poll_are_served_with_the_model_from_before_the_step(tmp_path: Path) -> None:
    link = ScriptedLink([[], [update(2), update(0), update(1)], [update(1, number=1), update(2, number=1)]])
    status, events = Served(tmp_path, link).run()
    assert events["client"].tolist() == [2, 0, 1, -1, 1, 2]
    assert [order.client for order in link.orders] == [0, 1, 2, 2, 0, 1, 1, 2]
    assert (status.state, status.reason) == (State.DONE, "6 iterations")
    assert (status.updates, status.server_steps, status.discarded) == (5, 1, 0)
    assert link.stopped
    start, replies = link.orders[0].model, link.orders[3:]
    assert all(np.array_equal(order.model, start) for order in replies[:3])
    assert all(np.array_equal(order.model, [1, 1]) for order in replies[3:])
    assert [order.version for order in replies] == [0, 0, 0, 1, 1]
    assert {order.flags for order in replies} == {Flag.REPLY}


U, D, R = Kind.UPDATE, Kind.DISCARDED, Kind.REFUSED


@pytest.mark.parametrize(
    ("polls", "unreadables", "events", "orders"),
    [
        ([[2, 0, 1]], [], [(U, 2), (U, 0), (D, 1)], [0, 1, 2, 2, 0]),  # the end comes in the middle of a poll
        ([[0, 1], [2], [], [0]], [], [(U, 0), (U, 1), (D, 2), (D, 0)], [0, 1, 2, 0, 1]),  # nobody is answered after it
        ([[], [0, 1]], [(2, Reason.PROTOCOL)], [(R, 2), (U, 0), (U, 1)], [0, 1, 2, 2, 0, 1]),  # works again
    ],
)
def test_iterations_end_a_run(
    polls: list[list[int]],
    unreadables: list[tuple[int, Reason]],
    events: list[tuple[Kind, int]],
    orders: list[int],
    tmp_path: Path,
) -> None:
    link = ScriptedLink(
        [[update(client, number=int(place == 3)) for client in poll] for place, poll in enumerate(polls)],
        unreadables=unreadables,
    )
    status, rows = Served(tmp_path, link, TWO).run()
    assert [(row["kind"], row["client"]) for row in rows] == events
    assert [order.client for order in link.orders] == orders
    kinds = [kind for kind, _ in events]
    assert (status.updates, status.discarded, status.refused) == (2, kinds.count(D), kinds.count(R))
    assert (status.server_steps, status.reason) == (0, "2 iterations")


def test_horizon_ends_the_run_without_any_update_and_the_server_sleeps(tmp_path: Path) -> None:
    served = Served(tmp_path, ScriptedLink([]), replace(EXPERIMENT, stop=Stop(horizon_s=0.03)))
    assert served.server.idle_s == 0.0
    begun_s = time.perf_counter()
    status, events = served.run()
    assert time.perf_counter() - begun_s >= 0.03
    assert (status.state, status.reason, status.end_s) == (State.DONE, "horizon of 0.03 s", 0.03)
    assert len(events) == 0
    assert served.server.idle_s > 0.0


def test_a_server_that_has_updates_does_nothing_else_in_between(tmp_path: Path) -> None:
    link = ScriptedLink([[update(0)], [], [update(1)], [update(2)]])
    served = Served(tmp_path, link, replace(EXPERIMENT, stop=Stop(iterations=3, horizon_s=60.0)))
    assert served.run()[0].updates == 3
    assert served.shown == [1]  # once, when nothing had come


def test_a_server_that_waits_for_last_messages_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(Backoff, "pause", lambda _backoff, limit_s: pauses.append(limit_s))
    Served(tmp_path, ScriptedLink([[], []])).server.stop_clients()
    assert pauses == [1.0, 1.0, 1.0]  # until the last messages were there, and once after them


def test_the_clock_starts_with_the_run(tmp_path: Path) -> None:
    served = Served(tmp_path, ScriptedLink([[update(0), update(1)]]), TWO)
    served.server._clock._begun_s -= 100.0  # as if it had taken so long to get ready
    assert served.run()[0].reason == "2 iterations"


def test_update_that_arrives_after_the_horizon_is_discarded(tmp_path: Path) -> None:
    link = ScriptedLink([[update(0)]], on_poll=lambda: time.sleep(0.03))  # the first poll takes longer than the run
    status, events = Served(tmp_path, link, replace(EXPERIMENT, stop=Stop(horizon_s=0.02))).run()
    assert events["kind"].tolist() == [Kind.DISCARDED]
    assert (status.updates, status.discarded) == (0, 1)
    assert events["time_s"][0] >= 0.03


OK, FAILED = Flag.NONE, Flag.FAILED


@pytest.mark.parametrize(
    ("polls", "failures", "replied"),
    [
        ([{0: OK, 1: FAILED, 2: OK}], [1], [0, 2]),  # the others of the poll are answered
        ([{1: FAILED}, {2: FAILED}], [1, 2], []),  # 2 fails while it is being stopped, 0 leaves
        ([{2: FAILED, 0: FAILED}, {}, {1: FAILED}], [2, 0, 1], []),  # no exception hides the first one
    ],
)
def test_failures_of_clients_end_the_run(
    polls: list[dict[int, Flag]],
    failures: list[int],
    replied: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = own_clock(monkeypatch)
    link = ScriptedLink([[update(client, flags=flags) for client, flags in poll.items()] for poll in polls])
    server = Served(tmp_path, link).server
    first = failures[0]
    with pytest.raises(ClientFailure, match=f"client {first} failed:\nthe traceback of client {first}"):
        server.run()
    assert [order.client for order in link.orders] == [0, 1, 2, *replied]
    server.stop_clients()
    assert server.all_left
    assert link.stopped
    assert link.failures == failures  # a client waits until its text has been taken
    assert sum(clock.slept) < 0.1  # one that has failed is not waited for


class StreamLink(ScriptedLink):
    """A wire on which every poll brings an update, until the stop."""

    def arrivals(self) -> Sequence[Update]:
        return super().arrivals() if self.stopped else [update(0, number=len(self.orders) - self.clients)]


def test_steps_by_the_clock_are_not_held_up_by_a_stream_of_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of which each reading takes a millisecond."""
    ticks = itertools.count()
    monkeypatch.setattr(RealClock, "now_s", lambda _clock: next(ticks) / 1000)
    experiment = replace(EXPERIMENT, aggregation=EveryPeriod(period_s=0.05), stop=Stop(horizon_s=0.24))
    status, events = Served(tmp_path, StreamLink([]), experiment).run()
    steps = events["time_s"][events["kind"] == Kind.STEP]
    assert status.updates > len(steps) == 4
    assert all(0 <= late_s < 0.02 for late_s in steps - 0.05 * np.arange(1, 5))


# ---------------------------------------------------------------------------------------------------- a worker


def work(wire: WorkerWire, client: Client, number: int, begin_round: BeginRound, stretch: float = 1.0) -> None:
    """A rank that hosts one client."""
    Worker(wire, {number: HostedClient(client, begin_round)}, RealClock(stretch)).work()


def work_together(wire: WorkerWire, problem: SlowBowl, delays_s: dict[int, float]) -> list[UpdateHeader]:
    """A rank that hosts these clients, each with its delay; what they send."""
    hosted = {client: HostedClient(client_of(problem), rounds_of(delay_s)) for client, delay_s in delays_s.items()}
    Worker(wire, hosted, RealClock()).work()
    return [sent.header for sent in wire.sent]


def test_client_computes_first_and_sends_when_its_delay_is_over() -> None:
    problem, wire = SlowBowl(compute_s=0.005), WorkerWire([order(Flag.NONE, client=7), order(version=3, client=7)], 2)
    delays = iter([0.04, 0.03])
    begun_s = time.perf_counter()
    work(wire, client_of(problem), 7, rounds_of(lambda: next(delays)))
    assert wire.sent_s[0] - begun_s >= 0.04
    assert wire.sent_s[1] - wire.sent_s[0] >= 0.03 - 1e-4  # between two updates, a reply's latency included
    headers = [sent.header for sent in wire.sent]
    assert [(header.client, header.round, header.base_version) for header in headers] == [(7, 0, 0), (7, 1, 3)]
    assert [header.drawn_delay_s for header in headers] == [0.04, 0.03]
    for header, computing_s, sent_s in zip(headers, problem.begun_s, wire.sent_s, strict=True):
        assert 0.005 <= header.compute_s <= header.realised_delay_s
        assert header.realised_delay_s >= header.drawn_delay_s
        assert computing_s < sent_s
    np.testing.assert_array_equal(wire.sent[0].payload, [8.5, 8.5])


@dataclass
class LateWire(WorkerWire):
    """A wire whose first order comes 50 ms after the client began to look for it."""

    asked_s: float = 0.0

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        self.asked_s = self.asked_s or time.perf_counter()
        return super().orders(wait=wait) if time.perf_counter() >= self.asked_s + 0.05 else []


@pytest.mark.parametrize(
    ("wire", "compute_s", "delay_s", "least_s", "flags"),
    [
        (WorkerWire([order()], 1), 0.0, 0.5, 0.5, Flag.NONE),
        (WorkerWire([order(Flag.NONE)], 1), 0.02, 0.001, 0.02, Flag.OVERRUN),
        (LateWire([order(Flag.NONE)], 1), 0.0, 0.2, 0.2, Flag.NONE),  # a call: the delay runs from when it is seen
        (LateWire([order(Flag.FIRST)], 1), 0.0, 0.02, 0.05, Flag.OVERRUN),  # from the start
        (LateWire([order(Flag.REPLY)], 1), 0.0, 0.02, 0.05, Flag.OVERRUN),  # from the update that it answers
    ],
)
def test_a_delay_that_is_over_when_the_client_is_ready_is_an_overrun(
    wire: WorkerWire, compute_s: float, delay_s: float, least_s: float, flags: Flag
) -> None:
    begun_s = time.perf_counter()
    work(wire, client_of(SlowBowl(compute_s)), 0, rounds_of(delay_s))
    header = wire.sent[0].header
    assert header.realised_delay_s >= least_s
    assert (header.drawn_delay_s, header.flags) == (delay_s, flags)
    if isinstance(wire, LateWire):
        assert wire.sent_s[0] - begun_s >= 0.05 + (0.2 if flags is Flag.NONE else 0.0)


@pytest.mark.parametrize(("orders", "rounds"), [([order()], 1), ([], 0)], ids=["asleep", "waiting for an order"])
def test_stop_is_noticed(orders: list[Order], rounds: int) -> None:
    wire, client = WorkerWire(orders, expected=1), client_of(SlowBowl())
    thread = threading.Thread(target=work, args=(wire, client, 0, rounds_of(1000.0)))
    thread.start()
    assert wire.looked.wait(30)
    while wire.laid_out or client.round < rounds:  # the client is computing
        time.sleep(1e-3)
    told_s = time.perf_counter()
    wire.told_to_stop.set()
    thread.join(30)
    assert time.perf_counter() - told_s < PATIENCE_S
    assert (client.round, wire.sent) == (rounds, [])


def test_exception_of_the_local_problem_is_raised() -> None:
    class Broken(SlowBowl):
        def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
            raise ValueError("no gradient")

    with pytest.raises(ClientRoundFailure, match="ValueError: no gradient") as caught:
        work(WorkerWire([order(client=3)], expected=1), client_of(Broken()), 3, rounds_of(0.0))
    assert caught.value.client == 3


def test_times_are_those_of_a_stretched_clock() -> None:
    wire = WorkerWire([order(Flag.NONE), order()], expected=2)
    begun_s = time.perf_counter()
    work(wire, client_of(SlowBowl(compute_s=0.02)), 0, rounds_of(0.01), stretch=5.0)
    first, second = (update.header for update in wire.sent)
    assert wire.sent_s[1] - begun_s >= 2 * 5.0 * 0.01
    assert first.compute_s >= 0.004  # a fifth of the real time
    assert first.drawn_delay_s == second.drawn_delay_s == 0.01
    assert 0.01 <= second.realised_delay_s <= (wire.sent_s[1] - begun_s) / 5.0
    assert np.isnan(first.reply_s)  # a call
    assert 0 <= second.reply_s <= second.realised_delay_s


def test_clients_of_one_rank_send_in_the_order_in_which_they_are_due() -> None:
    """Each in its own delay, while the others compute."""
    problem = SlowBowl(compute_s=0.002)
    delays_s = {4: 0.3, 5: 0.1, 6: 0.2}
    wire = WorkerWire([order(Flag.NONE, client=client) for client in delays_s], expected=3)
    headers = work_together(wire, problem, delays_s)
    assert [header.client for header in headers] == [5, 6, 4]
    assert all(header.realised_delay_s >= delays_s[header.client] for header in headers)
    assert wire.sent_s[2] < problem.begun_s[0] + sum(delays_s.values())  # side by side, not one after the other


@dataclass
class QuickWire(WorkerWire):
    """A wire that answers every update at once with an order, and counts the looks."""

    looks: int = 0

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        self.looks += 1
        return super().orders(wait=wait)

    def send(self, header: UpdateHeader) -> None:
        super().send(header)
        self.laid_out.append(order(client=header.client))


def test_a_rank_looks_at_its_messages_after_every_round() -> None:
    """Else a reply would seem to take as long as computing for all the others, and a stop would be seen late."""
    wire = QuickWire([order(Flag.NONE, client=client) for client in range(4)], expected=12)
    headers = work_together(wire, SlowBowl(compute_s=0.01), dict.fromkeys(range(4), 0.0))
    assert wire.looks >= 12
    assert np.nanmedian([header.reply_s for header in headers]) < 0.01  # not the three rounds of the others


def test_a_round_that_is_due_is_sent_before_the_next_one_is_computed() -> None:
    problem = SlowBowl(compute_s=0.05)
    wire = WorkerWire([order(Flag.NONE, client=client) for client in range(3)], expected=3)
    headers = work_together(wire, problem, dict.fromkeys(range(3), 0.0))
    assert [header.client for header in headers] == [0, 1, 2]
    assert wire.sent_s[0] < problem.begun_s[1] < wire.sent_s[1] < problem.begun_s[2]


# ---------------------------------------------------------------------------------------------------- pauses


def test_backoff_grows_and_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    backoff = Backoff(0.25, 1.0)
    for _ in range(5):
        backoff.pause(10.0)
    backoff.reset()
    backoff.pause(10.0)
    backoff.pause(0.125)
    backoff.pause(-1.0)
    assert pauses == [0.25, 0.375, 0.5625, 0.84375, 1.0, 0.25, 0.125, 0.0]


# ---------------------------------------------------------------------------------------------------- both together


class QueueWorkerLink:
    """A worker's end of a wire of queues."""

    def __init__(self, server: QueueServerLink) -> None:
        self._server, self._orders = server, queue.SimpleQueue[Order | None]()
        self._loaded: dict[int, Vector] = {}
        self.stopped = False

    def put(self, order: Order | None) -> None:
        self._orders.put(order)

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        found = [self._orders.get() for _ in range(self._orders.qsize())]
        self.stopped = self.stopped or None in found
        return [order for order in found if order is not None]

    def load(self, client: int, payload: Vector) -> None:
        self._loaded[client] = payload.copy()

    def send(self, header: UpdateHeader) -> None:
        self._server.incoming.put(Update(header, self._loaded.pop(header.client)))

    def answer(self, question: Order, memory: Vector) -> None:
        raise AssertionError("nobody asked")


class QueueServerLink:
    """The server's end of a wire of queues."""

    def __init__(self, placement: Placement) -> None:
        self.incoming = queue.SimpleQueue[Update]()
        self._placement = placement
        self.recall = NoRecall()
        self.ends = {rank: QueueWorkerLink(self) for rank in range(1, placement.workers + 1)}

    def arrivals(self) -> Sequence[Update]:
        return [self.incoming.get() for _ in range(self.incoming.qsize())]

    def order(self, order: Order) -> None:
        self.ends[self._placement.rank(order.client)].put(order)

    def stop_all(self) -> None:
        for end in self.ends.values():
            end.put(None)

    def failure(self, client: int) -> str:
        return ""

    def unreadable(self) -> Sequence[tuple[int, Reason]]:
        return []

    def lost(self) -> Sequence[int]:
        return []


def run_worker(scenario: Scenario, link: QueueWorkerLink, numbers: range) -> None:
    """What a worker's rank does."""
    delays = scenario.delays()
    begin_round = partial(scenario.begin_round, delays)
    hosted = {
        number: HostedClient(scenario.client(number), begin_round, stepwise=scenario.stepwise) for number in numbers
    }
    Worker(link, hosted, RealClock()).work()
    for number in hosted:
        link.load(number, np.zeros(0))
        link.send(UpdateHeader(number, -1, -1, flags=Flag.LEAVING))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "method", [Area(step_size=0.05), SFedAvg(step_size=0.05, clients_per_round=2)], ids=lambda method: method.name
)
def test_run_in_real_time_replays_bit_for_bit(tmp_path: Path, method: MethodSettings, workers: int) -> None:
    """Threads instead of ranks; what they did is what the replay does, discarded updates included."""
    experiment = replace(
        EXPERIMENT, method=method, problem=Quadratic(dimension=2, noise=1.0), rates=UniformRates(rate=200.0),
        stop=Stop(horizon_s=0.3), record=Record(interval_s=0.05),
    )  # fmt: skip
    scenario, path = build_scenario(experiment, tmp_path), tmp_path / "run.h5"
    placement = place(3, workers + 1)
    link = QueueServerLink(placement)
    threads = [
        threading.Thread(target=run_worker, args=(scenario, end, placement.hosted(rank)))
        for rank, end in link.ends.items()
    ]
    recorder = recorder_of(path, experiment)
    server = RealTimeServer(scenario, link, recorder, RunMonitors(NoTarget(), nothing))
    for thread in threads:
        thread.start()
    status = server.run()
    for thread in threads:
        thread.join(30)
    recorder.set_status(status)
    recorder.close()
    with Run(path) as run:
        assert status.updates > 0
        assert (run.status, len(run.events_array)) == (status, status.updates + status.discarded + status.server_steps)
        updates = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        assert (updates["realised_delay_s"] >= updates["drawn_delay_s"]).all()
        assert run.snapshot_index["time_s"].tolist() == [0.05 * number for number in range(6)] + [0.3]
        outcome = Replay(run, scenario, nothing).run()
    assert outcome.difference is None
    assert (outcome.events, outcome.snapshots) == (len(run.events_array), 7)
