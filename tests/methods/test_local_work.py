"""AsyncCommSGD, FedCompass, QuAFL and FAVAS, and what only such methods use: contacts, ticks, timed steps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.every_method import Recorded, silent, updates
from tests.methods.table import Table
from tests.support.quadratics import IDENTITY, GivenQuadratic, two_clients
from tests.transports.test_resume import stop_at

from areabench.engine.evaluation import NoTarget
from areabench.engine.events import Kind, State
from areabench.engine.messages import Flag, Order, Update, UpdateHeader
from areabench.engine.scenario import build_scenario
from areabench.errors import RunFailure
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area
from areabench.methods.asynccomm_sgd import AsyncCommSgd
from areabench.methods.base import Method, MethodSettings
from areabench.methods.contacts import Contacts
from areabench.methods.favas import Favas, mean_steps
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fedcompass import FedCompass, fedcompass
from areabench.methods.quafl import QuAfl, quafl
from areabench.methods.schedules import InverseRootTimeSchedule, InverseTimeSchedule, build_schedule
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import Run
from areabench.streams import Purpose, stream
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports.replay import Replay
from areabench.transports.server_loop import RealTimeServer, RunMonitors
from areabench.transports.simulator import LaneRecorder

__all__ = ["stop_at"]  # a fixture
PER_STEP = ExponentialDelays(per="step")


QUAFL = QuAfl(step_size=0.02, clients_per_round=2, period_s=0.2)
EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=3),
    method=QUAFL,
    delays=PER_STEP,
    rates=ListedRates(values=(40.0, 20.0, 10.0, 4.0, 1.0)),
    problem=Quadratic(dimension=3, noise=0.5),
    stop=Stop(horizon_s=4.0),
    record=Record(interval_s=0.5),
    seed=7,
)
FAVAS = Favas(step_size=0.02, clients_per_round=2, period_s=0.2)
COMPASS = replace(EXPERIMENT, method=FedCompass(step_size=0.02, min_steps=2, max_steps=8))
COMM = replace(
    EXPERIMENT, method=AsyncCommSgd(step_size=0.02), delays=ExponentialDelays(),
    clients=Clients(count=5, local_steps=1000, work="ticks", tick_s=0.05),
)  # fmt: skip


def kinds(run: Run) -> list[int]:
    """The kinds of all events."""
    found: list[int] = run.events_array["kind"].tolist()
    return found


# ---------------------------------------------------------------------------------------------------- AsyncCommSGD


def test_all_clients_of_asynccomm_sgd_make_one_step_a_tick_whatever_their_rates(record: Recorded) -> None:
    run = record(COMM)
    for client in range(5):
        own = updates(run)[updates(run)["client"] == client]
        assert own["local_steps"].sum() == int(own["time_s"][-1] / 0.05)


# ---------------------------------------------------------------------------------------------------- FedCompass


def compass(**keys: object) -> Method:
    """FedCompass of two clients with 1 to 4 steps, lambda 1.5 and factors 1/(1 + tau)."""
    usual = FedCompass(step_size=0.5, min_steps=1, max_steps=4, latency=1.5, mixing=1.0, exponent=1.0, speed_weight=1.0)
    return fedcompass(2, replace(usual, **keys))  # type: ignore[arg-type]


def test_fedcompass_by_hand() -> None:
    table = Table(compass(), two_clients(local_steps=4))
    assert table.orders[0].local_steps == table.orders[1].local_steps == 4
    # Client 0 took 2 s for 4 steps: 0.5 s each. (8,8) -> (6,4) -> (5,2) -> (4.5,1) -> (4.25,0.5): D = (3.75,7.5).
    table.deliver(0, time_s=2.0)
    assert table.model() == [6.125, 4.25]  # (8,8) - D/2
    assert (table.orders[0].local_steps, table.conductor.timer_s) == (4, 5.0)  # T_a = 2 + 4/2, T_l = 2 + 1.5·4/2
    # Client 1 took 3 s: 0.75 s a step. (8,8) -> (0,8) and stays: D = (8,0), tau = 1, s = 1/2.
    table.deliver(1, time_s=3.0)
    assert table.model() == [4.125, 4.25]  # (6.125,4.25) - D/4
    assert table.orders[1].local_steps == 1  # joins client 0: floor((4 - 3)/0.75)
    # (4.125,4.25) -> (0,6.125): D_1 = (4.125,-1.875), which waits for client 0.
    table.deliver(1, time_s=3.75)
    assert table.model() == [4.125, 4.25]
    assert 1 not in table.orders
    # (6.125,4.25) -> (5.0625,2.125) -> (4.53125,1.0625) -> (4.265625,0.53125) -> (4.1328125,0.265625):
    # D_0 = (1.9921875,3.984375), tau = 1. x = (4.125,4.25) - D_0/4 - D_1/2.
    table.deliver(0, time_s=4.0)
    assert table.model() == [1.564453125, 4.19140625]
    assert table.counters() == (7, 3)  # four updates, three steps
    assert table.orders[0].local_steps == 4  # the fastest first: T_a = 6, T_l = 7
    assert table.orders[1].local_steps == 2  # floor((6 - 4)/0.75)
    assert table.conductor.timer_s == 7.0


def test_fedcompass_does_not_wait_for_late_clients() -> None:
    table = Table(compass(), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)
    table.deliver(1, time_s=3.0)  # joins the group of client 0, with T_l = 5
    table.deliver(0, time_s=4.0)
    assert table.counters() == (5, 2)  # waits for client 1
    table.wake()
    assert (table.time_s, table.counters()) == (5.0, (6, 3))  # steps without it
    assert (table.orders[0].local_steps, table.conductor.timer_s) == (4, 8.0)  # T_a = 5 + 2, T_l = 5 + 3
    before = table.model()
    # (4.125,4.25) -> (0,6.125), 3 s later: 3 s a step. Its D = (4.125,-1.875) goes to the general buffer.
    table.deliver(1, time_s=6.0)
    assert (table.model(), table.counters()) == (before, (7, 3))
    # No group to join: floor((7 - 6)/3) = 0. Alone: floor((8 + 4·0.5 - 6)/3) = 1, T_a = 9.
    assert table.orders[1].local_steps == 1
    local = table.clients[0].begin(table.orders[0])
    for _ in range(4):
        local.step()
    drift = local.work.model - local.work.local
    table.deliver(0, time_s=7.0)  # all of its group; D_0 has tau = 0, that of client 1, from version 2, tau = 1
    np.testing.assert_array_equal(table.server.model, before - drift / 2 - np.array([4.125, -1.875]) / 4)


def test_fedcompass_keeps_a_moving_mean_of_the_speeds() -> None:
    table = Table(compass(speed_weight=0.75), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)  # 0.5 s a step
    table.deliver(0, time_s=8.0)  # 1.5 s a step: 0.25·0.5 + 0.75·1.5
    assert table.server.state.seconds[0] == 1.25


def late_client() -> Table:
    """Client 0 was late: (6.125,4.25) has led to D = (1.9921875,3.984375), as above, in the general buffer."""
    table = Table(compass(), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)
    table.wake()  # T_l = 5: nobody has arrived, no step
    assert table.counters() == (2, 1)
    table.deliver(0, time_s=6.0)  # 1 s a step: the next group has T_a = 10, T_l = 12
    assert table.counters() == (3, 1)
    assert table.model() == [6.125, 4.25]
    return table


def test_a_late_update_is_used_at_the_latest_time_of_the_next_group() -> None:
    """Public code does not step where nobody of the group has arrived."""
    table = late_client()
    table.wake()
    assert (table.time_s, table.counters()) == (12.0, (4, 2))
    assert table.model() == [5.12890625, 2.2578125]  # (6.125,4.25) - D/2


def test_fedcompass_uses_a_late_update_and_the_next_one_of_the_same_client() -> None:
    """In public code the second replaces the first."""
    table = late_client()
    table.deliver(0, time_s=10.0)  # from (6.125,4.25) again, so that D is the same
    assert table.counters() == (5, 2)
    assert table.model() == [4.1328125, 0.265625]  # (6.125,4.25) - D/2 - D/2


def test_fedcompass_goes_on_without_a_lost_client() -> None:
    table = Table(compass(), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)
    table.deliver(1, time_s=3.0)
    table.deliver(0, time_s=4.0)  # waits for client 1
    table.lose(1)
    assert table.counters() == (6, 3)
    assert list(table.orders) == [0]


def test_fedcompass_drops_the_group_of_a_client_that_is_lost_alone() -> None:
    """An empty group would be complete, so that the server would make a step for nobody."""
    table = Table(compass(), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)
    assert table.conductor.timer_s == 5.0
    table.lose(0)
    assert [event.kind for event in table.recorder.events] == [Kind.UPDATE, Kind.STEP, Kind.LOST]
    assert (len(table.server.state.groups.numbers), table.conductor.timer_s) == (0, math.inf)
    table.deliver(1, time_s=3.0)  # 0.75 s a step; alone: T_l = 3 + 1.5·4·0.75
    assert (table.orders[1].local_steps, table.conductor.timer_s) == (4, 7.5)


def test_groups_of_fedcompass_answer_together(record: Recorded) -> None:
    """With fixed times per step the estimates are right: clients of a group answer within a step of the slowest."""
    run = record(replace(COMPASS, delays=FixedDelays(per="step"), stop=Stop(horizon_s=40.0)))
    rows = run.events_array
    late = rows[rows["time_s"] > 10.0]
    gaps = [after["time_s"] - before["time_s"] for before, after in zip(late, late[1:], strict=False)]
    assert Kind.STEP in kinds(run)
    assert (updates(run)["local_steps"] >= 2).all()
    assert (updates(run)["local_steps"] <= 8).all()
    steps = late[late["kind"] == Kind.STEP]
    assert len(steps) < 0.7 * len(late[late["kind"] == Kind.UPDATE])  # several updates a step
    assert min(gaps) == 0.0


# ---------------------------------------------------------------------------------------------------- QuAFL


POINTS = st.tuples(st.integers(-64, 64), st.integers(-64, 64))


@given(server=POINTS, answers=st.lists(POINTS, min_size=1, max_size=1) | st.lists(POINTS, min_size=3, max_size=3))
def test_a_round_of_quafl_keeps_the_sum_of_all_models(server: tuple[int, int], answers: list[tuple[int, int]]) -> None:
    """X + sum of the contacted clients' models, exact on dyadic numbers: s + 1 is a power of two."""
    count = len(answers)
    method = quafl(Contacts(count, count, 1.0, seed=0))
    table = Table(method, GivenQuadratic([IDENTITY] * count, [[0, 0]] * count, server, 1), stepwise=True)
    assert method.begin is not None
    table.wake()
    model, models = table.server.model, []
    for client, payload in enumerate(answers):
        local = np.array(payload, dtype=np.float64)
        order = table.orders.pop(client)
        table.conductor.update(Update(UpdateHeader(client, 0, order.version, local_steps=0), local), table.time_s)
        models.append(method.begin(local, table.orders[client].model, None))
    total = np.array(server, dtype=np.float64) + np.sum(np.array(answers, dtype=np.float64), axis=0)
    np.testing.assert_array_equal(table.server.model + np.sum(models, axis=0), total)
    assert table.server.version == 1
    np.testing.assert_array_equal(model, server)


