"""Clocks, sleeps and signals, and when a worker waits inside MPI."""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.wires import SlowBowl, StillClock, WorkerWire, client_of, order, rounds_of

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.messages import AGAIN, Flag, Order
from areabench.timing.delays import RoundTime
from areabench.transports.clock import Backoff, Cores, RealClock, lengthened_sleep, sharpen_sleep
from areabench.transports.signals import INTERRUPT_SIGNALS, STOP_SIGNALS, CheckpointTriggers, Interrupts
from areabench.transports.worker_loop import _QUICK_REPLY_S, _QUICK_WITH_CORES_S, HostedClient, Worker

PR_GET_TIMERSLACK = 30


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock of the process shows."""
    shown = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: shown[0])
    return shown


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals have the handlers of before again."""
    numbers = {*STOP_SIGNALS, *INTERRUPT_SIGNALS, signal.SIGCONT}
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_sleeps_are_sharpened() -> None:
    """In a thread of its own, which alone is changed."""
    if sys.platform != "linux":
        pytest.skip("only Linux has a timer slack")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(sharpen_sleep).result()
        assert thread.submit(ctypes.CDLL(None).prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0).result() == 1000  # nanoseconds


def test_sleeps_are_lengthened_for_a_while() -> None:
    """Whatever other code has asked for before."""
    if sys.platform != "linux":
        pytest.skip("only Linux has a timer slack")
    ask = partial(ctypes.CDLL(None).prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0)
    before = ask()
    with lengthened_sleep():
        assert ask() == 5_000_000  # nanoseconds
    assert ask() == before


def test_where_cores_are_spare_a_wait_begins_without_sleep(now_s: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr("areabench.transports.clock.time.sleep", lambda pause_s: done.append(f"sleep {pause_s}"))
    monkeypatch.setattr("areabench.transports.clock.os.sched_yield", lambda: done.append("yield"))
    backoff = Backoff(0.25, 1.0, spin_s=2.0)
    for now_s[0] in (100.0, 102.0, 102.5, 103.0):
        backoff.pause(10.0)
    backoff.reset()
    backoff.pause(10.0)
    assert done == ["yield", "yield", "sleep 0.25", "sleep 0.375", "yield"]


def test_a_clock_continues_where_a_run_was_stopped(now_s: list[float]) -> None:
    clock, plain = RealClock(stretch=4.0, starts_at_s=30.0), RealClock()
    assert (clock.now_s(), plain.now_s()) == (30.0, 0.0)
    now_s[0] = 108.0
    assert (clock.now_s(), clock.real_s(2.0)) == (32.0, 8.0)
    assert (plain.now_s(), plain.real_s(2.0)) == (8.0, 2.0)


def test_signals_are_noted_and_the_first_one_named() -> None:
    with CheckpointTriggers(60.0) as triggers:
        os.kill(os.getpid(), signal.SIGCONT)
        assert (triggers.continued, triggers.stop_signal) == (True, "")
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert triggers.stop_signal == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_checkpoint_waits_for_five_intervals_and_ten_seconds_at_least() -> None:
    patience_s = [CheckpointTriggers(every_s).patience_s for every_s in (1.0, 60.0, 0.0)]
    assert patience_s == [10.0, 300.0, math.inf]  # with 0 there is one only at a signal


def test_an_interrupt_stops_a_run_before_it_ends_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with CheckpointTriggers(60.0) as triggers:
        os.kill(os.getpid(), signal.SIGINT)
        assert triggers.stop_signal == "SIGINT"
    assert signal.getsignal(signal.SIGINT) == before


def somebody_elses(_number: int, _frame: object) -> None:
    """Handle a signal."""


@pytest.mark.parametrize("before", [signal.SIG_DFL, somebody_elses])
def test_the_warning_before_the_end_of_a_job_does_not_kill_a_process_whose_run_is_over(before: Any) -> None:
    signal.signal(signal.SIGUSR1, before)
    with CheckpointTriggers(60.0):
        pass
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (signal.getsignal(signal.SIGUSR1) == before) == (before is somebody_elses)


@pytest.mark.parametrize(
    ("cores", "replied", "behind", "reply_s", "waits"),
    [
        (Cores(spare=True, yielded=False), True, False, 0.0, True),
        (Cores(spare=True, yielded=False), True, False, _QUICK_WITH_CORES_S, False),  # replies are slow
        (Cores(spare=True, yielded=False), False, False, 0.0, False),  # a call may take long
        (Cores(spare=False, yielded=True), True, True, 0.0, True),
        (Cores(spare=False, yielded=True), True, False, 0.0, False),  # it has time to sleep
        (Cores(spare=False, yielded=False), True, True, 0.0, False),
        (Cores(spare=False, yielded=True), True, True, _QUICK_REPLY_S, False),
    ],
)
def test_a_worker_waits_inside_mpi_for_quick_replies_alone(
    cores: Cores, replied: bool, behind: bool, reply_s: float, waits: bool
) -> None:
    worker = plain_worker(cores=cores)
    worker._replied, worker._behind, worker._reply_s = replied, behind, reply_s
    assert worker._waits_in_mpi() == waits


# -------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_due_at_intervals_that_begin_again(now_s: list[float]) -> None:
    triggers, never = CheckpointTriggers(10.0), CheckpointTriggers(0.0)  # 0: at a signal alone
    found = list[bool]()
    for now_s[0] in (100.0, 109.9, 110.0, 110.1, 125.0, 134.9, 135.0, 1e9):
        found.append(triggers.due())
        assert (never.enabled, never.due()) == (True, False)
    assert found == [False, False, True, False, True, False, True, True]


def test_without_an_interval_signals_keep_their_handlers() -> None:
    before = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGCONT)}
    with CheckpointTriggers(None) as triggers:
        assert not triggers.enabled
        assert {number: signal.getsignal(number) for number in before} == before
    assert {number: signal.getsignal(number) for number in before} == before


