"""Clients that are lost: what each method does without them, by hand and by AREA's invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.methods.table import arrival
from tests.support.edited import edited
from tests.support.runs import nothing

from areabench.arrays import Vector
from areabench.engine.events import Kind, State
from areabench.engine.scenario import build_scenario
from areabench.engine.server import Removal
from areabench.errors import RunFailure
from areabench.experiment.experiment import Clients, Experiment, Faults, Record, Stop
from areabench.methods.area import Area, area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.base import Buffer, MethodSettings
from areabench.methods.criteria import EveryUpdates, PoissonAggregation
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg, s_fedavg
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import Run
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import ListedRates
from areabench.transports.replay import Replay

Recorded = Callable[[Experiment], Run]
TWO_LOST = Faults(lost=(2, 4), lost_at_s=(0.7, 1.4))
EXPERIMENT = Experiment(
    clients=Clients(count=5, local_steps=2),
    method=Area(step_size=0.05),
    stop=Stop(horizon_s=3.0),
    problem=Quadratic(dimension=3, noise=0.5),
    aggregation=EveryUpdates(updates=3),
    record=Record(interval_s=0.5),
    faults=TWO_LOST,  # by default their memories are kept
    seed=3,
)
METHODS: tuple[MethodSettings, ...] = (
    Area(step_size=0.05),
    Area(step_size=0.05, first_message="zero"),
    AsFedAvg(step_size=0.05),
    FedBuff(step_size=0.05, server_step_size=1.0),
    SFedAvg(step_size=0.05, clients_per_round=3),
)


def replayed(run: Run) -> str:
    """The first difference that a replay finds."""
    scenario = build_scenario(run.experiment, run.path.parent)
    difference = Replay(run, scenario, nothing).run().difference
    return difference.what if difference else ""


# ------------------------------------------------------------------------------------------------ whole runs


@pytest.mark.parametrize("policy", ["keep", "remove"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_run_continues_without_lost_clients(record: Recorded, method: MethodSettings, policy: Any) -> None:
    run = record(replace(EXPERIMENT, method=method, faults=replace(TWO_LOST, lost_client=policy)))
    events = run.events_array
    assert (run.status.state, run.status.lost) == (State.DONE, 2)
    lost = events[events["kind"] == Kind.LOST]
    assert (lost["client"].tolist(), lost["time_s"].tolist()) == ([2, 4], [0.7, 1.4])
    for client, time_s in ((2, 0.7), (4, 1.4)):
        own = events[(events["client"] == client) & (events["kind"] == Kind.UPDATE)]
        assert len(own) > 0
        assert own["time_s"].max() <= time_s
    assert (events["time_s"][events["kind"] == Kind.STEP] > 1.4).sum() > 5
    removed = events[events["kind"] == Kind.REMOVED]
    assert len(removed) == (2 if (policy, method.name) == ("remove", "area") else 0)
    assert replayed(run) == ""


class Watched(Replay):
    """A replay that measures AREA's invariant after every event."""

    worst = 0.0

    def _event(self, number: int, row: np.void) -> object:  # type: ignore[override]
        found = super()._event(number, row)
        count = self._run.experiment.clients.count
        gone = self._lost if self._run.experiment.faults.lost_client == "remove" else []
        memories = [np.asarray(self._clients[client].memory) for client in range(count) if client not in gone]
        state = self._server.state
        if state.clients == len(memories):  # between a loss and the removal the server still has all
            deviation = np.abs(state.model + state.aggregator - np.mean(memories, axis=0)).max()
            self.worst = max(self.worst, float(deviation))
        return found


@pytest.mark.parametrize("policy", ["keep", "remove"])
@pytest.mark.parametrize("method", METHODS[:2], ids=["trained", "zero"])
def test_the_invariant_holds_before_and_after_a_loss(record: Recorded, method: MethodSettings, policy: Any) -> None:
    """The lost client's memory stays at the last state that the server received."""
    run = record(replace(EXPERIMENT, method=method, faults=replace(TWO_LOST, lost_client=policy)))
    watched = Watched(run, build_scenario(run.experiment, run.path.parent), nothing)
    assert watched.run().difference is None
    assert watched.worst < 1e-12


def test_a_removed_client_does_not_affect_the_limit(record: Recorded) -> None:
    """Without noise, AREA goes to the minimiser of those that are left, or with `keep` to another point."""
    quiet = replace(
        EXPERIMENT, problem=Quadratic(dimension=3, noise=0.0), delays=FixedDelays(), stop=Stop(horizon_s=60.0),
        rates=ListedRates(values=(7.0, 9.0, 8.0, 11.0, 10.0)), faults=Faults(lost=(2,), lost_at_s=(0.7,)),
    )  # fmt: skip
    scenario = build_scenario(quiet, record(quiet).path.parent)
    bowls = [scenario.problem.function(client) for client in range(5) if client != 2]  # type: ignore[attr-defined]
    curvature = sum(bowl.hessian for bowl in bowls)
    minimiser = np.linalg.solve(curvature, sum(bowl.hessian @ bowl.centre for bowl in bowls))
    distances = {}
    for policy in ("keep", "remove"):
        run = record(replace(quiet, faults=replace(quiet.faults, lost_client=policy), method=Area(step_size=0.002)))
        distances[policy] = float(np.linalg.norm(run.model(-1) - minimiser))
    assert distances["remove"] < 0.1 * distances["keep"]