# ---------------------------------------------------------------------------------------------------- FAVAS


def test_mean_steps_by_hand() -> None:
    """One of two clients is drawn each second; 2 steps a second, at most 2."""
    contacts, rates = Contacts(2, 1, 1.0, seed=0), np.array([2.0])
    decay = np.exp(-2.0)
    none = 0.5 * decay / (1 - 0.5 * decay)  # P(E = 0) = sum over g of 2^-g e^-2g
    one = sum(0.5**g * 2 * g * np.exp(-2.0 * g) for g in range(1, 60))
    assert mean_steps(contacts, 1, rates, "exponential", "step") == pytest.approx((1 - none,))
    assert mean_steps(contacts, 2, rates, "exponential", "step") == pytest.approx((2 - 2 * none - one,))
    assert mean_steps(contacts, 2, rates, "fixed", "step") == (2.0,)  # two steps in the first second
    assert mean_steps(contacts, 3, rates, "fixed", "step") == (2.5,)  # the third only if drawn later: 2 + 1/2
    assert mean_steps(contacts, 2, np.array([0.5]), "fixed", "round") == (1.5,)  # steps end at 1 s and 2 s
    assert mean_steps(Contacts(1, 1, 1.0, 0), 2, np.array([0.5]), "fixed", "step") == (1.0,)  # never a step: any value