# --------------------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("number", INTERRUPT_SIGNALS)
def test_an_interrupt_is_noted_and_wakes_who_waits(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in INTERRUPT_SIGNALS}
    with Interrupts() as interrupts:
        assert interrupts.number == 0
        assert select.select([interrupts.file], [], [], 0)[0] == []
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)  # the first one counts
        assert (interrupts.number, interrupts.exit_code) == (number, 128 + number)
        assert select.select([interrupts.file], [], [], 0)[0] == [interrupts.file]
        assert os.read(interrupts.file, 10) == b"!"
    assert {each: signal.getsignal(each) for each in INTERRUPT_SIGNALS} == before


def test_a_context_of_interrupts_leaves_no_file_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Interrupts() as interrupts:
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
        os.close(interrupts.file)  # one that is closed already is none of its business
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("number", "kept"), [(signal.SIGHUP, True), (signal.SIGTERM, False), (signal.SIGINT, False)])
def test_a_closed_terminal_stays_ignored_under_nohup(number: signal.Signals, kept: bool) -> None:
    """Only this signal, and only where it is ignored."""
    signal.signal(number, signal.SIG_IGN)
    with Interrupts():
        found = {each: signal.getsignal(each) for each in INTERRUPT_SIGNALS}
    assert (found[number] == signal.SIG_IGN) == kept
    assert all(found[each] != signal.SIG_IGN for each in INTERRUPT_SIGNALS if each != number)


# ------------------------------------------------------------------------------------------------------ workers


def still_worker(delays_s: dict[int, float], stretch: float = 1.0) -> tuple[Worker, WorkerWire, StillClock]:
    """A worker that has seen the first orders of its clients at 0 s."""
    wire = WorkerWire([order(Flag.NONE, client=client) for client in delays_s], expected=100)
    clock = StillClock(stretch)
    hosted = {client: HostedClient(client_of(SlowBowl()), rounds_of(time_s)) for client, time_s in delays_s.items()}
    worker = Worker(wire, hosted, clock)
    assert worker._take_orders() is True
    assert worker._take_orders() is False
    return worker, wire, clock


def plain_worker(*orders: Order, cores: Cores | None = None) -> Worker:
    """A worker with one client, which gets these orders."""
    hosted = {0: HostedClient(client_of(SlowBowl()), rounds_of(0.0))}
    wire = WorkerWire(list(orders), expected=1)
    if cores is None:
        return Worker(wire, hosted, RealClock())
    return Worker(wire, hosted, RealClock(), cores)


