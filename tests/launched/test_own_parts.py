"""Parts from a user's own file on real ranks: found by all of them, replayed, resumed; and what goes wrong in them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.launched.conftest import Launcher
from tests.launched.test_signals import Launched
from tests.support.own_parts import write

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.runfile.read import open_run

pytestmark = [pytest.mark.slow, pytest.mark.long]

OWN = Path(__file__).parents[2] / "analysis" / "own"
AREABENCH = [sys.executable, "-m", "areabench"]
LONG = "stop.horizon_s=600"  # so that a run that hangs or continues is noticed


@pytest.fixture
def mine(tmp_path: Path) -> Launcher:
    """A launcher whose experiment is in a folder that is on no path."""
    launcher = Launcher(tmp_path)
    launcher.experiment = tmp_path / "there" / "tiny.toml"
    return launcher


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a replay in this process imports is forgotten again."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("mine", None)


def module(launcher: Launcher) -> list[str]:
    """The option that vouches for the module."""
    return ["--trust-module", str(launcher.experiment.with_name("mine.py"))]


@pytest.mark.parametrize("ranks", [3, 5])
def test_the_example_in_real_time(ranks: int, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    words = ["-n", str(ranks), "--set", "stop.horizon_s=0.7", "-o", str(launcher.run_file)]
    ended = launcher.areabench("launch", str(OWN / "own.toml"), *words)
    assert (ended.code, ended.errors) == (0, "")
    with launcher.recorded() as run:
        assert run.status.state == State.DONE
        assert run.status.updates > 10
        assert run.provenance.ranks == ranks
        assert '"own_parts"' in run.provenance.modules
    assert main(["replay", str(launcher.run_file), "--trust-module", str(OWN / "own_parts.py")]) == 0


def stop(mine: Launcher) -> None:
    """Start a run and stop it by a signal."""
    run = Launched(mine)
    try:
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 4, run.output
    finally:
        run.end()


def test_a_run_is_stopped_and_continues(mine: Launcher) -> None:
    write(mine.experiment.parent, "method", memory="start", report="Report(work.local - memory, work.local)")
    mine.experiment.write_text(mine.experiment.read_text().replace("iterations = 20", "horizon_s = 3.0"))
    stop(mine)
    ended = mine.areabench("resume", str(mine.run_file))
    assert ended.code == 2
    assert "would import and call 'mine:make'" in ended.errors
    ended = mine.areabench("resume", str(mine.run_file), *module(mine))
    assert (ended.code, ended.errors) == (0, "")
    with mine.recorded() as recorded:
        assert recorded.status.state == State.DONE
    assert main(["replay", str(mine.run_file), *module(mine)]) == 0


def test_a_run_is_not_resumed_with_other_data(mine: Launcher) -> None:
    features = "np.load(__import__('pathlib').Path(__file__).with_name('rows.npy'))"
    write(mine.experiment.parent, "data", features=features)
    rows = np.arange(24, dtype=np.uint8).reshape(12, 2)
    np.save(mine.experiment.with_name("rows.npy"), rows)
    mine.experiment.write_text(mine.experiment.read_text().replace("iterations = 20", "horizon_s = 60.0"))
    stop(mine)
    np.save(mine.experiment.with_name("rows.npy"), rows[::-1])
    ended = mine.areabench("resume", str(mine.run_file), *module(mine))
    assert ended.code == 2
    assert ended.errors.count("the data have changed since this run: their SHA-256 was ") == 1


COUNTED = {"fields": "steps: int = 0"}
ERRORS: list[tuple[str, dict[str, str], str, str]] = [
    (
        "problem",
        {"descend": "self.n = getattr(self, 'n', 0) + 1; 1 / (self.n - 9)"},
        'mine.py", line ',
        "ZeroDivisionError: ",
    ),
    (
        "method",
        {
            **COUNTED,
            "aggregate": "1 / (state.steps - 3)",
            "after": "State(state.model + gain * state.buffer.mean(), steps=state.steps + 1)",
        },
        'mine.py", line 21, in aggregate',
        "ZeroDivisionError: division by zero (at mine.py, line 21)",
    ),
    (
        "method",
        {**COUNTED, "after": "State(state.model, steps=state.steps + 1), ((-1,) if state.steps == 3 else ())"},
        'method "mine:make" calls client -1, which does not exist; name clients from 0 to 1',
        "calls client -1, which does not exist",
    ),
    (
        "method",
        {
            "memory": "np.zeros_like(start)",
            "report": "Report((work.local - work.model)[: 1 if memory[0] == 2 else 2], memory + 1)",
        },
        "method.name = 'mine:make' report gave a payload that has the shape (1,), not (2,)",
        "report gave a payload",
    ),
]


@pytest.mark.parametrize(("section", "changes", "said", "reason"), ERRORS, ids=["client", "server", "call", "report"])
def test_an_error_ends_all_ranks(section: str, changes: dict[str, str], said: str, reason: str, mine: Launcher) -> None:
    write(mine.experiment.parent, section, **changes)
    ended = mine.run(3, LONG, "stop.iterations=100000")
    assert ended.code == 1
    assert ended.errors.count(said) == 1
    assert ended.errors.count("ZeroDivisionError: ") == ("ZeroDivisionError" in reason)
    with mine.recorded() as run:
        assert run.status.state == State.FAILED
        assert reason in run.status.reason
        assert run.status.server_steps == 3 or "fields" not in changes
    assert main(["replay", str(mine.run_file), *module(mine)]) == 0


def test_a_bad_setting_is_reported_once(mine: Launcher) -> None:
    write(mine.experiment.parent, "method", "{gian = 2}")
    ended = mine.run(3)
    assert ended.code == 2
    assert ended.errors.count("method.settings.gian: unknown setting of mine:make 'gian'") == 1
    assert not mine.run_file.exists()


def test_a_sweep_in_real_time(mine: Launcher) -> None:
    write(mine.experiment.parent, "delays", delay="0.02 + generator.standard_exponential() / rate")
    words = ["--transport", "mpi", "-n", "2", "-o", str(mine.folder / "sweep")]
    ended = mine.areabench("sweep", str(mine.experiment), *words)
    assert (ended.code, ended.errors) == (0, "")
    (path,) = (mine.folder / "sweep").glob("*.h5")
    with open_run(path) as run:
        assert (run.status.state, run.provenance.transport) == (State.DONE, "mpi")
    assert main(["replay", str(path), *module(mine)]) == 0