def test_a_lost_client_may_be_the_last_of_a_round(record: Recorded) -> None:
    """n = 3, all of them in each round: afterwards rounds of two, and of one."""
    experiment = replace(
        EXPERIMENT, clients=Clients(count=3), method=SFedAvg(step_size=0.05, clients_per_round=3),
        faults=Faults(lost=(0, 2), lost_at_s=(1.0, 2.0)),
    )  # fmt: skip
    run = record(experiment)
    events = run.events_array
    assert run.status.state == State.DONE
    assert replayed(run) == ""
    steps = np.flatnonzero(events["kind"] == Kind.STEP)
    sizes = [np.count_nonzero(part["kind"] == Kind.UPDATE) for part in np.split(events, steps + 1)[:-1]]
    times = events["time_s"][steps]
    assert set(np.array(sizes)[times < 1.0]) == {3}
    assert set(np.array(sizes)[times > 2.5]) == {1}


def test_losses_and_steps_by_the_clock(record: Recorded) -> None:
    run = record(replace(EXPERIMENT, aggregation=PoissonAggregation(rate=20.0)))
    assert (run.status.state, run.status.lost, replayed(run)) == (State.DONE, 2, "")


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Kind.LOST, "the model when a client was lost: digest"), (Kind.REMOVED, "the memories of lost clients: digest")],
)
def test_replay_compares_what_was_removed_with_a_lost_client(record: Recorded, kind: Kind, what: str) -> None:
    run = record(replace(EXPERIMENT, faults=replace(TWO_LOST, lost_client="remove")))
    run.close()
    with edited(run.path) as file:
        rows = file["events"][:]
        rows["digest"][np.flatnonzero(rows["kind"] == kind)[1]] ^= 1
        file["events"][:] = rows
    with Run(run.path) as changed:
        assert replayed(changed).startswith(what)


# ------------------------------------------------------------------------------------------------ rules, by hand


def vector(*entries: float) -> Vector:
    return np.array(entries)


def test_removal_by_hand() -> None:
    """Memories (3, 0), (6, 3), (9, 6), the server received the last two: x_s = (3, 0), u = ((3, 3) + (6, 6))/3."""
    method = area(3)
    state = method.start(vector(3, 0)).state
    state = method.receive(state, arrival(1, vector(3, 3))).state
    state = method.receive(state, arrival(2, vector(6, 6))).state
    assert method.recalled is not None
    assert method.remove is not None
    np.testing.assert_array_equal(method.recalled(state), [18, 9])
    removal = Removal(method.recalled(state))
    removal.take(vector(3, 0))
    removal.take(vector(6, 3))
    left = removal.left(np.dtype(float))
    np.testing.assert_array_equal(left, [9, 6])
    without = method.remove(state, 1, left)
    np.testing.assert_array_equal(without.model, [3, 0])
    np.testing.assert_array_equal(without.model + without.aggregator, [4.5, 1.5])
    np.testing.assert_array_equal(method.aggregate(without).state.model, [4.5, 1.5])
    assert (without.clients, without.buffer.size) == (2, 2)


def test_removal_before_any_update() -> None:
    method = area(3)
    assert method.remove is not None
    state = method.remove(method.start(vector(3, 0)).state, 2, vector(6, 0))
    np.testing.assert_array_equal(state.model + state.aggregator, [3, 0])
    assert state.clients == 1


def test_a_round_draws_another_client() -> None:
    method = s_fedavg(6, 3, seed=5)
    start = method.start(vector(0.0))
    assert method.lose is not None
    lost = start.calls[1]
    assert isinstance(lost, int)
    step = method.lose(start.state, lost, 1)
    (other,) = step.calls
    assert other not in start.calls
    assert (step.state.drawn, step.state.awaited) == ((*start.calls, other), 3)
    following = method.aggregate(step.state._replace(buffer=Buffer(vector(3.0), 3)))
    assert lost not in following.calls


def test_no_client_is_drawn_for_one_that_was_idle() -> None:
    method = s_fedavg(6, 3, seed=5)
    start = method.start(vector(0.0))
    idle = min(set(range(6)) - set(start.state.drawn))
    assert method.lose is not None
    step = method.lose(start.state, idle, 0)
    assert step.calls == ()
    for _ in range(20):
        step = method.aggregate(step.state)
        assert idle not in step.calls
        assert len(step.calls) == 3


def test_a_run_without_clients_fails(record: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "check", lambda *_: None)
    everyone = Faults(lost=(0, 1, 2, 3, 4), lost_at_s=(0.5,) * 5)
    with pytest.raises(RunFailure, match="all clients are lost"):
        record(replace(EXPERIMENT, faults=everyone))
