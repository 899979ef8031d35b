"""How runs on MPI end: promptly, with what is in flight counted, at iterations, a target or a divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from areabench.engine.events import Kind, State

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = pytest.mark.slow

HEEDLESS_CLIENTS = """
from areabench.transports.worker_loop import Worker

work, act = Worker.work, Worker._send_and_compute

def heedless(self):
    work(self)
    while self._due or self._pending:
        act(self)

Worker.work = heedless
"""


def test_a_run_does_not_wait_for_the_delays_that_its_horizon_cuts(quadratic: Launcher) -> None:
    ended = quadratic.completed(3, "delays.name=fixed", "rates.rate=0.01", "stop.horizon_s=0.5")
    assert ended.wall_s < 60  # start-up and all; the delays are 100 s
    with quadratic.recorded() as run:
        assert 0 < run.status.drain_s < 10  # a tenth of a second where the machine is not loaded
    with quadratic.recorded() as run:
        assert (run.status.state, run.status.updates, run.status.end_s) == (State.DONE, 0, 0.5)
        np.testing.assert_array_equal(run.models[0], run.models[-1])


def test_updates_in_flight_at_the_end_are_counted_as_discarded(quadratic: Launcher) -> None:
    settings = ("clients.count=4", "rates.rate=200", "stop.iterations=200", "stop.horizon_s=60")
    quadratic.completed(5, *settings, defect=HEEDLESS_CLIENTS)
    with quadratic.recorded() as run:
        events, status = run.events_array, run.status
        late = events[-4:]
        assert (status.state, status.reason, status.discarded) == (State.DONE, "200 iterations", 4)
        assert status.updates + status.server_steps == 200 == len(events) - 4
        assert (late["kind"] == Kind.DISCARDED).all()
        assert sorted(late["client"]) == list(range(4))
        assert (late["iteration"] == 200).all()
        assert (late["time_s"] >= status.end_s).all()
    assert quadratic.replay() == 0


def test_a_run_ends_after_exactly_the_iterations_asked_for(quadratic: Launcher) -> None:
    quadratic.completed(5, "clients.count=4", "rates.rate=500", "stop.iterations=101", "stop.horizon_s=60")
    with quadratic.recorded() as run:
        status = run.status
        assert (status.state, status.reason) == (State.DONE, "101 iterations")
        assert (status.updates, status.server_steps) == (81, 20)  # a step after each four updates
        assert status.end_s < 60
    assert quadratic.replay() == 0


def test_a_target_accuracy_ends_a_run(logistic: Launcher) -> None:
    settings = ("data.spread=0.2", "method.step_size=5", "stop.target_accuracy=60", "stop.horizon_s=60")
    logistic.completed(3, *settings)
    with logistic.recorded() as run:
        assert (run.status.state, run.status.reason[:13]) == (State.TARGET, "test accuracy")
        assert 0 < run.status.end_s < 60
        assert run.metrics_array["test_accuracy"].max() >= 60
    assert logistic.replay() == 0


def test_a_divergence_ends_a_run_with_exit_code_3(quadratic: Launcher) -> None:
    ended = quadratic.run(3, "method.step_size=10", "rates.rate=100", "stop.horizon_s=60")
    assert ended.code == 3
    assert "diverged (|x_s| = " in ended.output
    assert "Traceback" not in ended.errors
    assert "Warning" not in ended.errors
    with quadratic.recorded() as run:
        assert run.status.state == State.DIVERGED
        assert 0 < run.status.end_s < 60
    assert quadratic.replay() == 0