@pytest.mark.parametrize("delays", [ExponentialDelays, FixedDelays], ids=["exponential", "fixed"])
@pytest.mark.parametrize("per", ["round", "step"])
def test_mean_steps_are_those_of_a_run(
    record: Recorded, delays: type[ExponentialDelays] | type[FixedDelays], per: str
) -> None:
    rates = (11.3, 6.1, 2.7, 1.3, 0.7) if per == "step" else (4.3, 2.1, 1.3, 0.9, 0.3)
    experiment = replace(
        EXPERIMENT, method=FAVAS, delays=delays(per=per), rates=ListedRates(values=rates),  # type: ignore[arg-type]
        stop=Stop(horizon_s=400.0), record=Record(snapshots="none"),
    )  # fmt: skip
    expected = mean_steps(Contacts(5, 2, 0.2, 0), 3, np.array(rates), delays.__name__[:-6].lower(), per)
    found = updates(record(experiment))
    for client in range(5):
        own = found[found["client"] == client]["local_steps"]
        assert abs(own.mean() - expected[client]) < 5 * own.std() / np.sqrt(len(own)) + 1e-9


# ---------------------------------------------------------------------------------------------------- contacts


@pytest.mark.parametrize("method", [QUAFL, FAVAS], ids=lambda method: method.name)
def test_contacted_clients_are_distinct_and_answer_at_once(record: Recorded, method: MethodSettings) -> None:
    run = record(replace(EXPERIMENT, method=method))
    assert kinds(run) == 20 * [Kind.NO_STEP, Kind.UPDATE, Kind.UPDATE, Kind.STEP]
    rows = run.events_array.reshape(20, 4)
    for number, row in enumerate(rows):
        assert (row["time_s"] == (number + 1) * 0.2).all()
        drawn = stream(7, Purpose.SELECTION, number).choice(range(5), 2, replace=False).tolist()
        assert row["client"][1:3].tolist() == drawn


