"""Deaths and signals while `areabench launch` starts its ranks, and launches that meet at one run file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil
import pytest

from areabench.engine.events import State
from areabench.launching.families import Family, mpi4py_family
from areabench.launching.mpirun import FaultTolerance, find_launcher, mpirun_command
from areabench.launching.watch import RANK_VARIABLES

if TYPE_CHECKING:
    from tests.launched.conftest import Ended, Launcher
    from tests.launched.test_signals import Launched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

# Python loads this first, so that a rank does something before it is areabench, or when it has started MPI.
FIRST = """
import os, time
rank = next((os.environ[name] for name in {variables} if name in os.environ), "")
if rank == "{rank}" and {early}:
    {action}
elif rank == "{rank}":
    import areabench.host
    known = areabench.host.this_process
    def this_process():
        {action}
        return known()
    areabench.host.this_process = this_process  # which the first meeting of all ranks asks for
"""
DIE, LEAVE, SLEEP = "os.kill(os.getpid(), 9)", "os._exit(0)", "time.sleep(60)"


def first(launcher: Launcher, rank: int, action: str, *, early: bool = True) -> None:
    """Have a rank do something before MPI starts, or between that and the first meeting."""
    text = FIRST.format(variables=RANK_VARIABLES, rank=rank, early=early, action=action)
    (launcher.folder / "sitecustomize.py").write_text(text)


def launch(launcher: Launcher, *words: str) -> Ended:
    command = [sys.executable, "-m", "areabench", "launch", str(launcher.experiment), "-o", str(launcher.run_file)]
    return launcher.start([*command, *words])


@pytest.mark.parametrize(
    ("rank", "action", "early"), [(1, DIE, True), (0, DIE, True), (2, LEAVE, True), (2, LEAVE, False)]
)
def test_a_rank_that_dies_while_mpi_starts_is_named(quadratic: Launcher, rank: int, action: str, early: bool) -> None:
    first(quadratic, rank, action, early=early)
    ended = launch(quadratic)
    assert ended.code == 1
    if mpi4py_family() != Family.MPICH or action == LEAVE:  # Hydra kills all at once
        named = (
            f"areabench: rank {rank} ",
            f"ranks [{rank}] were lost",
        )  # by the launcher, or by ranks that were sooner
        assert any(words in ended.errors for words in named)
    assert "before the run began" in ended.errors
    assert "Traceback" not in ended.errors
    assert not quadratic.run_file.exists()


def test_ranks_of_a_plain_mpirun_end_at_their_limit(quadratic: Launcher) -> None:
    first(quadratic, 1, LEAVE)
    with (quadratic.folder / "sitecustomize.py").open("a") as file:
        file.write("import areabench.launching.steps\nareabench.launching.steps.START_LIMIT_S = 2\n")
    tolerance = FaultTolerance.AUTO if find_launcher(mpi4py_family()).survives else None
    command = mpirun_command(3, ["run", str(quadratic.experiment), "-o", str(quadratic.run_file)], tolerance)
    ended = quadratic.start(command)
    assert "areabench: rank 0 of 3 has waited in MPI_Init for 2 s, the limit, and ends" in ended.errors
    assert not quadratic.run_file.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGUSR1, 4), (signal.SIGINT, 130)])
def test_a_signal_while_mpi_starts(quadratic: Launcher, number: signal.Signals, code: int) -> None:
    first(quadratic, 2, f"open({str(quadratic.folder / 'up')!r}, 'w'); {SLEEP}")
    command = [sys.executable, "-m", "areabench", "launch", str(quadratic.experiment), "-o", str(quadratic.run_file)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=quadratic._environment(),
        cwd=quadratic.folder,
    )  # fmt: skip
    try:
        while not (quadratic.folder / "up").exists():
            assert process.poll() is None
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == code
    assert f"areabench: {number.name} came before the run began; nothing was recorded: start it again\n" in errors


@pytest.fixture
def under_way(quadratic: Launcher) -> Iterator[Launched]:
    """A launch whose run is under way."""
    from tests.launched.test_signals import Launched

    made = Launched(quadratic, "--set", "stop.horizon_s=60")
    yield made
    made.end()


def test_an_mpirun_that_is_killed(quadratic: Launcher, under_way: Launched) -> None:
    (mpirun,) = psutil.Process(under_way.process.pid).children()
    mpirun.kill()
    assert under_way.ended() == 1
    reason = "mpirun was killed by SIGKILL, and the ranks that it left were ended"
    assert under_way.output == f"areabench: {quadratic.run_file}: failed: {reason}\n"
    with quadratic.recorded() as recorded:
        assert (recorded.status.state, recorded.status.reason) == (State.FAILED, reason)


def test_a_second_launch_does_not_disturb_the_first(quadratic: Launcher, under_way: Launched) -> None:
    ended = launch(quadratic, "--force")
    assert ended.code == 2
    assert ended.errors.startswith(f"areabench: {quadratic.run_file}: is being written by another run (PID ")
    assert ended.errors.count("\n") == 1
    assert under_way.process.poll() is None
    os.kill(under_way.process.pid, signal.SIGTERM)
    assert under_way.ended() == 4
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.STOPPED
