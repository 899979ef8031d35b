"""Orders in queues, cancelled rounds, contacts and waits: in the simulator, and in a worker on a clock set by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.runs import nothing, recorder_of
from tests.support.wires import SlowBowl, StillClock, WorkerWire, rounds_of

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.conductor import Recording
from areabench.engine.events import Event, Kind, Status
from areabench.engine.messages import Flag, Order
from areabench.engine.scenario import Scenario, build_scenario
from areabench.errors import RunFailure
from areabench.experiment.experiment import Clients, Experiment, Record, Stop
from areabench.methods.area import Area, area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import Arrival, Call, Method, Report, Step, Work
from areabench.methods.criteria import EveryUpdates
from areabench.problems.base import LocalProblem
from areabench.problems.quadratic import Quadratic
from areabench.runfile.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from areabench.runfile.layout import ModelsInMemory
from areabench.runfile.read import Run
from areabench.timing.delays import RoundTime
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports.replay import Replay
from areabench.transports.simulator import LaneRecorder, Simulator
from areabench.transports.worker_loop import HostedClient, Worker

STEPS = 4
EXPERIMENT = Experiment(
    clients=Clients(count=3, local_steps=STEPS),
    method=AsFedAvg(step_size=0.25),
    stop=Stop(horizon_s=3.1),
    problem=Quadratic(dimension=2, noise=0.5),
    aggregation=EveryUpdates(updates=3),
    rates=ListedRates(values=(1.0, 2.0, 4.0)),  # a round of client 0 takes 1 s, a local step of it 0.25 s
    delays=FixedDelays(),
    record=Record(interval_s=0.5),
    seed=3,
)


class Counted(NamedTuple):
    """The model, which stays where it is, how many updates have arrived, and how many orders each client has."""

    model: Vector
    arrived: int = 0
    orders: tuple[int, ...] = ()


Answer = Callable[[Counted, Arrival], Step]


def ruled(first: tuple[int | Call, ...], answer: Answer) -> Method:
    """A method that begins with these calls and answers each update so; its clients remember and send x_i - y_i."""

    def report(memory: Vector, work: Work) -> Report:
        return Report(work.local - memory, work.local)

    def counted(step: Step, sender: int = -1) -> Step:
        """With the sender's order, cancelled ones and new ones counted."""
        orders = list(step.state.orders)
        for client in (*step.cancels, *([sender] if sender >= 0 else [])):
            orders[client] -= 1
        for call in step.calls:
            orders[call.client if isinstance(call, Call) else call] += 1
        return step._replace(state=step.state._replace(orders=tuple(orders)))

    def receive(state: Counted, arrival: Arrival) -> Step:
        return counted(answer(state._replace(arrived=state.arrived + 1), arrival), arrival.client)

    return Method(
        "ruled",
        remember=lambda start: start,
        report=report,
        start=lambda model: counted(Step(Counted(model, 0, (0,) * EXPERIMENT.clients.count), first)),
        receive=receive,
        aggregate=lambda state: Step(state._replace(model=state.model * 0.5)),
        interrupts=True,
    )


def scripted(first: tuple[int | Call, ...], script: Mapping[int, Mapping[str, Any]]) -> Method:
    """Answers the k-th update as the script says; others are not answered."""
    return ruled(first, lambda state, _arrival: Step(state, **script.get(state.arrived, {})))


def scenario_of(method: Method, folder: Path, experiment: Experiment = EXPERIMENT) -> Scenario:
    return replace(build_scenario(experiment, folder), method=method)


def played(method: Method, folder: Path) -> list[Event]:
    """The updates and cancelled orders."""
    recorder = LaneRecorder(keeps_events=True)
    Simulator(scenario_of(method, folder), recorder, nothing).run()
    return [event for event in recorder.events if event.kind in (Kind.UPDATE, Kind.CANCELLED)]


Moment = tuple[Checkpoint, int]
Pause = Callable[[Simulator], Status | None]


def noting(moments: list[Moment], recorder: Recording) -> Pause:
    """Keeps a checkpoint before every event, and how many events there were."""

    def pause(simulator: Simulator) -> Status | None:
        checkpoint = deepcopy(simulator.checkpoint(ModelsInMemory()))  # the next event may change a table in it
        moments.append((checkpoint, recorder.tally.events))
        return None

    return pause