def test_a_contacted_client_answers_with_the_steps_that_have_ended(record: Recorded) -> None:
    """A round draws the times of all its M steps, however many are made."""
    run = record(EXPERIMENT)
    for client, rate in enumerate((40.0, 20.0, 10.0, 4.0, 1.0)):
        durations = iter(stream(7, Purpose.DELAYS, client).standard_exponential(16 * 8) / rate)
        begun_s = 0.0
        for row in updates(run)[updates(run)["client"] == client]:
            ends_s = np.cumsum([next(durations) for _ in range(3)])
            assert row["local_steps"] == np.count_nonzero(ends_s <= row["time_s"] - begun_s)
            begun_s = row["time_s"]
    assert set(updates(run)["local_steps"].tolist()) == {0, 1, 2, 3}


def test_a_round_of_timed_steps_takes_their_sum(record: Recorded) -> None:
    run = record(replace(EXPERIMENT, method=Area(step_size=0.02)))
    own = updates(run)[updates(run)["client"] == 3]
    drawn = (stream(7, Purpose.DELAYS, 3).standard_exponential(16 * 8) / 4.0)[: 3 * len(own)].reshape(-1, 3)
    np.testing.assert_allclose(own["drawn_delay_s"], drawn.sum(axis=1), rtol=1e-12)
    assert (own["local_steps"] == 3).all()


