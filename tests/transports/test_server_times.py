"""How long the server waits, for what, and how it sleeps; on a clock that only its sleeps move."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runs import nothing, recorder_of
from tests.support.scenes import FIRST, KEEP, Scene, ScriptedTriggers, second
from tests.support.wires import EXPERIMENT, Clock, ScriptedLink, own_clock, update

from areabench.engine.evaluation import NoTarget
from areabench.engine.events import Kind, State
from areabench.engine.messages import Flag, Order, Update
from areabench.engine.scenario import build_scenario
from areabench.errors import ClientsLost
from areabench.experiment.experiment import Stop
from areabench.methods.criteria import EveryPeriod
from areabench.methods.fedbuff import FedBuff
from areabench.runfile.open import open_file
from areabench.transports import server_loop
from areabench.transports.clock import Backoff
from areabench.transports.server_loop import ClientFailure, RealTimeServer, RunMonitors


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the server."""
    return own_clock(monkeypatch)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A server that keeps what clients remember, without a checkpoint that is due."""
    return Scene(tmp_path, KEEP, ScriptedTriggers())


@pytest.fixture
def coarse(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The same, where every pause takes 50 ms, so that minutes are over soon."""
    monkeypatch.setattr(Backoff, "pause", lambda _backoff, _limit_s: clock.sleep(0.05))
    return clock


class SilentLink(ScriptedLink):
    """A wire on which no client sends its last message."""

    def arrivals(self) -> Sequence[Update]:
        return self.polls.pop(0) if self.polls else []


def server_on(
    link: ScriptedLink, folder: Path, *, spare_cores: bool = False, horizon_s: float = 60.0
) -> RealTimeServer:
    experiment = replace(EXPERIMENT, stop=Stop(iterations=6, horizon_s=horizon_s))
    recorder = recorder_of(folder / "run.h5", experiment)
    monitors = RunMonitors(NoTarget(), nothing)
    return RealTimeServer(build_scenario(experiment, folder), link, recorder, monitors, spare_cores=spare_cores)


# ------------------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize(("limit_s", "expected_s"), [(None, 60.0), (7.0, 7.0)])
def test_clients_have_a_minute_to_stop(limit_s: float | None, expected_s: float, tmp_path: Path, coarse: Clock) -> None:
    server, begun_s = server_on(SilentLink([[], [update(1, flags=Flag.LEAVING)]]), tmp_path), coarse.now_s
    with pytest.raises(ClientFailure, match=rf"clients \[0, 2\] did not stop within {expected_s:g} s"):
        server.stop_clients(limit_s)
    assert coarse.now_s - begun_s == pytest.approx(expected_s, abs=0.1)
    server.stop_clients()  # they are told once
    assert coarse.now_s - begun_s == pytest.approx(expected_s, abs=0.1)


def test_clients_have_ten_seconds_to_stop_after_a_signal(coarse: Clock, scene: Scene) -> None:
    scene.link.__class__ = SilentLink
    scene.triggers.stop_signal, begun_s = "SIGTERM", coarse.now_s
    status = scene.server.run()
    assert (status.state, status.reason) == (State.STOPPED, "SIGTERM")
    assert coarse.now_s - begun_s == pytest.approx(10.0, abs=0.2)


def test_clients_have_ten_seconds_to_send_their_memories(coarse: Clock, scene: Scene) -> None:
    begun_s = coarse.now_s
    scene.poll(FIRST, scene.signal())
    status = scene.run()
    words = "SIGTERM; clients did not answer within 10 s for a checkpoint, and there is none"
    assert (status.state, status.reason) == (State.FAILED, words)
    assert status.end_s == pytest.approx(10.0, abs=0.2)
    assert coarse.now_s - begun_s == pytest.approx(10.0, abs=0.5)
    assert scene.files == set()


def test_a_signal_without_a_checkpoint_gives_clients_ten_seconds_to_stop_too(coarse: Clock, scene: Scene) -> None:
    """Ten seconds for the memories, then ten for the last messages; the run has failed, the job may be killed soon."""
    begun_s = coarse.now_s
    scene.link.clients = 0  # nobody leaves
    scene.poll(FIRST, scene.signal())
    assert scene.server.run().state == State.FAILED
    assert coarse.now_s - begun_s == pytest.approx(20.0, abs=0.5)


def test_missing_clients_are_looked_for_every_two_seconds(tmp_path: Path, coarse: Clock) -> None:
    scene, looks = Scene(tmp_path, replace(KEEP, stop=Stop(horizon_s=9.0)), ScriptedTriggers()), list[float]()
    begun_s = coarse.now_s

    def look() -> Sequence[int]:
        looks.append(coarse.now_s - begun_s)
        return []

    scene.server._monitors.ended_clients = look
    scene.run()
    assert looks == pytest.approx([2.0, 4.0, 6.0, 8.0], abs=0.06)


