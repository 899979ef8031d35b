"""Updates that cannot be used: refused, counted and named, without harm to AREA's invariant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.methods.table import Spoil, Table
from tests.support.quadratics import GivenQuadratic

from areabench.engine.events import Kind, Reason, State, Status
from areabench.engine.messages import (
    AGAIN,
    HEADER_BYTES,
    Flag,
    Update,
    UpdateHeader,
    clear_update,
    is_written,
    named_client,
    pack_update,
    read_update,
)
from areabench.errors import RunFailure
from areabench.experiment.experiment import Faults
from areabench.methods.area import area
from areabench.methods.base import Method
from areabench.methods.s_fedavg import s_fedavg

START = np.array([8.0, 0.0])


def table_of(method: Method | None = None, **faults: Any) -> Table:
    """A server and three clients, f_i = |x - c_i|²/2 with c_i = (0, 0), (4, 4), (8, 8); Delta = 2."""
    problem = GivenQuadratic([np.eye(2)] * 3, [[0, 0], [4, 4], [8, 8]], START, local_steps=1)
    return Table(method or area(3), problem, delta=2, faults=Faults(**faults))


@pytest.fixture
def table() -> Table:
    return table_of()


def deviation(table: Table) -> float:
    """How far x_s + u is from the mean of the clients' memories, without updates in flight."""
    memories = np.mean([np.asarray(client.memory) for client in table.clients], axis=0)
    return float(np.abs(table.server.model + table.server.state.aggregator - memories).max())


def facts(table: Table) -> list[tuple[Kind, int, int]]:
    """Kind, client and reason of all events."""
    return [(event.kind, event.client, event.reason) for event in table.recorder.events]


def with_round(number: int) -> Spoil:
    return lambda update: update._replace(header=update.header._replace(round=number))


def with_version(number: int) -> Spoil:
    return lambda update: update._replace(header=update.header._replace(base_version=number))


def with_entry(value: float) -> Spoil:
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
def test_a_spoilt_update_is_refused_and_its_client_works_again(table: Table, spoil: Spoil, reason: Reason) -> None:
    """By hand: client 1 goes half of the way to (4, 4), from (8, 0) to (6, 2); Delta = 2."""
    table.deliver(1, spoil=spoil)
    assert (table.model(), table.server.iteration, table.conductor.updates) == ([8, 0], 0, 0)
    assert (table.orders[1].flags, table.holds(1)) == (AGAIN, ([8, 0], 0, 0))
    table.deliver(1, 0)  # the other one goes to (4, 0)
    np.testing.assert_allclose(table.server.model, START + (np.array([-2.0, 2.0]) + [-4.0, 0.0]) / 3)
    assert deviation(table) < 1e-12
    status = table.recorder.tally.status(State.DONE, "")
    assert (status.updates, status.refused, status.server_steps) == (2, 1, 1)
    assert facts(table) == [(Kind.REFUSED, 1, reason), (Kind.UPDATE, 1, 0), (Kind.UPDATE, 0, 0), (Kind.STEP, -1, 0)]
    assert [event.iteration for event in table.recorder.events] == [0, 1, 2, 3]


def test_large_values_are_no_fault(table: Table) -> None:
    """Their squares overflow, they do not."""
    with np.errstate(over="ignore"):
        table.deliver(2, spoil=with_entry(1e200))
    assert table.recorder.tally.kinds[Kind.REFUSED] == 0


def test_the_invariant_holds_through_many_refusals(table: Table) -> None:
    generator = np.random.default_rng(3)
    for number in range(60):
        spoilt = number % 5 in (1, 2)
        table.deliver(int(generator.integers(3)), spoil=with_entry(math.nan) if spoilt else None)
        assert deviation(table) < 1e-12
    assert (table.conductor.updates, table.recorder.tally.kinds[Kind.REFUSED]) == (36, 24)


def test_a_client_takes_back_its_last_round_only(table: Table) -> None:
    table.deliver(0)
    first = table.clients[0].memory
    assert first is not None
    table.deliver(0, spoil=with_entry(math.nan))
    assert table.clients[0].memory is first
    assert table.clients[0].round == 2  # its draws continued


def test_an_update_without_an_order_is_not_answered() -> None:
    table = table_of(s_fedavg(3, 2, seed=0))
    (idle,) = {0, 1, 2} - set(table.orders)
    table.conductor.update(Update(UpdateHeader(idle, 0, 0), np.zeros(2)), 1.0)
    assert idle not in table.orders
    assert facts(table) == [(Kind.REFUSED, idle, Reason.ROUND)]