def test_a_lost_client_is_not_waited_for_nor_drawn(record: Recorded) -> None:
    run = record(replace(EXPERIMENT, faults=Faults(lost=(0, 1, 2, 3), lost_at_s=(0.3, 0.5, 0.7, 0.9))))
    late = updates(run)[updates(run)["time_s"] > 1.0]
    assert set(late["client"].tolist()) == {4}
    assert run.status.state == State.DONE


def test_an_answer_that_is_lost_with_its_client_ends_the_round() -> None:
    table = Table(quafl(Contacts(2, 2, 1.0, seed=0)), two_clients(local_steps=2), stepwise=True)
    table.wake()
    table.deliver(1, made=2, time_s=1.0)
    table.lose(0)
    assert table.model() == [4, 8]  # ((8,8) + (0,8))/2: one answer
    table.wake()
    table.deliver(1, made=0, time_s=2.0)
    assert table.counters() == (4, 2)


def test_a_refused_answer_is_given_again(record: Recorded) -> None:
    """The order that follows does not wait for a contact: the rule waits for it."""
    table = Table(quafl(Contacts(2, 1, 1.0, seed=10)), two_clients(local_steps=2), stepwise=True)
    table.wake()
    order = table.orders.pop(0)
    table.clients[0].work(order, 1)
    bad = Update(UpdateHeader(0, 0, order.version, local_steps=1), np.array([np.nan, 0.0]))
    table.conductor.update(bad, 1.0)
    assert table.orders[0].flags == Flag.REPLY | Flag.AGAIN
    table.clients[0].take_back()
    table.deliver(0, made=1, time_s=2.0)
    assert table.model() == [7, 6]


def test_an_order_that_was_contacted_says_so_in_the_state_of_the_run() -> None:
    table = Table(quafl(Contacts(2, 1, 1.0, seed=10)), two_clients(local_steps=2), stepwise=True)
    table.wake()
    orders = table.conductor.run_state(1.0).orders_by_client()
    assert Flag.CONTACT in orders[0].order.flags
    assert Flag.CONTACT not in orders[1].order.flags


def test_a_resumed_run_contacts_those_again_whose_answer_is_awaited() -> None:
    """On MPI, where a contact that was in flight is lost with the ranks."""
    scenario = build_scenario(check_combinations(EXPERIMENT), Path())
    told: list[Order] = []
    link = SimpleNamespace(order=told.append, recall=None)
    recorder, monitors = LaneRecorder(1), RunMonitors(NoTarget(), silent)
    table = Table(quafl(Contacts(5, 2, 1.0, seed=0)), GivenQuadratic([IDENTITY] * 5, [[0, 0]] * 5, [8, 8], 2))
    table.wake()
    state = table.conductor.run_state(1.0)
    server = RealTimeServer(scenario, link, recorder, monitors, run_state=state)  # type: ignore[arg-type]
    server._send_first_orders()
    resumed = Flag.RESUMED | Flag.WAITS
    orders = [(order.client, order.flags) for order in told if order.flags is not Flag.CONTACT]
    assert orders == [(client, resumed) for client in range(5)]
    contacts = [(order.client, order.version) for order in told if order.flags is Flag.CONTACT]
    assert contacts == [(client, 0) for client in sorted(table.contacted)]