def work_for_two_seconds(client: Client, clock: StillClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client take two seconds for each round."""
    real = client.work

    def work(given: Order) -> Vector:
        clock.time_s += 2.0
        return real(given)

    monkeypatch.setattr(client, "work", work)


def test_an_update_is_sent_at_its_time_and_not_before() -> None:
    worker, wire, clock = still_worker({0: 2.0, 1: 3.0})
    assert worker._send_and_compute() is True  # one round at a time
    assert worker._send_and_compute() is True
    assert worker._send_and_compute() is False
    clock.time_s = 1.999
    assert worker._send_and_compute() is False
    clock.time_s = 2.0
    assert worker._send_and_compute() is True
    assert worker._send_and_compute() is False
    clock.time_s = 3.5
    worker._handle_due()
    headers = [sent.header for sent in wire.sent]
    assert [(header.client, header.realised_delay_s, header.flags) for header in headers] == [
        (0, 2.0, Flag.NONE), (1, 3.5, Flag.NONE),
    ]  # fmt: skip
    assert [worker._hosted[client].sent_s for client in (0, 1)] == [2.0, 3.5]


def test_of_several_rounds_the_one_that_is_due_first_is_computed_first() -> None:
    """Their orders were here at the same time; a tie goes to the order that was seen first."""
    worker, wire, _ = still_worker({0: 3.0, 1: 1.0, 2: 2.0, 3: 1.0})
    for _ in range(4):
        assert worker._send_and_compute() is True
    assert list(wire.loaded) == [1, 3, 2, 0]


def test_updates_that_are_due_together_are_sent_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """While client 1 computes for 2 s, client 0 becomes due: client 1, which is later still, was due before it."""
    worker, wire, clock = still_worker({0: 2.0, 1: 4.0})
    worker._send_and_compute()
    hosted = worker._hosted[1]
    assert hosted.current is not None
    hosted.current.time = RoundTime(0.5, 1)  # of which nothing was known when the order of client 0 was seen
    work_for_two_seconds(hosted.client, clock, monkeypatch)
    worker._send_and_compute()
    assert [sent.header.client for sent in wire.sent] == [1, 0]
    assert [sent.header.flags for sent in wire.sent] == [Flag.OVERRUN, Flag.NONE]


def test_a_round_that_is_done_just_in_time_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, wire, clock = still_worker({0: 2.0})
    work_for_two_seconds(worker._hosted[0].client, clock, monkeypatch)
    worker._send_and_compute()
    header = wire.sent[0].header  # it was due at once
    assert (header.compute_s, header.realised_delay_s, header.flags, worker._behind) == (2.0, 2.0, Flag.NONE, False)


@pytest.mark.parametrize(
    ("flags", "begun_s", "reply_s"),
    [
        (Flag.REPLY, 3.0, 4.0), (AGAIN, 3.0, 4.0), (Flag.RESUMED, 3.0, math.nan), (Flag.FIRST, 0.0, math.nan),
        (Flag.NONE, 7.0, math.nan),
    ],
)  # fmt: skip
def test_when_a_delay_begins(flags: Flag, begun_s: float, reply_s: float) -> None:
    """The last update was sent at 3 s, the order seen at 7 s; a second takes two real ones."""
    worker, _, _ = still_worker({0: 2.0}, stretch=2.0)
    worker._hosted[0].sent_s = 3.0
    found = worker._begin_delay(order(flags), 7.0)
    assert found == pytest.approx((begun_s, reply_s), nan_ok=True)
    replied = flags in (Flag.REPLY, AGAIN)
    assert (worker._replied, worker._reply_s) == (replied, 8.0 if replied else 0.0)


@pytest.mark.parametrize(
    ("due_s", "waiting", "slept_s"),
    [
        (0.03, False, 0.06),  # all clients have computed: until the next one is due, in real seconds
        (9.0, False, 0.1),
        (-1.0, False, 0.0),
        (9.0, True, 20e-6),  # one waits for an order: a short pause
        (5e-6, True, 10e-6),
    ],
)
def test_how_long_a_worker_sleeps(due_s: float, waiting: bool, slept_s: float, slept: list[float]) -> None:
    worker, _, clock = still_worker({0: 10.0, 1: 20.0}, stretch=2.0)
    worker._send_and_compute()
    if not waiting:
        worker._send_and_compute()
    clock.time_s = 10.0 - due_s
    slept.clear()
    worker._pause()
    assert slept == pytest.approx([slept_s])


@pytest.mark.parametrize(("waited_s", "longest_s"), [(0.0, 2e-3), (0.15, 3e-3), (10.0, 5e-3)])
def test_the_longer_a_worker_waits_the_longer_it_sleeps(
    waited_s: float, longest_s: float, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _, _ = still_worker({0: 10.0})
    monkeypatch.setattr("areabench.transports.worker_loop.time.perf_counter", lambda: worker._active_s + waited_s)
    for _ in range(30):
        worker._pause()
    assert slept[:2] == pytest.approx([20e-6, 30e-6])
    assert max(slept) == pytest.approx(longest_s)


def test_where_replies_are_slow_a_worker_looks_for_them_twice(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = plain_worker(order())
    worker._reply_s = 3e-3
    monkeypatch.setattr(worker, "_begin_delay", lambda _order, _seen_s: (0.0, 0.0))
    worker.work()
    slept.clear()
    worker._pause()
    assert slept == [pytest.approx(1.5e-3)]


@pytest.mark.parametrize("busy", ["_due", "_pending"])
def test_a_worker_with_something_to_do_does_not_wait_inside_mpi(busy: str) -> None:
    worker, _, _ = still_worker({0: 10.0})
    worker._cores, worker._replied = Cores(spare=True, yielded=True), True
    worker._pending.clear()
    assert worker._waits_in_mpi() is True
    getattr(worker, busy).append("something")
    assert worker._waits_in_mpi() is False


def test_a_worker_does_not_wait_inside_mpi_before_a_reply_or_where_it_knows_nothing_of_the_cores() -> None:
    assert not plain_worker(cores=Cores(spare=True, yielded=True))._waits_in_mpi()
    worker = plain_worker()
    worker._replied = worker._behind = True
    assert not worker._waits_in_mpi()


def test_after_an_order_and_before_the_first_reply_a_worker_looks_often(slept: list[float]) -> None:
    worker = plain_worker(order(Flag.FIRST))
    worker._active_s -= 100.0
    worker.work()
    slept.clear()
    for _ in range(30):
        worker._pause()
    assert (slept[0], max(slept)) == (20e-6, 2e-3)