def test_the_reason_of_a_bad_update_after_the_end_is_recorded(table: Table) -> None:
    table.conductor.discard(Update(UpdateHeader(1, 0, 0), np.array([1.0, math.nan])), 11.0)
    table.conductor.discard(Update(UpdateHeader(0, 0, 0), np.array([1.0, 2.0])), 11.0)
    assert facts(table) == [(Kind.REFUSED, 1, Reason.NOT_FINITE), (Kind.DISCARDED, 0, 0)]


def test_the_policy_may_be_to_stop() -> None:
    table = table_of(bad_update="stop")
    said = 'an update of client 2 has a value that is not finite; .*faults.bad_update = "refuse"'
    with pytest.raises(RunFailure, match=said):
        table.deliver(2, spoil=with_entry(math.nan))
    assert [kind for kind, _, _ in facts(table)] == [Kind.REFUSED]


@pytest.mark.parametrize("method", [area(3), s_fedavg(3, 1, seed=0)], ids=lambda method: method.name)
def test_a_run_without_any_finite_update_has_diverged(method: Method) -> None:
    table = table_of(method)
    ended: Status | None = None
    while not ended:
        for client in list(table.orders):
            table.deliver(client, spoil=with_entry(math.nan))
            ended = ended or table.conductor.ended(table.time_s)
    assert (ended.state, ended.refused) == (State.DIVERGED, 3)
    assert "the last update of every client at work was refused: an update of client" in ended.reason


def test_one_client_that_never_sends_anything_finite_does_not_end_a_run(table: Table) -> None:
    for _ in range(9):
        table.deliver(0, spoil=with_entry(math.nan))
        table.deliver(1)
        assert table.conductor.ended(table.time_s) is None
        assert deviation(table) < 1e-12


def test_an_update_that_is_used_clears_the_refusals_of_its_client(table: Table) -> None:
    """Every client is refused once, three refusals in all; no client's last update is a refused one."""
    for client in range(3):
        table.deliver(client, spoil=with_entry(math.nan))
        table.deliver(client)
    assert table.recorder.tally.kinds[Kind.REFUSED] == 3
    assert table.conductor.ended(table.time_s) is None


def test_a_resumed_run_counts_on_from_the_refusals_before(table: Table) -> None:
    for client in (0, 1):
        table.conductor.refuse(client, Reason.NOT_FINITE, 1.0)
    resumed = table_of()
    resumed.conductor.resume(table.conductor.run_state(1.0))
    resumed.conductor.refuse(2, Reason.NOT_FINITE, 2.0)  # the third refusal, and every client has one
    ended = resumed.conductor.ended(2.0)
    assert ended is not None
    assert ended.state == State.DIVERGED


def test_the_refusals_of_a_lost_client_do_not_count(table: Table) -> None:
    for client in (2, 2, 0):
        table.conductor.refuse(client, Reason.NOT_FINITE, 1.0)
    table.conductor.lose([2], 1.0)
    table.conductor.refuse(1, Reason.NOT_FINITE, 2.0)  # two refusals of those who are left: one less than it takes
    assert not table.conductor.over
    table.conductor.refuse(1, Reason.NOT_FINITE, 3.0)
    assert table.conductor.over


def test_a_run_fails_when_no_client_can_be_understood(table: Table) -> None:
    for client in range(2):
        table.conductor.refuse(client, Reason.PROTOCOL, 1.0)
    with pytest.raises(RunFailure, match="another protocol version; start all ranks from one installation"):
        table.conductor.refuse(2, Reason.PROTOCOL, 1.0)


def test_a_client_is_lost_once() -> None:
    """Its rank may be there again after a resume, and die again."""
    table = table_of(lost_client="remove")
    table.deliver(0, 1, 2)
    table.conductor.lose([2], 5.0)
    assert table.conductor.to_remove == 1
    table.conductor.remove(np.asarray(table.clients[2].memory), 5.0)
    before = table.server.state.aggregator
    table.conductor.lose([2], 6.0)
    assert (table.conductor.lost, table.conductor.to_remove) == ([2], 0)
    np.testing.assert_array_equal(table.server.state.aggregator, before)
    memories = [np.asarray(client.memory) for client in table.clients[:2]]
    np.testing.assert_allclose(table.server.model + before, np.mean(memories, axis=0))


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
def test_last_messages_have_no_payload(flags: Flag) -> None:
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