def test_a_rule_may_be_woken_late_for_several_times() -> None:
    """A real clock may be late; only a rule that asks for the same time again is wrong."""
    table = Table(compass(), two_clients(local_steps=4))
    table.deliver(0, time_s=2.0)  # T_l = 5
    table.deliver(1, time_s=4.5)  # too late to join: 2 steps of 1.125 s in a group of its own, T_l = 4.5 + 1.5·2.25
    table.conductor.timer(30.0)
    assert table.conductor.timer_s == 7.875
    table.conductor.timer(30.0)
    assert table.conductor.timer_s == np.inf


def test_a_rule_that_asks_for_the_same_time_again_ends_the_run() -> None:
    method = replace(quafl(Contacts(2, 1, 1.0, seed=10)), wake=lambda _state: 1.0)
    with pytest.raises(RunFailure, match="asks at 1 s to be woken at 1 s, which is over"):
        Table(method, two_clients(local_steps=2), stepwise=True).wake()


# ---------------------------------------------------------------------------------------------------- chosen steps


def test_uniform_work_is_drawn_by_client_and_round(record: Recorded) -> None:
    run = record(
        replace(EXPERIMENT, method=FedBuff(step_size=0.02, server_step_size=1.0), delays=ExponentialDelays(),
                clients=Clients(count=5, local_steps=6, work="uniform"))
    )  # fmt: skip
    for row in updates(run):
        generator = stream(7, Purpose.WORK, int(row["client"]) + (int(row["round"]) << 32))
        assert row["local_steps"] == generator.integers(1, 6, endpoint=True)
    assert set(updates(run)["local_steps"].tolist()) == {1, 2, 3, 4, 5, 6}


def test_ticks_belong_to_one_clock_and_are_at_most_m(record: Recorded) -> None:
    run = record(replace(COMM, delays=FixedDelays(), rates=ListedRates(values=(16.0, 8.0, 4.0, 2.0, 1.0)),
                         clients=Clients(count=5, local_steps=7, work="ticks", tick_s=0.125)))  # fmt: skip
    found = {client: updates(run)[updates(run)["client"] == client]["local_steps"].tolist() for client in range(5)}
    assert found[0][:6] == [0, 1, 0, 1, 0, 1]  # rounds of half a tick
    assert found[1][:3] == [1, 1, 1]
    assert found[3][:2] == [4, 4]
    assert found[4][:2] == [7, 7]  # 8 ticks


# ---------------------------------------------------------------------------------------------------- schedules


def test_schedules_by_time() -> None:
    inverse = build_schedule(InverseTimeSchedule(offset_s=2.0), 0.5)
    root = build_schedule(InverseRootTimeSchedule(offset_s=2.0), 0.5)
    assert [inverse(9, time_s) for time_s in (0.0, 2.0, 6.0)] == [0.5, 0.25, 0.125]
    assert [root(9, time_s) for time_s in (0.0, 6.0)] == [0.5, 0.25]


@pytest.mark.parametrize("schedule", [InverseTimeSchedule(offset_s=0.5), InverseRootTimeSchedule(offset_s=0.5)],
                         ids=lambda schedule: schedule.name)  # fmt: skip
@pytest.mark.parametrize("base", [COMM, EXPERIMENT], ids=lambda base: base.method.name)
def test_step_sizes_follow_the_time_of_the_order(
    record: Recorded, base: Experiment, schedule: InverseTimeSchedule | InverseRootTimeSchedule
) -> None:
    run = record(replace(base, schedule=schedule))
    at, sent_s = build_schedule(schedule, 0.02), dict.fromkeys(range(5), 0.0)
    for row in updates(run):
        assert row["step_size"] == at(0, sent_s[int(row["client"])])
        sent_s[int(row["client"])] = row["time_s"]
    found = Replay(run, build_scenario(run.experiment, run.path.parent), silent).run()
    assert found.difference is None
