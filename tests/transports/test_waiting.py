"""Clocks, sleeps and signals, and when a worker waits inside MPI."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.wires import SlowBowl, WorkerWire, client_of

from areabench.transports.clock import Backoff, Cores, RealClock, sharpen_sleep
from areabench.transports.signals import CheckpointTriggers
from areabench.transports.worker_loop import _QUICK_REPLY_S, _QUICK_WITH_CORES_S, HostedClient, Worker

PR_GET_TIMERSLACK = 30


def test_sleeps_are_sharpened() -> None:
    """In a thread of its own, which alone is changed."""
    if sys.platform != "linux":
        pytest.skip("only Linux has a timer slack")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(sharpen_sleep).result()
        assert thread.submit(ctypes.CDLL(None).prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0).result() == 1000  # nanoseconds


def test_where_cores_are_spare_a_wait_begins_without_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, done = [100.0], list[str]()
    monkeypatch.setattr("areabench.transports.clock.time.perf_counter", lambda: now_s[0])
    monkeypatch.setattr("areabench.transports.clock.time.sleep", lambda pause_s: done.append(f"sleep {pause_s}"))
    monkeypatch.setattr("areabench.transports.clock.os.sched_yield", lambda: done.append("yield"))
    backoff = Backoff(0.25, 1.0, spin_s=2.0)
    for now_s[0] in (100.0, 102.0, 102.5, 103.0):
        backoff.pause(10.0)
    backoff.reset()
    backoff.pause(10.0)
    assert done == ["yield", "yield", "sleep 0.25", "sleep 0.375", "yield"]


def test_a_clock_goes_on_from_where_a_run_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("areabench.transports.clock.time.perf_counter", lambda: now_s[0])
    clock = RealClock(stretch=4.0, starts_at_s=30.0)
    assert clock.now_s() == 30.0
    now_s[0] = 108.0
    assert clock.now_s() == 32.0
    assert clock.real_s(2.0) == 8.0


def test_signals_are_noted_and_the_first_one_named() -> None:
    with CheckpointTriggers(60.0) as triggers:
        os.kill(os.getpid(), signal.SIGCONT)
        assert (triggers.continued, triggers.stop_signal) == (True, "")
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert triggers.stop_signal == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_stops_a_run_before_it_ends_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with CheckpointTriggers(60.0) as triggers:
        os.kill(os.getpid(), signal.SIGINT)
        assert triggers.stop_signal == "SIGINT"
    assert signal.getsignal(signal.SIGINT) == before


def test_the_warning_before_the_end_of_a_job_does_not_kill_a_process_whose_run_is_over() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        with CheckpointTriggers(60.0):
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


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
    hosted = {0: HostedClient(client_of(SlowBowl()), lambda: 0.0)}
    worker = Worker(WorkerWire([], expected=1), hosted, RealClock(), cores)
    worker._replied, worker._behind, worker._reply_s = replied, behind, reply_s
    assert worker._waits_in_mpi() == waits
