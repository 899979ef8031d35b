"""Updates that cannot be used: refused, counted and named, without harm to AREA's invariant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.methods.table import method_named_by
from tests.support.quadratics import GivenQuadratic

from areabench.engine.client import Client
from areabench.engine.conductor import Conductor
from areabench.engine.evaluation import NoTarget
from areabench.engine.events import CLIENT, Kind, Reason, State, Status
from areabench.engine.messages import (
    AGAIN,
    HEADER_BYTES,
    Flag,
    Order,
    Update,
    UpdateHeader,
    clear_update,
    is_written,
    named_client,
    pack_update,
    read_update,
)
from areabench.engine.server import Server
from areabench.errors import RunFailure
from areabench.experiment.experiment import Clients, Experiment, Faults, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryUpdates, build_criterion
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.quadratic import Quadratic
from areabench.runfile.provenance import gather_provenance
from areabench.runfile.record import Recorder

START = np.array([8.0, 0.0])
EXPERIMENT = Experiment(
    clients=Clients(count=3),
    method=Area(step_size=0.5),
    stop=Stop(horizon_s=10.0),
    problem=Quadratic(dimension=2),
    aggregation=EveryUpdates(updates=2),
)


class Stage:
    """A server and three clients, f_i = |x - c_i|²/2 with c_i = (0, 0), (4, 4), (8, 8); updates may be spoilt."""

    def __init__(self, path: Path, experiment: Experiment = EXPERIMENT) -> None:
        problem = GivenQuadratic([np.eye(2)] * 3, [[0, 0], [4, 4], [8, 8]], START, local_steps=1)
        method = method_named_by(experiment)
        self.path, self.orders, self.now_s = path, dict[int, Order](), 0.0
        self.clients = [Client(method, problem.local(number), START) for number in range(3)]
        self.server = Server(method, lambda _iteration, _time_s: 0.5, START, clients=3, local_steps=1)
        self.recorder = Recorder(path, "", 2, np.dtype(np.float64), force=True)
        self.recorder.begin(gather_provenance("simulator", "", "1", 0), np.zeros(3, CLIENT))
        criterion = build_criterion(experiment.aggregation, method, experiment.seed)
        self.conductor = Conductor(
            experiment, self.server, criterion, self.recorder, NoTarget(), self._deliver,
            lambda: self.now_s, START,
        )  # fmt: skip
        self.conductor.start()

    def _deliver(self, order: Order) -> None:
        if order.flags is AGAIN:
            self.clients[order.client].take_back()
        self.orders[order.client] = order

    def send(self, client: int, spoil: Callable[[Update], Update] = lambda update: update) -> None:
        """A client works on its order and sends its update, changed by the test."""
        order, its = self.orders.pop(client), self.clients[client]
        header = UpdateHeader(client, its.round, order.version, local_steps=order.local_steps)
        update = spoil(Update(header, its.work(order)))
        self.now_s += 0.5
        self.conductor.update(update, self.now_s)

    @property
    def deviation(self) -> float:
        """How far x_s + u is from the mean of the clients' memories, without updates in flight."""
        memories = np.mean([np.asarray(client.memory) for client in self.clients], axis=0)
        return float(np.abs(self.server.model + self.server.state.aggregator - memories).max())

    def events(self) -> Any:
        """All events, as they are in the file."""
        self.recorder.close()
        with h5py.File(self.path, "r") as file:
            return file["events"][:]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "run.h5")


def with_round(number: int) -> Callable[[Update], Update]:
    return lambda update: update._replace(header=update.header._replace(round=number))


def with_version(number: int) -> Callable[[Update], Update]:
    return lambda update: update._replace(header=update.header._replace(base_version=number))


def with_entry(value: float) -> Callable[[Update], Update]:
    return lambda update: update._replace(payload=np.array([1.0, value]))


SPOILT = [
    (with_entry(math.nan), Reason.NOT_FINITE),
    (with_entry(math.inf), Reason.NOT_FINITE),
    (with_entry(-math.inf), Reason.NOT_FINITE),
    (lambda update: update._replace(payload=np.zeros(3)), Reason.LENGTH),
    (with_round(4), Reason.ROUND),
    (with_round(-1), Reason.ROUND),
    (with_version(7), Reason.BASE_VERSION),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILT)
