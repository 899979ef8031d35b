"""Contacts and cancels on real ranks: four clients on two worker ranks look for messages between local steps."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tests.launched.conftest import Launcher
from tests.launched.test_signals import Launched
from tests.support import stopper as stopper_module

from areabench.cli.main import main
from areabench.engine.events import Kind, State
from areabench.runfile.read import Run

pytestmark = pytest.mark.slow

RANKS = 3
AREABENCH = [sys.executable, "-m", "areabench"]
EXPERIMENT = """
seed = 3
[problem]
name = "quadratic"
dimension = 6
noise = 0.1
[clients]
count = 4
local_steps = 5
[rates]
name = "list"
values = [60.0, 40.0, 20.0, 8.0]
[delays]
name = "exponential"
per = "step"
[stop]
horizon_s = {horizon_s}
[method]
step_size = 0.02
"""
METHODS = {
    "quafl": 'name = "quafl"\nclients_per_round = 2\nperiod_s = 0.05\n',
    "favas": 'name = "favas"\nclients_per_round = 2\nperiod_s = 0.05\n',
    "stopper": 'name = "cancelling:stopper"\nsettings = { age = 4 }\n',
}


@pytest.fixture(params=list(METHODS))
def interrupting(request: pytest.FixtureRequest, quadratic: Launcher, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a method that interrupts clients; its experiment is written with a horizon of 1 s."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copy(stopper_module.__file__, quadratic.folder / "cancelling.py")
    write(quadratic, request.param, 1.0)
    yield request.param
    sys.modules.pop("cancelling", None)


def write(launcher: Launcher, name: str, horizon_s: float) -> None:
    """Write the experiment."""
    launcher.experiment.write_text(EXPERIMENT.format(horizon_s=horizon_s) + METHODS[name])


def trusted(launcher: Launcher, name: str) -> list[str]:
    """The option that vouches for the method's module."""
    return ["--trust-module", str(launcher.folder / "cancelling.py")] if name == "stopper" else []


def check(run: Run, name: str) -> None:
    """The run ended, and its clients were interrupted."""
    rows = run.events_array
    updates = rows[rows["kind"] == Kind.UPDATE]
    assert run.status.state == State.DONE
    assert run.provenance.ranks == RANKS
    cancelled = rows[rows["kind"] == Kind.CANCELLED]
    if name == "stopper":
        assert 3 in cancelled["client"]  # the slowest
        assert (updates["local_steps"] == 5).all()
        assert updates["staleness"].max() < 4
        return
    assert set(updates["client"].tolist()) == {0, 1, 2, 3}
    assert len(cancelled) == 0
    assert len(np.unique(updates["local_steps"])) > 1
    assert 0.6 * run.status.updates <= 2 * run.status.server_steps <= run.status.updates


def test_a_run_ends_and_replays(quadratic: Launcher, interrupting: str) -> None:
    quadratic.completed(RANKS)
    with quadratic.recorded() as run:
        check(run, interrupting)
    assert main(["replay", str(quadratic.run_file), *trusted(quadratic, interrupting)]) == 0


def test_a_run_is_stopped_and_continues(quadratic: Launcher, interrupting: str) -> None:
    write(quadratic, interrupting, 3.0)
    launched = Launched(quadratic, "-n", str(RANKS))
    try:
        launched.process.send_signal(signal.SIGTERM)
        assert launched.ended() == 4, launched.output
    finally:
        launched.end()
    with quadratic.recorded() as run:
        assert run.status.state == State.STOPPED
        before = run.status.updates
    ended = quadratic.areabench("resume", str(quadratic.run_file), "-n", str(RANKS), *trusted(quadratic, interrupting))
    assert (ended.code, ended.errors) == (0, "")
    with quadratic.recorded() as run:
        check(run, interrupting)
        assert run.status.updates > before + 4
        assert run.status.end_s == 3.0
    assert main(["replay", str(quadratic.run_file), *trusted(quadratic, interrupting)]) == 0
