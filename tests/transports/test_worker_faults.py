"""A worker's part in bad times: orders of before a stop, refused updates, questions about memories, a lost server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.support.wires import SlowBowl, WorkerWire, client_of, order, rounds_of

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.messages import AGAIN, Flag, Order, bare_order
from areabench.errors import ServerGone
from areabench.methods.area import area
from areabench.transports.clock import RealClock
from areabench.transports.worker_loop import HostedClient, Worker

MEMORY = [8.5, 8.5]  # after a round with step size 1/2 from the model of all orders here
START = [8.0, 8.0]


@dataclass
class AskingWire(WorkerWire):
    """A wire whose script is a list of looks: orders and questions that are here at the same time."""

    looks: list[list[Order]] = field(default_factory=list)
    answers: list[tuple[int, list[float]]] = field(default_factory=list)

    def orders(self, *, wait: bool = False) -> Sequence[Order]:
        if not self.looks:
            self.told_to_stop.set()
            return []
        return self.looks.pop(0)

    def answer(self, question: Order, memory: Vector) -> None:
        self.answers.append((question.client, memory.tolist()))


def asking(looks: list[list[Order]]) -> AskingWire:
    return AskingWire([], expected=100, looks=looks)


def question(number: int, client: int = 0) -> Order:
    """Asks what the client remembered when this round began."""
    return bare_order(client, Flag.RECALL, number)


def remembering(problem: SlowBowl | None = None) -> Client:
    return client_of(problem or SlowBowl(), area(3))


def test_the_delay_of_an_order_of_before_the_stop_began_before_it() -> None:
    """It was sent at 5 s, the run continues at 10 s: a delay of 3 s is over, and is not waited for again."""
    wire = WorkerWire([order(Flag.RESUMED)._replace(iteration=4)], expected=1)
    begun_s = time.perf_counter()
    Worker(wire, {0: HostedClient(client_of(SlowBowl()), rounds_of(3.0), sent_s=5.0)}, RealClock(1.0, 10.0)).work()
    header = wire.sent[0].header
    assert wire.sent_s[0] - begun_s < 3.0
    assert header.realised_delay_s >= 5.0
    assert (header.drawn_delay_s, header.flags) == (3.0, Flag.OVERRUN)
    assert np.isnan(header.reply_s)


def test_what_is_left_of_a_delay_of_before_the_stop_is_kept() -> None:
    wire = WorkerWire([order(Flag.RESUMED)._replace(iteration=4)], expected=1)
    begun_s = time.perf_counter()
    Worker(wire, {0: HostedClient(client_of(SlowBowl()), rounds_of(1.05), sent_s=9.0)}, RealClock(1.0, 10.0)).work()
    assert wire.sent_s[0] - begun_s >= 0.05 - 1e-3
    assert wire.sent[0].header.realised_delay_s >= 1.05


def test_a_refused_update_is_taken_back_when_the_order_is_seen_not_when_its_turn_comes() -> None:
    seen: list[list[float]] = []

    class Watching(SlowBowl):
        """Looks at client 1 while client 0, whose turn comes first, computes."""

        def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
            assert refused.memory is not None
            seen.append(refused.memory.tolist())
            return super().descend(model, step_size, steps)

    refused = remembering()
    looks = [[order(client=1)], [question(1, 1), order(), order(AGAIN, client=1), question(1, 1)]]
    wire = asking([*looks, [], [], []])
    hosted = {0: HostedClient(remembering(Watching()), rounds_of(0.0)), 1: HostedClient(refused, rounds_of(0.0))}
    Worker(wire, hosted, RealClock()).work()
    assert seen == [START]
    assert [sent.header.client for sent in wire.sent] == [1, 0, 1]
    np.testing.assert_array_equal(wire.sent[2].payload, [0.5, 0.5])  # the residual counts from the start again
    assert wire.answers == [(1, MEMORY), (1, START)]  # asked in front of the order, and behind it


@pytest.mark.parametrize(
    ("looks", "answers"),
    [
        ([[question(0)]], [START]),  # nothing computed yet
        ([[order()], [question(0)]], [START]),  # computed, on its way or not: the server has not seen it
        ([[order()], [question(1)]], [MEMORY]),  # seen by the server
        ([[order()], [question(0), order()], [question(1)]], [START, MEMORY]),
    ],
)
def test_questions_are_answered_as_of_the_round_they_name(looks: list[list[Order]], answers: list[list[float]]) -> None:
    wire = asking([*looks, []])
    Worker(wire, {0: HostedClient(remembering(), rounds_of(0.0))}, RealClock()).work()
    assert wire.answers == [(0, answer) for answer in answers]


def test_a_question_is_answered_while_a_delay_runs() -> None:
    wire = asking([[order()], [question(0)], []])
    Worker(wire, {0: HostedClient(remembering(), rounds_of(1000.0))}, RealClock()).work()
    assert wire.sent == []
    assert wire.answers == [(0, START)]


@pytest.mark.parametrize("delay_s", [0.0, 1000.0], ids=["waits for an order", "sleeps"])
def test_a_worker_whose_server_is_gone_ends(delay_s: float) -> None:
    gone: Callable[[], bool] = iter([False, True]).__next__
    wire = WorkerWire([order()], expected=2)
    worker = Worker(wire, {0: HostedClient(client_of(SlowBowl()), rounds_of(delay_s))}, RealClock(), server_gone=gone)
    with pytest.raises(ServerGone, match="the server's rank or the launcher is gone"):
        worker.work()