def test_a_spoilt_update_is_refused_and_its_client_works_again(
    stage: Stage, spoil: Callable[[Update], Update], reason: Reason
) -> None:
    """By hand: client 1 goes half of the way to (4, 4), from (8, 0) to (6, 2); Delta = 2."""
    stage.send(1, spoil)
    np.testing.assert_array_equal(stage.server.model, START)
    assert (stage.server.iteration, stage.conductor.updates) == (0, 0)
    order = stage.orders[1]
    assert (order.flags, order.version, order.iteration) == (AGAIN, 0, 0)
    stage.send(1)
    stage.send(0)  # to (4, 0)
    np.testing.assert_allclose(stage.server.model, START + (np.array([-2.0, 2.0]) + [-4.0, 0.0]) / 3)
    assert stage.deviation < 1e-12
    status = stage.recorder.tally.status(State.DONE, "")
    assert (status.updates, status.refused, status.server_steps) == (2, 1, 1)
    events = stage.events()
    assert events["kind"].tolist() == [Kind.REFUSED, Kind.UPDATE, Kind.UPDATE, Kind.STEP]
    assert events["reason"].tolist() == [reason, 0, 0, 0]
    assert events["client"].tolist() == [1, 1, 0, -1]
    assert events["iteration"].tolist() == [0, 1, 2, 3]


def test_large_values_are_no_fault(stage: Stage) -> None:
    """Their squares overflow, they do not."""
    with np.errstate(over="ignore"):
        stage.send(2, with_entry(1e200))
    assert stage.recorder.tally.status(State.DONE, "").refused == 0


def test_the_invariant_holds_through_many_refusals(stage: Stage) -> None:
    generator = np.random.default_rng(3)
    for number in range(60):
        spoilt = number % 5 in (1, 2)
        stage.send(int(generator.integers(3)), with_entry(math.nan) if spoilt else lambda update: update)
        assert stage.deviation < 1e-12
    status = stage.recorder.tally.status(State.DONE, "")
    assert (status.updates, status.refused) == (36, 24)


def test_a_client_takes_back_its_last_round_only(stage: Stage) -> None:
    stage.send(0)
    first = stage.clients[0].memory
    assert first is not None
    stage.send(0, with_entry(math.nan))
    assert stage.clients[0].memory is first
    assert stage.clients[0].round == 2  # its draws continued