def resumed(scenario: Scenario, checkpoint: Checkpoint) -> tuple[list[Event], Status]:
    """What happens from a checkpoint on, and how the run ends."""
    rest = LaneRecorder(keeps_events=True)
    rest.tally = checkpoint.run_state.tally.copy()
    simulator = Simulator(scenario, rest, nothing)
    simulator.resume(checkpoint)
    status = simulator.run()
    return rest.events, status


# ---------------------------------------------------------------------------------------------------- the simulator


def test_a_busy_client_takes_its_orders_one_after_the_other(tmp_path: Path) -> None:
    first = (0, Call(0, local_steps=2, step_size=0.125), Call(0, model=np.array([9.0, 9.0])), 2)
    events = played(scripted(first, {}), tmp_path)
    assert [(event.client, event.round, event.time_s) for event in events] == [
        (2, 0, 0.25), (0, 0, 1.0), (0, 1, 2.0), (0, 2, 3.0),
    ]  # fmt: skip
    assert [event.local_steps for event in events] == [STEPS, STEPS, 2, STEPS]
    assert [event.step_size for event in events] == [0.25, 0.25, 0.125, 0.25]
    assert [event.base_version for event in events] == [0, 0, 0, 0]  # of when the order was given
    assert [event.staleness for event in events] == [0, 0, 0, 1]  # the server has stepped after three updates


def descended(local: LocalProblem, model: Vector, steps: int) -> Vector:
    for _ in range(steps):
        model = local.descend(model, 0.25, 1)
    return model


def test_a_contacted_client_sends_what_the_steps_whose_time_is_over_lead_to(tmp_path: Path) -> None:
    sent = list[Vector]()

    def answer(state: Counted, arrival: Arrival) -> Step:
        sent.append(arrival.payload.copy())
        return Step(state, contacts=(0,) if state.arrived == 1 else (), calls=(0,) if arrival.client == 0 else ())

    method = ruled((0, 1), answer)
    scenario = scenario_of(method, tmp_path)
    first, second = played(method, tmp_path)[:2]
    assert [(event.client, event.time_s, event.local_steps) for event in (first, second)] == [
        (1, 0.5, STEPS), (0, 0.5, 2),
    ]  # fmt: skip
    assert second.realised_delay_s == 0.5
    alone = scenario.problem.local(0)
    model = descended(alone, scenario.start, 2)
    np.testing.assert_array_equal(sent[1], model - scenario.start)
    alone.skip(2)  # of the steps that were ordered and not made
    np.testing.assert_array_equal(sent[2], descended(alone, scenario.start, STEPS) - model)


def test_a_cancelled_round_leaves_the_memory_and_takes_its_samples(tmp_path: Path) -> None:
    sent = list[Vector]()

    def answer(state: Counted, arrival: Arrival) -> Step:
        if arrival.client == 0:
            sent.append(arrival.payload.copy())
        again = state.arrived == 1
        return Step(state, calls=(0,) if again else (), cancels=(0,) if again else ())

    method = ruled((0, 1), answer)
    events = played(method, tmp_path)
    told = [(event.kind, event.client, event.round, event.time_s) for event in events]
    assert told == [(Kind.UPDATE, 1, 0, 0.5), (Kind.CANCELLED, 0, 0, 0.5), (Kind.UPDATE, 0, 1, 1.5)]
    scenario = scenario_of(method, tmp_path)
    alone = scenario.problem.local(0)
    alone.skip(STEPS)
    np.testing.assert_array_equal(sent, [descended(alone, scenario.start, STEPS) - scenario.start])


