"""Footprints and processes of this machine: real processes, started and ended here."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from areabench import host
from areabench.host import (
    Footprint,
    Liveness,
    Meter,
    Process,
    fullest_host,
    is_alive,
    memory_bytes,
    peak_bytes,
    process_began_at,
    start_ticks,
    this_machine,
    this_process,
)

SLEEPER = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for a minute."""
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def seen(child: subprocess.Popen[bytes]) -> Process:
    """The child as it would describe itself."""
    return Process(this_machine(), child.pid, start_ticks(child.pid) or 0)


def test_this_process_is_alive() -> None:
    process = this_process()
    assert process.pid == os.getpid()
    assert process.began > 0
    assert is_alive(process)


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    process = seen(child)
    assert is_alive(process)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet waited for
    assert not is_alive(process)


def test_a_process_that_was_waited_for_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    process = seen(child)
    child.kill()
    child.wait()
    assert not is_alive(process)


def test_a_stopped_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    assert is_alive(seen(child))
    child.send_signal(signal.SIGCONT)


def test_another_process_of_the_same_number_does_not_count(child: subprocess.Popen[bytes]) -> None:
    assert not is_alive(seen(child)._replace(began=seen(child).began - 1))


def test_the_server_knows_which_ranks_of_its_machine_have_ended(child: subprocess.Popen[bytes]) -> None:
    elsewhere = Process("another machine", child.pid, 1)
    watch = Liveness([this_process(), seen(child), elsewhere], rank=0)
    assert watch.gone() == []
    child.kill()
    child.wait()
    assert watch.gone() == [1]


def test_a_worker_notices_that_the_server_is_gone_when_it_looks_again(child: subprocess.Popen[bytes]) -> None:
    now_s = [0.0]
    watch = Liveness([seen(child), this_process()], rank=1, clock=lambda: now_s[0])
    child.kill()
    child.wait()
    now_s[0] = 0.9
    assert not watch.server_gone()  # it has not looked yet
    now_s[0] = 1.0
    assert watch.server_gone()
    assert watch.server_gone()


def test_a_worker_notices_that_its_launcher_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    elsewhere = Process("another machine", 1, 1)
    watch = Liveness([elsewhere, this_process()], rank=1, clock=lambda: now_s[0])
    now_s[0] = 1.0
    assert not watch.server_gone()
    monkeypatch.setattr(os, "getppid", lambda: -1)  # its own may be 1
    now_s[0] = 2.0
    assert watch.launcher_gone()
    assert watch.server_gone()


def test_without_proc_a_process_that_answers_is_alive(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path_factory.mktemp("proc"))
    process = seen(child)
    assert process.began == 0
    assert is_alive(process)
    child.kill()
    child.wait()
    assert not is_alive(process)


def test_a_meter_distinguishes_busy_from_idle() -> None:
    meter = Meter()
    time.sleep(0.3)
    idle = meter.read("here")
    assert idle.host == "here"
    assert idle.busy < 0.5
    assert len(idle.cores) >= 1
    assert idle.memory_bytes > 1e6


def test_a_process_began_before_now() -> None:
    assert time.time() - 86_400 < process_began_at() <= time.time()


def test_facts_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    assert process_began_at() <= time.time()
    assert memory_bytes() > 1e6
    assert math.isnan(Meter().read("here").waited)


def test_memory_without_an_answer_of_the_system_is_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> psutil.Process:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "Process", refuse)
    assert memory_bytes() == peak_bytes(resource.RUSAGE_SELF)


def test_the_fullest_host() -> None:
    ranks = [
        Footprint("a", frozenset({0, 1}), 0.5, 0.0, 1),
        Footprint("a", frozenset({0, 1}), 0.5, 0.0, 1),
        Footprint("b", frozenset({0}), 0.3, 0.0, 1),
        Footprint("b", frozenset({1}), 0.9, 0.0, 1),
    ]
    assert (fullest_host(ranks).cores, fullest_host(ranks[:2]).cores) == (2, 2)
    assert (fullest_host(ranks).load, fullest_host(ranks[:2]).load) == pytest.approx((0.6, 0.5))
    assert fullest_host([]).cores == 0