def test_a_client_that_is_gone_is_not_waited_for_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_loop, "_LIVENESS_INTERVAL_S", 0.0)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.link.clients = 2
    scene.gone = [[2], [2]]
    scene.polls(FIRST, second(0, 1))
    with pytest.raises(ClientsLost, match=r"^client 2 lost$"):
        scene.server.run()
    assert scene.link.stopped


# ------------------------------------------------------------------------------------------------------- sleeps


def test_a_server_that_waits_sleeps_longer_and_longer(tmp_path: Path, clock: Clock) -> None:
    server = server_on(ScriptedLink([]), tmp_path, horizon_s=0.01)
    server.run()
    sleeps = [time_s for time_s in clock.slept if time_s > 0]
    assert sleeps[:3] == pytest.approx([10e-6, 15e-6, 22.5e-6])
    assert max(sleeps) == 200e-6
    assert server.idle_s == pytest.approx(0.01, rel=0.01)


def test_a_server_does_not_sleep_beyond_a_step_or_the_end(tmp_path: Path, clock: Clock) -> None:
    experiment = replace(EXPERIMENT, aggregation=EveryPeriod(period_s=0.0014), stop=Stop(horizon_s=0.0029))
    scene = Scene(tmp_path, experiment, ScriptedTriggers())
    begun_s = clock.now_s
    scene.run()
    times_s = scene.events()["time_s"]
    assert times_s.tolist() == pytest.approx([0.0014, 0.0028], abs=1e-6)
    assert clock.now_s - begun_s == pytest.approx(0.0029, abs=15e-6)


def test_a_server_that_waits_for_last_messages_sleeps_a_millisecond_at_most(tmp_path: Path, clock: Clock) -> None:
    server = server_on(ScriptedLink([[] for _ in range(20)]), tmp_path)
    server.stop_clients()
    assert clock.slept[:3] == pytest.approx([10e-6, 15e-6, 22.5e-6])
    assert max(clock.slept) == 1e-3