def test_an_update_without_an_order_is_not_answered(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run.h5", replace(EXPERIMENT, method=SFedAvg(step_size=0.5, clients_per_round=2)))
    (idle,) = {0, 1, 2} - set(stage.orders)
    stage.conductor.update(Update(UpdateHeader(idle, 0, 0), np.zeros(2)), 1.0)
    assert idle not in stage.orders
    assert stage.events()["reason"].tolist() == [Reason.ROUND]


def test_the_reason_of_a_bad_update_after_the_end_is_recorded(stage: Stage) -> None:
    stage.conductor.discard(Update(UpdateHeader(1, 0, 0), np.array([1.0, math.nan])), 11.0)
    stage.conductor.discard(Update(UpdateHeader(0, 0, 0), np.array([1.0, 2.0])), 11.0)
    events = stage.events()
    assert events["kind"].tolist() == [Kind.REFUSED, Kind.DISCARDED]
    assert events["reason"].tolist() == [Reason.NOT_FINITE, 0]


def test_the_policy_may_be_to_stop(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run.h5", replace(EXPERIMENT, faults=Faults(bad_update="stop")))
    said = 'an update of client 2 has a value that is not finite; .*faults.bad_update = "refuse"'
    with pytest.raises(RunFailure, match=said):
        stage.send(2, with_entry(math.nan))
    assert stage.events()["kind"].tolist() == [Kind.REFUSED]


@pytest.mark.parametrize(
    ("method", "refused"), [(Area(step_size=0.5), 3), (SFedAvg(step_size=0.5, clients_per_round=1), 3)]
)
def test_a_run_without_any_finite_update_has_diverged(tmp_path: Path, method: MethodSettings, refused: int) -> None:
    stage = Stage(tmp_path / "run.h5", replace(EXPERIMENT, method=method))
    ended: Status | None = None
    while not ended:
        for client in list(stage.orders):
            stage.send(client, with_entry(math.nan))
            ended = ended or stage.conductor.ended(stage.now_s)
    assert (ended.state, ended.refused) == (State.DIVERGED, refused)
    assert "the last update of every client at work was refused: an update of client" in ended.reason


def test_one_client_that_never_sends_anything_finite_does_not_end_a_run(stage: Stage) -> None:
    for _ in range(9):
        stage.send(0, with_entry(math.nan))
        stage.send(1)
        assert stage.conductor.ended(stage.now_s) is None
        assert stage.deviation < 1e-12


def test_an_update_that_is_used_clears_the_refusals_of_its_client(stage: Stage) -> None:
    """Every client is refused once, three refusals in all; no client's last update is a refused one."""
    for client in range(3):
        stage.send(client, with_entry(math.nan))
        stage.send(client)
    assert stage.recorder.tally.status(State.DONE, "").refused == 3
    assert stage.conductor.ended(stage.now_s) is None


def test_a_resumed_run_counts_on_from_the_refusals_before(tmp_path: Path, stage: Stage) -> None:
    for client in (0, 1):
        stage.conductor.refuse(client, Reason.NOT_FINITE, 1.0)
    resumed = Stage(tmp_path / "resumed.h5")
    resumed.conductor.resume(stage.conductor.run_state(1.0))
    resumed.conductor.refuse(2, Reason.NOT_FINITE, 2.0)  # the third refusal, and every client has one
    ended = resumed.conductor.ended(2.0)
    assert ended is not None
    assert ended.state == State.DIVERGED


def test_the_refusals_of_a_lost_client_do_not_count(stage: Stage) -> None:
    for client in (2, 2, 0):
        stage.conductor.refuse(client, Reason.NOT_FINITE, 1.0)
    stage.conductor.lose([2], 1.0)
    stage.conductor.refuse(1, Reason.NOT_FINITE, 2.0)  # two refusals of those who are left: one less than it takes
    assert not stage.conductor.over
    stage.conductor.refuse(1, Reason.NOT_FINITE, 3.0)
    assert stage.conductor.over


def test_a_run_fails_when_no_client_can_be_understood(stage: Stage) -> None:
    for client in range(2):
        stage.conductor.refuse(client, Reason.PROTOCOL, 1.0)
    with pytest.raises(RunFailure, match="another protocol version; start all ranks from one installation"):
        stage.conductor.refuse(2, Reason.PROTOCOL, 1.0)


def test_a_client_is_lost_once(tmp_path: Path) -> None:
    """Its rank may be there again after a resume, and die again."""
    stage = Stage(tmp_path / "run.h5", replace(EXPERIMENT, faults=Faults(lost_client="remove")))
    for client in range(3):
        stage.send(client)
    stage.conductor.lose([2], 5.0)
    assert stage.conductor.to_remove == 1
    stage.conductor.remove(np.asarray(stage.clients[2].memory), 5.0)
    before = stage.server.state.aggregator
    stage.conductor.lose([2], 6.0)
    assert (stage.conductor.lost, stage.conductor.to_remove) == ([2], 0)
    np.testing.assert_array_equal(stage.server.state.aggregator, before)
    memories = [np.asarray(client.memory) for client in stage.clients[:2]]
    np.testing.assert_allclose(stage.server.model + before, np.mean(memories, axis=0))


# ---------------------------------------------------------------------------------------------------- headers


def message(header: UpdateHeader, payload_bytes: int = 800) -> bytearray:
    buffer = bytearray(HEADER_BYTES)
    pack_update(buffer, header, payload_bytes)
    return buffer


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.OVERRUN, Flag.CLIPPED | Flag.OVERRUN, Flag.OUTSIDE])
def test_a_good_header(flags: Flag) -> None:
    header = UpdateHeader(3, 1, 2, flags=flags)
    assert read_update(message(header), (3, 5), 800) == header


@pytest.mark.parametrize("flags", [Flag.LEAVING, Flag.FAILED])
def test_last_words_have_no_payload(flags: Flag) -> None:
    header = UpdateHeader(3, -1, -1, flags=flags)
    assert read_update(message(header, 0), (3,), 800) == header
    assert read_update(message(header, 800), (3,), 800) is Reason.LENGTH


def test_what_is_wrong_with_a_header() -> None:
    good = message(UpdateHeader(3, 1, 2))
    assert read_update(good, range(4, 9), 800) is Reason.CLIENT
    assert read_update(good, (3,), 808) is Reason.LENGTH
    other = bytearray(good)
    other[0] += 1
    assert read_update(other, (3,), 800) is Reason.PROTOCOL
    for flags in (Flag.STOP, Flag.REPLY, Flag.LEAVING | Flag.FAILED, 0xFFFF):
        other = message(UpdateHeader(3, 1, 2, flags=int(flags)))
        assert read_update(other, (3,), 800) is Reason.PROTOCOL


def test_a_message_that_is_shorter_than_a_header_names_no_client() -> None:
    buffer = message(UpdateHeader(3, 1, 2))
    assert (is_written(buffer), named_client(buffer)) == (True, 3)
    clear_update(buffer)
    assert not is_written(buffer)
    buffer[:2] = message(UpdateHeader(3, 1, 2))[:2]
    assert (is_written(buffer), named_client(buffer)) == (True, 0xFFFFFFFF)
    assert read_update(buffer, range(10_000), 800) is Reason.CLIENT


def test_reasons_have_words() -> None:
    assert len({reason.text for reason in Reason}) == len(Reason)