def test_a_client_with_a_queue_gets_the_next_order_when_one_is_cancelled(tmp_path: Path) -> None:
    events = played(scripted((0, Call(0, local_steps=1), 1), {1: {"cancels": (0,)}}), tmp_path)
    assert [(event.kind, event.client, event.round, event.time_s, event.local_steps) for event in events] == [
        (Kind.UPDATE, 1, 0, 0.5, STEPS), (Kind.CANCELLED, 0, 0, 0.5, 0), (Kind.UPDATE, 0, 1, 1.5, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("contact", "found"), [(2, [(0.5, 2)]), (3, [(1.0, STEPS)]), (4, [(1.5, STEPS)]), (9, [])])
def test_a_client_that_waits_sends_when_it_is_contacted(
    contact: int, found: list[tuple[float, int]], tmp_path: Path
) -> None:
    """Its round is over after 1 s. The others answer at 0.25 s, 0.5 s, 1 s and 1.5 s, and the last of them no more."""
    script: dict[int, dict[str, Any]] = {2: {"calls": (1,)}, 3: {"calls": (1,)}}
    script[contact] = script.get(contact, {}) | {"contacts": (0,)}
    events = played(scripted((Call(0, waits=True), 1, 2), script), tmp_path)
    assert [event.time_s for event in events if event.client] == [0.25, 0.5, 1.0, 1.5]
    assert [(event.time_s, event.local_steps) for event in events if event.client == 0] == found
    assert all(event.realised_delay_s == event.time_s for event in events if event.client == 0)


def restless(state: Counted, arrival: Arrival) -> Step:
    """An answer of every kind in turn, to clients that have an order where they need one."""
    client, number = arrival.client, state.arrived
    busy = [other for other, orders in enumerate(state.orders) if orders and other != client]
    other = busy[number % len(busy)] if busy else None
    match number % 5:
        case 0:
            return Step(state, (client, (client + 1) % 3))
        case 1 if other is not None:
            return Step(state, (Call(other, waits=True), client), cancels=(other,))
        case 2 | 3 if other is not None:
            return Step(state, (client,), contacts=(other,))
        case _:
            return Step(state, (Call(client, local_steps=1 + number % STEPS, step_size=0.1 + 0.05 * (number % 3)),))


RESTLESS = ruled((0, 1, Call(1, local_steps=2), 2), restless)
ANY_DELAYS = pytest.mark.parametrize(
    "delays", [ExponentialDelays(), ExponentialDelays(per="step"), FixedDelays(per="step")], ids=repr
)


@ANY_DELAYS
def test_a_run_with_interrupts_replays_bit_for_bit(delays: ExponentialDelays | FixedDelays, tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, delays=delays, stop=Stop(iterations=120))
    scenario = scenario_of(RESTLESS, tmp_path, experiment)
    recorder = recorder_of(tmp_path / "run.h5", experiment, "simulator")
    status = Simulator(scenario, recorder, nothing).run()
    recorder.set_status(status)
    recorder.close()
    with Run(tmp_path / "run.h5") as run:
        kinds = run.events_array["kind"]
        cancelled = np.count_nonzero(kinds == Kind.CANCELLED)
        assert cancelled > 10
        assert status.updates + status.server_steps == 120 == len(kinds) - cancelled  # a cancelled order is neither
        assert recorder.tally.events == len(kinds)
        assert len(set(run.events_array["local_steps"][kinds == Kind.UPDATE])) == STEPS + 1
        assert Replay(run, scenario, nothing).run().difference is None


@ANY_DELAYS
def test_a_run_with_interrupts_resumes_to_the_bit_from_every_moment(
    delays: ExponentialDelays | FixedDelays, tmp_path: Path
) -> None:
    """Orders wait in queues, clients wait for contacts, and contacted ones have their update in flight."""
    scenario = scenario_of(RESTLESS, tmp_path, replace(EXPERIMENT, delays=delays, stop=Stop(iterations=50)))
    whole, moments, seen = LaneRecorder(keeps_events=True), list[Moment](), set[str]()
    ended = Simulator(scenario, whole, nothing, noting(moments, whole)).run()
    form = scenario.method.start(scenario.start).state
    for checkpoint, events in moments:
        state = checkpoint.run_state
        seen.update(["queued"] if state.queued else [])
        seen.update(["waiting"] if len(checkpoint.heap) < len(state.open_orders) else [])
        seen.update("contacted" for pending in checkpoint.heap if pending.time_s == state.time_s)
        write_checkpoint(tmp_path / "run.h5", checkpoint, 3)
        read = read_checkpoint(tmp_path / "run.h5", form, scenario.shapes.memory)
        rest, status = resumed(scenario, read)
        assert status == ended
        assert list(map(repr, rest)) == list(map(repr, whole.events[events:]))
    assert seen == {"queued", "waiting", "contacted"}


@pytest.mark.parametrize(("work", "per"), [("uniform", "round"), ("uniform", "step"), ("ticks", "round")])
def test_clients_that_choose_their_steps_replay_and_resume(work: Any, per: Any, tmp_path: Path) -> None:
    """The server knows how many samples their rounds took from their updates alone."""
    clients = Clients(count=3, local_steps=STEPS, work=work, tick_s=0.1 if work == "ticks" else None)
    experiment = replace(
        EXPERIMENT, clients=clients, method=Area(step_size=0.05), delays=ExponentialDelays(per=per)
    )  # fmt: skip
    scenario = build_scenario(experiment, tmp_path)
    recorder = recorder_of(tmp_path / "run.h5", experiment, "simulator")
    moments = list[Moment]()
    recorder.set_status(Simulator(scenario, recorder, nothing, noting(moments, recorder)).run())
    recorder.close()
    with Run(recorder.path) as run:
        made = run.events_array[run.events_array["kind"] == Kind.UPDATE]
        assert len(set(made["local_steps"])) > 1
        assert Replay(run, scenario, nothing).run().difference is None
        for checkpoint, events in (moments[3], moments[len(moments) // 2]):
            rest, _ = resumed(scenario, checkpoint)
            assert [event.digest for event in rest] == run.events_array["digest"][events:].tolist()


def test_ticks_pass_in_rounds_whose_local_steps_the_rule_gave(tmp_path: Path) -> None:
    """A resumed run knows how many rounds there were, but not whose local steps they were."""

    def answer(state: Counted, arrival: Arrival) -> Step:
        return Step(state, (Call(arrival.client, local_steps=2 if state.arrived % 2 else None),))

    clients = Clients(count=3, local_steps=STEPS, work="ticks", tick_s=0.1)
    scenario = scenario_of(ruled((0, 1, 2), answer), tmp_path, replace(EXPERIMENT, clients=clients))
    whole, moments = LaneRecorder(keeps_events=True), list[Moment]()
    Simulator(scenario, whole, nothing, noting(moments, whole)).run()
    for checkpoint, events in moments:
        assert list(map(repr, resumed(scenario, checkpoint)[0])) == list(map(repr, whole.events[events:]))


@pytest.mark.parametrize("snapshots", ["grid", "none"])
@pytest.mark.parametrize(
    ("script", "said"),
    [({}, "no client has an order"), ({1: {"calls": (Call(0, waits=True),)}}, "all clients with an order wait to be")],
)
def test_a_run_in_which_nothing_can_happen_any_more_fails(
    script: dict[int, dict[str, Any]], said: str, snapshots: Any, tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, stop=Stop(iterations=9), record=Record(snapshots=snapshots))
    simulator = Simulator(
        scenario_of(scripted((0, 2), script), tmp_path, experiment), LaneRecorder(keeps_events=True), nothing
    )
    with pytest.raises(RunFailure, match=f'^method "ruled" does not continue: {said}'):
        simulator.run()


# ---------------------------------------------------------------------------------------------------- a worker


class CountingBowl(SlowBowl):
    """Counts the samples that are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.skipped = 0

    def skip(self, steps: int) -> None:
        self.skipped += steps

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        count = 1 if steps is None else steps
        self.made += count
        return np.asarray(model + count * step_size)


@dataclass
class HandWire(WorkerWire):
    """What the test lays out is here at the next look."""

    here: list[Order] = field(default_factory=list)

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        here, self.here = self.here, []
        return here


@dataclass
class Bench:
    """A worker with one client, AREA's, whose rounds have four local steps and take 2 s."""

    stepwise: bool = True
    delay_s: float = 2.0
    wire: HandWire = field(default_factory=lambda: HandWire([], expected=100))
    clock: StillClock = field(default_factory=StillClock)
    problem: CountingBowl = field(default_factory=CountingBowl)

    def __post_init__(self) -> None:
        self.client = Client(area(3), self.problem, np.array([8.0, 8.0]), stepwise=self.stepwise)
        hosted = HostedClient(self.client, rounds_of(self.delay_s), stepwise=self.stepwise)
        self.worker = Worker(self.wire, {0: hosted}, self.clock)

    def get(self, *messages: Order) -> None:
        """Messages arrive, and are seen."""
        self.wire.here = list(messages)
        assert self.worker._take_orders() is bool(messages)

    def at(self, *times_s: float) -> None:
        """It is so late, and then so late; the worker does everything that it has to do."""
        for self.clock.time_s in times_s:
            while self.worker._send_and_compute():
                pass

    @property
    def sent(self) -> list[tuple[int, int, list[float]]]:
        """Round, local steps and payload of each update."""
        return [(sent.header.round, sent.header.local_steps, sent.payload.tolist()) for sent in self.wire.sent]

    @property
    def memory(self) -> list[float]:
        assert self.client.memory is not None
        return list(self.client.memory.tolist())


def work_order(flags: Flag = Flag.REPLY, version: int = 0) -> Order:
    return Order(0, np.array([8.0, 8.0]), 0.5, version, 0, flags, STEPS)


def interrupt(flag: Flag, number: int = 0) -> Order:
    """As a link delivers it: the round stands in place of the version."""
    return Order(0, np.empty(0), 0.0, number, 0, flag)


def test_a_stepwise_round_makes_each_step_when_the_one_before_is_over() -> None:
    bench = Bench()
    bench.get(work_order())
    for time_s, made in ((0.0, 1), (0.499, 1), (0.5, 2), (0.999, 2), (1.0, 3), (1.5, 4), (1.999, 4)):
        bench.at(time_s)
        assert (bench.problem.made, bench.sent) == (made, [])
    bench.at(2.0)
    assert bench.sent == [(0, STEPS, [2.0, 2.0])]
    header = bench.wire.sent[0].header
    assert (header.drawn_delay_s, header.realised_delay_s, header.flags) == (2.0, 2.0, Flag.NONE)
    assert (bench.problem.made, bench.problem.skipped, bench.memory) == (STEPS, 0, [10.0, 10.0])


def test_a_rank_that_is_late_still_looks_for_messages_between_local_steps() -> None:
    """One step at a time, although all are due."""
    bench = Bench()
    bench.get(work_order())
    bench.worker._send_and_compute()
    bench.clock.time_s = 10.0
    for made in (2, 3, STEPS):
        assert bench.worker._send_and_compute() is True
        assert (bench.problem.made, bench.sent) == (made, [])
    assert bench.worker._send_and_compute() is True
    assert (bench.wire.sent[0].header.flags, bench.wire.sent[0].header.realised_delay_s) == (Flag.OVERRUN, 10.0)


@pytest.mark.parametrize(("time_s", "made", "computed"), [(0.2, 0, 1), (0.7, 1, 2), (1.0, 2, 2), (1.9, 3, 4)])
def test_a_contacted_worker_sends_the_steps_whose_time_is_over(time_s: float, made: int, computed: int) -> None:
    bench = Bench()
    bench.get(work_order())
    bench.at(*(earlier_s for earlier_s in (0.0, 0.5, 1.0, 1.5) if earlier_s < time_s))
    bench.clock.time_s = time_s
    bench.get(interrupt(Flag.CONTACT))
    assert bench.sent == [(0, made, [0.5 * made] * 2)]
    header = bench.wire.sent[0].header
    assert (header.drawn_delay_s, header.realised_delay_s) == (time_s, time_s)
    assert (bench.problem.made, bench.problem.skipped) == (computed, STEPS - computed)
    assert bench.memory == [8.0 + 0.5 * made] * 2
    bench.at(5.0)
    assert len(bench.sent) == 1


def test_a_contact_that_comes_before_the_round_has_begun_or_with_its_order() -> None:
    bench = Bench()
    bench.get(work_order())
    bench.get(interrupt(Flag.CONTACT))
    assert bench.sent == [(0, 0, [0.0, 0.0])]
    assert bench.problem.made + bench.problem.skipped == STEPS
    bench.get(work_order(version=1), interrupt(Flag.CONTACT, 1))
    assert [number for number, _, _ in bench.sent] == [0, 1]


@pytest.mark.parametrize("stepwise", [True, False])
def test_a_contact_that_crosses_an_update_is_answered_by_that_update(stepwise: bool) -> None:
    bench = Bench(stepwise)
    bench.get(work_order())
    bench.at(0.0, 0.5, 1.0, 1.5, 2.0)
    bench.get(interrupt(Flag.CONTACT))
    assert bench.sent == [(0, STEPS, [2.0, 2.0])]
    bench.get(work_order(version=1))
    bench.at(2.1)
    bench.get(interrupt(Flag.CONTACT, 0))  # of a round that is over
    assert len(bench.sent) == 1


@pytest.mark.parametrize("stepwise", [True, False])
def test_an_update_that_waits_is_sent_when_its_client_is_contacted(stepwise: bool) -> None:
    bench = Bench(stepwise)
    bench.get(work_order(Flag.REPLY | Flag.WAITS))
    bench.at(0.0, 0.5, 1.0, 1.5, 2.0, 50.0)
    assert (bench.problem.made, bench.sent) == (STEPS, [])
    bench.get(interrupt(Flag.CONTACT))
    assert bench.sent == [(0, STEPS, [2.0, 2.0])]
    assert bench.wire.sent[0].header.realised_delay_s == 50.0


def test_a_round_that_is_cancelled_before_it_begins_is_not_computed() -> None:
    bench = Bench()
    bench.get(work_order())
    bench.get(interrupt(Flag.CANCEL))
    bench.at(5.0)
    assert (bench.problem.made, bench.problem.skipped, bench.sent) == (0, STEPS, [])
    assert (bench.client.round, bench.memory) == (1, [8.0, 8.0])


def test_a_round_that_is_cancelled_under_way_is_dropped() -> None:
    bench = Bench()
    bench.get(work_order())
    bench.at(0.0, 0.5)
    bench.get(interrupt(Flag.CANCEL))
    assert (bench.problem.made, bench.problem.skipped) == (2, STEPS - 2)
    assert (bench.client.round, bench.memory) == (1, [8.0, 8.0])
    bench.get(work_order(Flag.NONE, version=1))
    bench.at(0.6, 1.1, 1.6, 2.1)
    assert bench.sent == []  # nor at 2 s, when the first round was to end
    bench.at(2.6)
    assert bench.sent == [(1, STEPS, [2.0, 2.0])]
    assert bench.wire.sent[0].header.base_version == 1
    assert math.isnan(bench.wire.sent[0].header.reply_s)


@pytest.mark.parametrize("sent", [False, True], ids=["computed", "sent"])
def test_a_round_that_is_cancelled_after_it_was_computed_is_forgotten(sent: bool) -> None:
    """The server does not use its update, if it is on its way: both have the memory from before."""
    bench = Bench(stepwise=False)
    bench.get(work_order())
    bench.at(0.0)
    assert (bench.problem.made, bench.memory) == (STEPS, [10.0, 10.0])
    bench.at(2.0 if sent else 1.0)
    bench.get(interrupt(Flag.CANCEL))
    assert (bench.client.round, bench.memory, bench.problem.skipped) == (1, [8.0, 8.0], 0)
    bench.get(work_order(Flag.NONE, version=1))
    bench.at(2.5)
    assert [number for number, _, _ in bench.sent] == ([0] if sent else [])  # the old delay is over, and sends nothing
    bench.at(5.0)
    assert bench.sent[-1] == (1, STEPS, [2.0, 2.0])  # the residual counts from the start again


def test_a_stepwise_and_a_whole_round_of_no_steps_end_at_their_time() -> None:
    bench = Bench()
    bench.get(work_order()._replace(local_steps=0))
    bench.at(1.9)
    assert bench.sent == []
    bench.at(2.0)
    assert bench.sent == [(0, 0, [0.0, 0.0])]


def test_step_times_that_differ_are_those_of_the_round() -> None:
    ends_s = (0.1, 1.5, 1.6, 2.0)
    bench = Bench()
    bench.worker._hosted[0].begin_round = lambda order, _number: (order, RoundTime(2.0, STEPS, ends_s))
    bench.get(work_order())
    bench.at(0.0, 0.1, 1.4)
    assert bench.problem.made == 2
    bench.get(interrupt(Flag.CONTACT))
    assert bench.sent == [(0, 1, [0.5, 0.5])]
