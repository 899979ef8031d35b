"""Checkpoints, removals, signals and lost clients on the server, over a scripted wire; AREA with residuals by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.scenes import FIRST, KEEP, REMOVE, Action, Scene, ScriptedTriggers, second
from tests.support.wires import update

from areabench.engine.events import Kind, State
from areabench.engine.messages import Flag
from areabench.engine.state import RunState
from areabench.errors import ClientsLost, RunFailure
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.fedbuff import FedBuff
from areabench.runfile.layout import checkpoint_path
from areabench.settings.parse import to_toml
from areabench.transports import server_loop as serve
from areabench.transports.server_loop import ClientFailure

# ---------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_shows_the_run_as_it_stood_when_the_clients_were_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST[:2])
    scene.poll(FIRST[2:])  # and the server steps
    scene.poll(action=scene.let_through(1))
    scene.poll(second(1))
    scene.poll(action=scene.expect("checkpoint.new"))
    scene.poll(action=scene.let_through(1))
    scene.poll(second(0))
    assert scene.run().reason == "6 iterations"
    assert scene.recall.asked == [{0: 1, 1: 1}]  # client 2 had not worked
    checkpoint, run_state = scene.checkpoint, scene.checkpoint.run_state
    assert (run_state.server.iteration, run_state.server.version, run_state.server.updates_since_step) == (2, 0, 2)
    np.testing.assert_array_equal(run_state.server.state.model, [0, 0])
    np.testing.assert_array_equal(run_state.server.state.buffer.total, [3, 3])
    assert run_state.rounds == {0: 1, 1: 1}
    assert {open_order.order.client: open_order.round for open_order in run_state.open_orders} == {0: 1, 1: 1, 2: 0}
    assert (run_state.tally.events, run_state.tally.served(3).tolist()) == (2, [1, 1, 0])
    assert {client: memory.tolist() for client, memory in checkpoint.memories.items()} == {0: [1, 1], 1: [2, 2]}
    assert checkpoint.experiment == to_toml(KEEP)
    assert scene.files == {"checkpoint"}


def test_a_checkpoint_before_the_first_update_asks_no_client(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll()
    scene.poll(FIRST)
    scene.poll(second(0, 1))
    assert scene.run().reason == "6 iterations"
    assert scene.recall.asked == []
    assert scene.checkpoint.run_state.tally.events == 0
    assert len(scene.checkpoint.run_state.open_orders) == 3


def test_a_method_without_memories_writes_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(KEEP, method=FedBuff(step_size=0.5)), ScriptedTriggers(1))
    scene.poll(FIRST[:2])
    scene.poll(action=scene.expect("checkpoint"))
    scene.poll(FIRST[2:])
    scene.poll(second(0, 1))
    assert scene.run().reason == "6 iterations"
    assert (scene.recall.asked, scene.checkpoint.memories) == ([], {})
    assert scene.checkpoint.run_state.server.iteration == 2


def test_the_end_does_not_wait_for_an_unfinished_checkpoint(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST)
    scene.poll(second(0, 1))
    assert scene.run().reason == "6 iterations"
    assert not scene.recall.awaited  # but its answers are taken in, so that no client is left with one
    assert scene.recall.given_up == [()]  # they are to no question any more
    assert scene.files == set()


def test_a_client_that_fails_leaves_no_incomplete_checkpoint(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST)
    scene.poll([update(1, flags=Flag.FAILED)])
    with pytest.raises(ClientFailure, match="client 1 failed"):
        scene.server.run()
    scene.server.stop_clients()
    assert scene.files == set()


# ---------------------------------------------------------------------------------------------------- silent clients


def hush(scene: Scene, *clients: int) -> Action:
    """From here these clients are silent, and patience with them is over at once; all others answer."""

    def act() -> None:
        scene.recall.silent, scene.recall.allowed, scene.triggers.patience_s = set(clients), math.inf, 0.0

    return act


def memories(scene: Scene) -> dict[int, list[float]]:
    """What the checkpoint says that the clients remember."""
    return {client: memory.tolist() for client, memory in sorted(scene.checkpoint.memories.items())}


def test_a_client_that_is_silent_since_the_last_checkpoint_remembers_what_it_did_then(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1, 2, 3))
    scene.poll(FIRST, scene.let_through(3))
    for _ in range(3):
        scene.poll()
    scene.poll(second(0), hush(scene, 2))
    for _ in range(3):
        scene.poll()
    scene.poll(action=checkpoint_path(scene.path).unlink)  # what was read once is kept
    for _ in range(3):
        scene.poll()
    scene.poll(second(1))
    scene.run()
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}, {0: 2, 1: 1, 2: 1}, {0: 2, 1: 1}]
    assert scene.checkpoint.run_state.rounds == {0: 2, 1: 1, 2: 1}
    assert memories(scene) == {0: [1, 1], 1: [2, 2], 2: [6, 6]}
    assert scene.warnings == []


def test_a_checkpoint_is_without_a_client_that_is_silent_since_its_last_update(tmp_path: Path) -> None:
    """The client is asked again once it has answered."""
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1, 2, 3))
    scene.poll(FIRST, hush(scene, 2))
    for _ in range(3):
        scene.poll()
    found = list[dict[int, list[float]]]()
    scene.poll(action=lambda: found.extend([memories(scene)]))
    for _ in range(2):
        scene.poll()
    scene.poll(action=hush(scene))
    for _ in range(3):
        scene.poll()
    scene.poll(second(0, 1))
    scene.run()
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}]
    assert found == [{0: [1, 1], 1: [2, 2]}]
    assert memories(scene) == {0: [1, 1], 1: [2, 2], 2: [6, 6]}
    assert scene.warnings == [
        "no answer from client 2 for 0 s: a checkpoint is written, but a run that is resumed from it has lost client 2"
    ]


def test_a_client_that_sends_an_update_is_silent_no_more(tmp_path: Path) -> None:
    """Its answer was on the way: the next checkpoint asks it, and waits for it again."""
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1, 2))
    scene.poll(FIRST, hush(scene, 2))
    for _ in range(3):
        scene.poll()
    scene.poll(second(2))
    scene.poll(second(0))
    scene.run()
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 2}]


def test_the_last_checkpoint_stays_where_no_client_answers(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1, 2, 3))
    scene.poll()  # before the first update nobody is asked
    scene.poll(FIRST, hush(scene, 0, 1, 2))
    scene.poll()
    scene.poll()
    scene.poll(second(0, 1))
    scene.run()
    assert scene.checkpoint.run_state.tally.events == 0
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}] * 2
    assert scene.warnings == ["no answer from clients 0, 1, 2 for 0 s: the last checkpoint stays"]
    assert scene.files == {"checkpoint"}


def test_a_signal_waits_no_longer_for_a_memory_that_the_last_checkpoint_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_RECALL_LIMIT_S", 0.05)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.recall.allowed = math.inf
    scene.poll(FIRST)
    for _ in range(3):
        scene.poll()
    scene.poll(second(0), lambda: scene.recall.silent.add(2))
    scene.poll(action=scene.signal())
    status = scene.server.run()
    assert (status.state, status.reason) == (State.STOPPED, "SIGTERM")
    assert scene.checkpoint.run_state.rounds == {0: 2, 1: 1, 2: 1}
    assert memories(scene) == {0: [1, 1], 1: [2, 2], 2: [6, 6]}


def test_a_removal_waits_for_a_silent_client_and_says_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(REMOVE, stop=Stop(iterations=7, horizon_s=60.0)), ScriptedTriggers())
    scene.poll(FIRST, hush(scene, 0))
    scene.poll(action=scene.lose(2))
    for _ in range(3):
        scene.poll()
    scene.poll(action=hush(scene))
    scene.poll()
    scene.poll(second(0, 1))
    scene.poll([update(0, 0.0, number=2, version=1)])
    assert scene.run().reason == "7 iterations"
    assert scene.recall.asked == [{0: 1, 1: 1}]
    assert Kind.REMOVED in scene.events()["kind"]
    assert scene.warnings == [
        "no answer from client 0 for 0 s: no checkpoint is written before, as lost clients are being removed"
    ]


# ---------------------------------------------------------------------------------------------------- signals


def test_a_signal_stops_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.recall.allowed = math.inf
    scene.poll(FIRST, scene.signal("SIGUSR1"))
    status = scene.run()
    assert (status.state, status.reason, status.updates) == (State.STOPPED, "SIGUSR1", 3)
    run_state = scene.checkpoint.run_state
    assert (run_state.server.iteration, run_state.server.version) == (4, 1)
    assert sorted(scene.checkpoint.memories) == [0, 1, 2]
    assert run_state.time_s <= status.end_s
    assert scene.recorder.snapshots == 0  # the last snapshot is taken when the run has ended


def test_clients_that_do_not_answer_lose_the_checkpoint_but_not_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_RECALL_LIMIT_S", 0.05)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST[:2], scene.let_through(2))
    scene.poll()
    scene.poll()
    scene.poll(FIRST[2:], scene.signal())
    status = scene.run()
    assert (status.state, status.updates) == (State.STOPPED, 3)
    assert status.reason == "SIGTERM; clients did not answer within 0.05 s for a checkpoint"
    assert scene.recall.asked == [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}]
    assert scene.checkpoint.run_state.server.iteration == 2
    assert scene.files == {"checkpoint"}


def test_a_continue_signal_writes_a_checkpoint_and_the_run_continues(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.poll(FIRST, lambda: setattr(scene.triggers, "continued", True))
    scene.poll(action=scene.let_through())
    scene.poll()
    scene.poll()
    scene.poll(second(0, 1))
    assert scene.run().reason == "6 iterations"
    assert not scene.triggers.continued
    assert scene.checkpoint.run_state.server.iteration == 4


# ---------------------------------------------------------------------------------------------------- lost clients


def test_a_loss_cancels_a_checkpoint_and_keeps_the_memory(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.poll(FIRST, scene.let_through(1))
    scene.poll(action=scene.lose(2))
    scene.poll(action=scene.expect())
    scene.poll(second(0, 1))
    status = scene.run()
    assert (status.reason, status.lost) == ("6 iterations", 1)
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}]
    assert (2,) in scene.recall.given_up
    assert Kind.REMOVED not in scene.events()["kind"]


def test_a_loss_cancels_a_checkpoint_and_begins_a_removal(tmp_path: Path) -> None:
    """Without client 2 (memory 6) the average of 1, 2 and 6, which is 3, becomes that of 1 and 2."""
    scene = Scene(tmp_path, replace(REMOVE, stop=Stop(iterations=9, horizon_s=60.0)), ScriptedTriggers(1))
    scene.poll(FIRST, scene.let_through(1))
    scene.poll(action=scene.lose(2))
    scene.poll(action=scene.let_through())  # a stale answer, and two that count
    for _ in range(3):
        scene.poll()
    scene.poll([*second(0, 1), update(0, 0.0, number=2, version=1)])
    scene.poll([update(1, 0.0, number=2, version=1)])
    assert scene.run().reason == "9 iterations"
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1}]
    np.testing.assert_array_equal(scene.link.orders[3].model, [0, 0])
    np.testing.assert_array_equal(scene.link.orders[6].model, [3, 3])
    np.testing.assert_array_equal(scene.link.orders[-1].model, [1.5, 1.5])
    removed = [row for row in scene.events() if row["kind"] == Kind.REMOVED]
    assert [(row["client"], row["round"]) for row in removed] == [(2, 1)]
    assert scene.files == set()


def test_a_second_loss_begins_the_removal_again_for_both(tmp_path: Path) -> None:
    """Four clients with memories 1, 2, 6 and 11, on average 5; without the last two the average is 1.5."""
    experiment = replace(REMOVE, clients=Clients(count=4), stop=Stop(iterations=10, horizon_s=60.0))
    scene = Scene(tmp_path, experiment, ScriptedTriggers())
    scene.poll([*FIRST, update(3, 11.0)])
    scene.poll(action=scene.lose(3))
    scene.poll(action=scene.let_through(2))
    scene.poll(action=scene.lose(2))
    scene.poll(action=scene.let_through())
    for _ in range(2):
        scene.poll()
    scene.poll(second(0, 1))
    scene.poll([update(0, 0.0, number=2, version=1), update(1, 0.0, number=2, version=1)])
    status = scene.run()
    assert scene.recall.asked == [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1}]
    np.testing.assert_array_equal(scene.link.orders[-1].model, [1.5, 1.5])
    removed = [row for row in scene.events() if row["kind"] == Kind.REMOVED]
    assert [(row["client"], row["round"]) for row in removed] == [(2, 2)]
    assert (status.reason, status.lost, status.refused) == ("10 iterations", 2, 0)


def test_a_removal_is_completed_before_a_signal_stops_the_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path, REMOVE, ScriptedTriggers())
    scene.recall.allowed = math.inf
    scene.poll(FIRST)
    scene.poll(action=lambda: (scene.lose(2)(), scene.signal()())[0])
    assert scene.run().state == State.STOPPED
    run_state = scene.checkpoint.run_state
    assert (run_state.lost, run_state.removed) == ((2,), 1)
    np.testing.assert_array_equal(run_state.server.state.buffer.total, [-3, -3])  # (3 - 3/2) is the average
    assert sorted(scene.checkpoint.memories) == [0, 1]


def test_clients_found_missing_at_a_signal_end_the_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(1))
    scene.gone = [[2]]
    scene.poll(FIRST)
    scene.poll(action=scene.signal())
    with pytest.raises(ClientsLost, match=r"^client 2 lost$"):
        scene.server.run()
    assert scene.files == set()  # the unfinished checkpoint is cancelled
    assert scene.events()["kind"][-1] == Kind.LOST
    assert scene.server.lost == (2,)


def test_all_missing_clients_are_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.gone = [[0, 1, 2]]
    scene.poll(FIRST, lambda: setattr(scene.triggers, "continued", True))
    with pytest.raises(ClientsLost, match=r"^clients 0, 1, 2 lost$"):
        scene.server.run()


def test_clients_are_lost_when_they_are_missing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_LIVENESS_INTERVAL_S", 0.0)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.gone = [[2], [], [2], [1, 2]]
    with pytest.raises(ClientsLost, match=r"^client 2 lost$"):
        scene.server.run()
    assert scene.gone == []
    assert [row["client"] for row in scene.events() if row["kind"] == Kind.LOST] == [2]


def test_two_looks_for_gone_clients_are_an_interval_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_LIVENESS_INTERVAL_S", 1000.0)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.server._liveness_checked_s = -math.inf
    scene.gone = [[2], [2]]
    for updates in ([], [], [], FIRST, second(0, 1)):
        scene.poll(updates)
    assert scene.run().lost == 0
    assert scene.gone == [[2]]  # one look


def test_a_run_fails_when_all_clients_are_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path, KEEP, ScriptedTriggers())
    scene.poll(FIRST)
    scene.poll(action=scene.lose(0, 1, 2))
    with pytest.raises(RunFailure, match="all clients are lost"):
        scene.server.run()
    assert scene.server.all_left  # no client is waited for


# ---------------------------------------------------------------------------------------------------- resumed


def stopped_state(folder: Path) -> RunState:
    """A run with four events that a signal stopped, thirty seconds after its start."""
    folder.mkdir()
    scene = Scene(folder, KEEP, ScriptedTriggers())
    scene.recall.allowed = math.inf
    scene.poll(FIRST, scene.signal())
    scene.run()
    return replace(scene.checkpoint.run_state, time_s=30.0)


def test_a_resumed_run_sends_the_orders_again_and_continues_its_counts(tmp_path: Path) -> None:
    run_state = stopped_state(tmp_path / "before")
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(), run_state)
    scene.poll(second(2, 0))
    status = scene.run()
    again, replies = scene.link.orders[:3], scene.link.orders[3:]
    assert {order.flags for order in again} == {Flag.RESUMED}
    assert {order.client: (order.version, order.iteration) for order in again} == {0: (0, 1), 1: (0, 2), 2: (0, 3)}
    assert [(order.client, order.version, order.iteration) for order in replies] == [(2, 1, 5), (0, 1, 6)]
    np.testing.assert_array_equal(replies[0].model, [3, 3])
    assert (status.reason, status.updates, status.server_steps) == ("6 iterations", 5, 1)
    events = scene.events()
    assert events["iteration"].tolist() == [5, 6]
    assert (events["time_s"] >= 30.0).all()
    assert not checkpoint_path(scene.path).exists()


def test_lost_clients_stay_lost_in_a_resumed_run(tmp_path: Path) -> None:
    run_state = stopped_state(tmp_path / "before")
    open_orders = tuple(open_order for open_order in run_state.open_orders if open_order.order.client != 1)
    scene = Scene(tmp_path, KEEP, ScriptedTriggers(), replace(run_state, lost=(1,), open_orders=open_orders))
    scene.link.clients = 1  # of the others one sends its last message,
    scene.poll(second(2, 0))
    scene.poll()
    scene.poll([update(2, flags=Flag.LEAVING)])  # and then the other; client 1 is not waited for
    scene.run()
    assert [order.client for order in scene.link.orders[:2]] == [0, 2]
    assert scene.server.lost == (1,)


@pytest.mark.parametrize("experiment", [KEEP, REMOVE], ids=["keep", "remove"])
def test_a_client_that_the_checkpoint_is_without_is_lost_in_the_resumed_run(
    tmp_path: Path, experiment: Experiment
) -> None:
    scene = Scene(tmp_path, experiment, ScriptedTriggers(), stopped_state(tmp_path / "before"), forgotten={2})
    scene.recall.allowed = math.inf
    for _ in range(3):
        scene.poll()
    scene.poll(second(0, 1))
    status = scene.run()
    assert [order.client for order in scene.link.orders] == [0, 1, 0, 1]
    assert (status.lost, scene.server.lost) == (1, (2,))
    assert scene.warnings == ["client 2 lost: no answer when the checkpoint was written"]
    assert scene.recall.asked == ([{0: 1, 1: 1}] if experiment is REMOVE else [])
    kinds = scene.events()["kind"].tolist()
    assert kinds[:2] == ([Kind.LOST, Kind.REMOVED] if experiment is REMOVE else [Kind.LOST, Kind.UPDATE])