@pytest.mark.parametrize("spare", [False, True])
def test_where_cores_are_spare_a_server_spins_before_it_sleeps(
    spare: bool, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spun = list[float]()

    def spin() -> None:
        spun.append(10e-6)
        clock.now_s += 10e-6

    monkeypatch.setattr(os, "sched_yield", spin)
    server_on(ScriptedLink([]), tmp_path, spare_cores=spare, horizon_s=0.01).run()
    assert sum(spun) == pytest.approx(200e-6 if spare else 0.0, abs=21e-6)
    assert clock.slept


# ------------------------------------------------------------------------------------- looks, service and sleeps


class TimedLink(ScriptedLink):
    """A wire on which a look takes 10 ms and an order 1 ms, until the stop."""

    def __init__(self, polls: list[list[Update]], clock: Clock) -> None:
        super().__init__(polls)
        self.clock, self.looks = clock, 0

    def arrivals(self) -> Sequence[Update]:
        if not self.stopped:
            self.looks += 1
            self.clock.now_s += 0.01
        return super().arrivals()

    def order(self, order: Order) -> None:
        self.clock.now_s += 0.001
        super().order(order)


def test_a_server_serves_from_a_look_that_found_something_until_all_is_handled(tmp_path: Path, coarse: Clock) -> None:
    link = TimedLink([[], [update(0), update(1)], [], [update(2)]], coarse)
    server = server_on(link, tmp_path, horizon_s=0.3)
    server.run()
    assert server.serving_s == pytest.approx(0.006, abs=1e-6)  # three first orders, three replies
    assert server.idle_s == pytest.approx(0.05 * (link.looks - 2), abs=1e-6)  # after each look that found nothing
    assert link.looks == 7  # five times 60 ms, 12 ms, 11 ms and 3 ms at the start are more than 300 ms


def test_steps_by_the_clock_and_the_log_are_service(
    tmp_path: Path, coarse: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(EXPERIMENT, aggregation=EveryPeriod(period_s=0.12), stop=Stop(horizon_s=0.2))
    scene, rows, flushed = Scene(tmp_path, experiment, ScriptedTriggers()), [True], list[float]()

    def flush_if_overdue() -> None:
        flushed.append(coarse.now_s)
        coarse.now_s += 0.002

    def write() -> bool:
        coarse.now_s += 0.003 * len(rows)
        return bool(rows and rows.pop())

    monkeypatch.setattr(scene.recorder, "flush_if_overdue", flush_if_overdue)
    monkeypatch.setattr(scene.recorder, "spare_moment", write)
    scene.run()
    assert flushed  # after the step at 0.12 s
    assert scene.server.serving_s == pytest.approx(0.003 + 0.002 * len(flushed), abs=1e-6)


# --------------------------------------------------------------------------------------------------------- rest


def test_the_times_of_a_refused_update_do_not_count(scene: Scene) -> None:
    scene.poll([update(0, number=7)])  # it is to work again, which is another round
    scene.polls([update(0, 1.0, number=1), *FIRST[1:]], [update(0, 0.0, number=2), *second(1)])
    status = scene.run()
    assert (status.updates, status.refused) == (5, 1)
    assert scene.server.timings.rows["client"].tolist() == [0, 1, 2, 0, 1]


def test_a_checkpoint_is_written_after_the_rows_that_it_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(KEEP, method=FedBuff(step_size=0.5)), ScriptedTriggers(1))
    found = list[int]()

    def look() -> None:
        with open_file(scene.path) as file:
            found.append(len(file["events"]))

    scene.poll(FIRST[:2])
    scene.poll(FIRST[2:], look)
    scene.poll(second(0, 1))
    scene.run()
    assert found == [2]


def test_a_server_without_spare_moments_has_its_recorder_write(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = list[int]()
    monkeypatch.setattr(scene.recorder, "flush_if_overdue", lambda: flushed.append(scene.recorder.tally.events))
    scene.polls(FIRST[:2], [], FIRST[2:], second(0, 1))
    scene.run()
    assert flushed == [2, 4, 4, 6]  # and once after the server step


def test_clients_that_were_not_asked_are_not_given_up(scene: Scene) -> None:
    scene.polls(FIRST, second(0, 1))
    scene.run()
    assert scene.recall.given_up == []


def test_a_lost_client_is_given_up_once_by_its_wire_and_once_by_the_task(scene: Scene) -> None:
    scene.poll(FIRST)
    scene.poll(action=scene.lose(2))
    scene.poll(second(0, 1))
    scene.run()
    assert scene.recall.given_up == [(2,), (2,)]


def test_one_of_several_runs_fails_where_a_client_is_lost(tmp_path: Path) -> None:
    link = ScriptedLink([[], []], losses=[1])
    with pytest.raises(ClientsLost, match=r"^client 1 lost$"):
        server_on(link, tmp_path).run()


def test_a_client_that_fails_at_the_end_fails_the_run(scene: Scene) -> None:
    scene.polls(FIRST, second(0, 1), [update(2, flags=Flag.FAILED)])
    with pytest.raises(ClientFailure, match="client 2 failed:\nthe traceback of client 2"):
        scene.server.run()


def test_the_time_from_the_end_to_the_last_message_is_told(coarse: Clock, scene: Scene) -> None:
    scene.polls(FIRST, second(0, 1))
    for _ in range(3):
        scene.poll()
    status = scene.run()
    assert status.drain_s == pytest.approx(0.2, abs=1e-3)
    assert coarse.slept == [0.05] * 4


def test_a_signal_cancels_the_checkpoint_that_is_under_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST[:2])
    scene.poll(FIRST[2:], scene.signal())
    scene.poll(action=scene.let_through())
    assert scene.run().state == State.STOPPED
    assert scene.recall.asked == [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}]
    assert scene.recall.given_up == [()]  # answers to the first question are stale
    assert (scene.checkpoint.run_state.server.iteration, scene.files) == (4, {"checkpoint"})


def test_a_server_that_takes_in_answers_is_not_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, done = Scene(tmp_path, KEEP, ScriptedTriggers(1)), list[bool]()
    tasks = scene.server._memory_tasks
    advance = tasks.advance

    def noted(time_s: float) -> bool:
        done.append(advance(time_s))
        return done[-1]

    monkeypatch.setattr(tasks, "advance", noted)
    scene.poll(FIRST)
    scene.poll(action=scene.let_through(2))
    for _ in range(3):
        scene.poll()
    scene.poll(second(0, 1), scene.let_through(1))
    scene.run()
    assert done == [True, True, True, False, False, True]  # begun, two answers, none, the last answer


def test_a_second_checkpoint_shows_a_later_moment(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1, 2))
    scene.recall.allowed = math.inf
    tasks, moments = scene.server._memory_tasks, list[float]()

    def note() -> None:
        moments.append(tasks.last_checkpoint_s)

    scene.poll(FIRST, note)
    for _ in range(8):
        scene.poll(action=note)
    scene.poll(second(0, 1))
    scene.run()
    first, *_, last = moments
    assert first == -math.inf
    assert len(set(moments)) == 3
    assert last == scene.checkpoint.run_state.time_s
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}] * 2
    assert scene.events()["kind"].tolist().count(Kind.UPDATE) == 5
