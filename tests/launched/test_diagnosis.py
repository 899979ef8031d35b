"""The diagnosis of whole runs: each cause that is rigged is named, and kept delays are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from areabench.engine.diagnosis import Cause, Diagnosis

if TYPE_CHECKING:
    from tests.launched.conftest import Ended, Launcher

pytestmark = [pytest.mark.slow, pytest.mark.timed]

SLOW_SERVER = """
import time

from areabench.engine.conductor import Conductor

update = Conductor.update

def dawdle(self, message, *times):
    time.sleep(0.02)
    update(self, message, *times)

Conductor.update = dawdle
"""
SLOW_LOOKS = """
import time

from areabench.transports.mpi_server import MpiServerLink

arrivals = MpiServerLink.arrivals

def dawdle(self):
    time.sleep(0.05)
    return arrivals(self)

MpiServerLink.arrivals = dawdle
"""
LATE_WAKE_UPS = """
import time

from areabench.transports.worker_loop import Worker

pause = Worker._pause

def oversleep(self):
    pause(self)
    if self._due:
        time.sleep(max(0.0, self._due[0][0] - self._clock.now_s() + 0.04))

Worker._pause = oversleep
"""
SLOW_COMPUTING = """
import time

from areabench.problems.quadratic import LocalQuadratic

descend = LocalQuadratic.descend

def dawdle(self, *given, **named):
    time.sleep(0.4)
    return descend(self, *given, **named)

LocalQuadratic.descend = dawdle
"""
TIGHT_DELAYS = ("delays.name=fixed", "rates.rate=5", "stop.horizon_s=1")  # 200 ms
WIDE_DELAYS = ("delays.name=fixed", "rates.rate=1", "stop.horizon_s=2.5")  # 1 s: a mean lateness of 30 ms is kept


def diagnosed(launcher: Launcher, ended: Ended) -> Diagnosis:
    """The diagnosis that the run has stored, and printed last."""
    assert (ended.code, ended.errors) == (0, "")
    with launcher.recorded() as run:
        found = run.diagnosis
        assert found is not None
        assert found.updates == run.status.updates == found.clients["served"].sum()
    assert ended.output.endswith(f"  verdict          {found.advice}\n")
    return found


def test_a_slow_server_is_named_with_what_to_change(quadratic: Launcher) -> None:
    ended = quadratic.run(5, "clients.count=4", "stop.horizon_s=2", "record.events=false", defect=SLOW_SERVER)
    found = diagnosed(quadratic, ended)
    assert found.cause == Cause.SERVING  # 160 updates/s are asked for, 50 served
    assert "serving-bound: the results measure the server, not the delays" in ended.output
    assert "clock.stretch = " in found.advice
    assert "fewer clients" in found.advice
    assert found.advised_stretch >= 4
    assert found.server_load >= found.server_serving > 70
    assert found.updates < 0.6 * found.expected_updates
    assert sorted(found.short["client"]) == [0, 1, 2, 3]
    assert (np.diff(found.short["served"]) >= 0).all()  # the worst first
    assert found.quantile("reply_s", 50) > 0.02


def test_a_server_that_takes_long_to_look_for_messages_is_named(quadratic: Launcher) -> None:
    found = diagnosed(quadratic, quadratic.run(3, "stop.horizon_s=2", defect=SLOW_LOOKS))
    assert found.cause == Cause.POLLING  # 50 ms in delays of 25 ms
    assert "fewer clients or fewer worker ranks" in found.advice
    assert found.server_polling > 70 > 30 > found.server_serving
    assert found.excess_polling_s > found.excess_server_s


def test_clients_that_are_woken_late_are_named(quadratic: Launcher) -> None:
    found = diagnosed(quadratic, quadratic.run(3, *TIGHT_DELAYS, defect=LATE_WAKE_UPS))
    assert found.cause == Cause.MACHINE  # 40 ms in delays of 200 ms
    assert found.excess_machine_s > 0.03 * found.mean_drawn_s
    assert not found.overruns


def test_slow_computing_is_named_and_the_advised_stretch_helps(quadratic: Launcher) -> None:
    found = diagnosed(quadratic, quadratic.run(3, *TIGHT_DELAYS, defect=SLOW_COMPUTING))
    assert found.cause == Cause.COMPUTING  # 400 ms in delays of 200 ms
    assert found.overruns == found.updates
    assert found.expected_overruns == 0
    assert f"clock.stretch = {found.advised_stretch:g}" in found.advice
    assert 3 <= found.advised_stretch <= 8
    quadratic.run_file.unlink()
    stretched = diagnosed(
        quadratic, quadratic.run(3, *TIGHT_DELAYS, f"clock.stretch={found.advised_stretch}", defect=SLOW_COMPUTING)
    )
    assert stretched.cause == Cause.DELAYS
    assert stretched.overruns == 0
    assert stretched.stretch == found.advised_stretch


def test_a_plain_run_is_delay_bound_and_reports_its_cost(quadratic: Launcher) -> None:
    found = diagnosed(quadratic, quadratic.run(3, *WIDE_DELAYS))
    assert found.cause == Cause.DELAYS
    assert math.isnan(found.advised_stretch)
    assert not len(found.short)
    assert found.ranks == 3
    assert found.cores >= 1
    assert 10e6 < found.memory_bytes < 3e9
    assert 0 < found.start_up_s < 90
    assert 0 <= found.server_load <= 100
    assert not found.overruns
    assert found.busiest_rank in (1, 2)
    assert found.sampled == found.updates


def test_called_clients_have_no_rate_to_keep(quadratic: Launcher) -> None:
    overrides = ("method.name=s-fedavg", "method.clients_per_round=1", *WIDE_DELAYS)
    found = diagnosed(quadratic, quadratic.run(2, *overrides))  # both clients on one rank
    assert found.cause == Cause.DELAYS
    assert math.isnan(found.expected_updates)
    assert math.isnan(found.mean_reply_s)
    assert math.isnan(found.quantile("reply_s", 50))
