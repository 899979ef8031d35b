"""The exit code of a launch, and the status of a run whose server could not set it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.edited import edited, set_state
from tests.support.runs import simulated
from tests.support.texts import quadratic

from areabench.engine.events import State
from areabench.launching.run import code_of_launch, file_stamp
from areabench.launching.watch import LauncherExit
from areabench.runfile.lock import lock
from areabench.runfile.read import open_run
from areabench.runfile.record import mark_killed_run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A run file of a run that is done."""
    return simulated(tmp_path_factory.mktemp("run") / "a.h5", quadratic("horizon_s = 0.5")).read_bytes()


def left(folder: Path, content: bytes, state: State) -> Path:
    """A run file that is in some state."""
    path = folder / "run.h5"
    path.write_bytes(content)
    set_state(path, state)
    return path


@pytest.mark.parametrize(
    ("state", "ending", "expected"),
    [
        (State.DONE, LauncherExit(0), 0),
        (State.DONE, LauncherExit(-9), 0),
        (State.DONE, LauncherExit(143, signal.SIGTERM), 0),
        (State.DONE, LauncherExit(1), 1),  # something went wrong after the run
        (State.TARGET, LauncherExit(0), 0),
        (State.DIVERGED, LauncherExit(3), 3),
        (State.DIVERGED, LauncherExit(0), 3),
        (State.STOPPED, LauncherExit(4), 4),
        (State.STOPPED, LauncherExit(143), 4),  # mpirun was told to end the ranks when all was written
        (State.STOPPED, LauncherExit(-9, signal.SIGTERM), 4),
        (State.STOPPED, LauncherExit(-9, signal.SIGINT), 130),
        (State.FAILED, LauncherExit(1), 1),
        (State.FAILED, LauncherExit(0), 1),  # a fault-tolerant mpirun does not mind ranks that were killed
        (State.FAILED, LauncherExit(-9), 1),
    ],
)
def test_the_run_file_knows_better_than_mpirun(
    state: State, ending: LauncherExit, expected: int, done: bytes, tmp_path: Path
) -> None:
    assert code_of_launch(left(tmp_path, done, state), None, ending, trusted=False) == expected


@pytest.mark.parametrize("state", [State.DONE, State.TARGET, State.DIVERGED])
@pytest.mark.parametrize("code", [0, 5])
def test_a_run_that_was_not_evaluated_has_a_code_of_its_own(
    code: int, state: State, tmp_path: Path, done: bytes
) -> None:
    path = left(tmp_path, done, state)
    with edited(path) as file:
        file["metrics"].resize(0, axis=0)
    assert code_of_launch(path, None, LauncherExit(code), trusted=False) == 5
    with open_run(path) as run:
        assert run.status.reason == "so it was"


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (LauncherExit(137), "the server ended without a status, mpirun returned 137 (a rank was killed)"),
        (LauncherExit(0), "the server ended without a status, mpirun returned 0"),
        (LauncherExit(1, signal.SIGTERM), "SIGTERM came, and the run was ended before it could stop"),
        (LauncherExit(-9), "mpirun was killed by SIGKILL, and the ranks that it left were ended"),
        (LauncherExit(0, reason="rank 2 died before the run began"), "rank 2 died before the run began"),
    ],
)
def test_a_run_that_was_killed_is_marked_as_failed(
    ending: LauncherExit, reason: str, done: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = left(tmp_path, done, State.RUNNING)
    assert code_of_launch(path, None, ending, trusted=True) == 1
    assert capsys.readouterr().err == f"areabench: {path}: failed: {reason}\n"
    with open_run(path) as run:
        assert (run.status.state, run.status.reason) == (State.FAILED, reason)
        assert run.status.updates + run.status.server_steps == len(run.events_array)


def test_a_file_of_an_earlier_run_is_left_alone(done: bytes, tmp_path: Path) -> None:
    path = left(tmp_path, done, State.RUNNING)
    assert code_of_launch(path, file_stamp(path), LauncherExit(2), trusted=True) == 2
    with open_run(path) as run:
        assert run.status.state == State.RUNNING


@pytest.mark.parametrize("code", [2, 0])
def test_a_file_that_another_run_writes_is_left_alone(
    code: int, done: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = left(tmp_path, done, State.RUNNING)
    descriptor = lock(path)
    try:
        assert code_of_launch(path, None, LauncherExit(code), trusted=False) == (code or 1)
    finally:
        os.close(descriptor)
    assert capsys.readouterr().err == ""
    with open_run(path) as run:
        assert run.status.state == State.RUNNING


def test_a_run_that_ends_before_it_is_marked_keeps_its_status(done: bytes, tmp_path: Path) -> None:
    path = left(tmp_path, done, State.DONE)
    assert not mark_killed_run(path, "killed")
    with open_run(path) as run:
        assert (run.status.state, run.status.reason) == (State.DONE, "so it was")


@pytest.mark.parametrize(
    ("ending", "trusted", "expected", "line"),
    [
        (LauncherExit(0), True, 0, ""),
        (LauncherExit(0), False, 1, ""),
        (LauncherExit(2), True, 2, ""),
        (LauncherExit(0, signal.SIGINT), False, 130, "SIGINT came before the run began; nothing was recorded"),
        (LauncherExit(-15, signal.SIGTERM), False, 4, "SIGTERM came before the run began; nothing was recorded"),
        (LauncherExit(138, signal.SIGUSR1), False, 4, "SIGUSR1 came before the run began; nothing was recorded"),
        (LauncherExit(0, reason="rank 1 died"), False, 1, "rank 1 died"),
        (LauncherExit(-9), False, 1, "mpirun was killed by SIGKILL"),
        (LauncherExit(9), True, 1, "the ranks ended before the run began: mpirun returned 9 (a rank was killed)"),
    ],
)
def test_no_run_file_at_all(
    ending: LauncherExit, trusted: bool, expected: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of_launch(tmp_path / "run.h5", None, ending, trusted=trusted) == expected
    errors = capsys.readouterr().err
    assert errors.startswith(f"areabench: {line}") if line else not errors


def test_a_run_file_that_cannot_be_read_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.h5"
    path.write_bytes(b"no run file")
    assert code_of_launch(path, None, LauncherExit(137), trusted=True) == 1
    assert str(path) in capsys.readouterr().err
