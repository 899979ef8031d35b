"""Signals and deaths under `areabench launch`: how it ends, what the file says, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import areabench
from areabench.engine.events import State
from areabench.host import Process, is_alive, start_ticks, this_machine
from areabench.launching.families import Family, mpi4py_family
from areabench.launching.mpirun import find_launcher

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

LIMIT_S = 60.0
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK=", "PMI_RANK=")


class Launched:
    """A running `areabench launch`, with all processes below it."""

    def __init__(self, launcher: Launcher, *words: str) -> None:
        self._launcher = launcher
        options = ["--output", str(launcher.run_file), "--checkpoint-every", "0.2", *words]
        command = [sys.executable, "-m", "areabench", "launch", str(launcher.experiment), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=launcher._environment(),
            cwd=launcher.folder, start_new_session=True,
        )  # fmt: skip
        wait_until(Path(f"{launcher.run_file}.checkpoint").exists)  # the run has begun
        self.below = list(below(self.process.pid))

    def rank(self, number: int) -> int:
        """The process of a rank."""
        return next(pid for pid in (each.pid for each in self.below) if rank_of(pid) == number)

    def ended(self) -> int:
        """The exit code, when nothing is left."""
        self.output = self.process.communicate(timeout=LIMIT_S)[0]
        wait_until(lambda: not any(map(is_alive, self.below)))
        return self.process.returncode

    def end(self) -> None:
        """Leave nothing behind where a test has failed."""
        for each in self.below:
            if is_alive(each):
                os.kill(each.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.02)


def below(pid: int) -> Iterator[Process]:
    """All processes that a process has started, and those that they have."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        yield Process(this_machine(), child, start_ticks(child) or 0)
        yield from below(child)


def rank_of(pid: int) -> int | None:
    """Which rank a process is; None where it is none."""
    if b"areabench" not in Path(f"/proc/{pid}/cmdline").read_bytes() or not is_python(pid):
        return None
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    found = [word.partition("=")[2] for word in words if word.startswith(RANK_VARIABLES)]
    return int(found[0]) if found else None


def is_python(pid: int) -> bool:
    """Whether a process is a Python and not a launcher."""
    return b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]


@pytest.fixture
def launched(quadratic: Launcher) -> Iterator[Callable[..., Launched]]:
    """Launches the experiment."""
    made: list[Launched] = []

    def launch(*words: str) -> Launched:
        made.append(Launched(quadratic, *words))
        return made[-1]

    yield launch
    for each in made:
        each.end()


LONG = ("--set", "stop.horizon_s=600")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGINT, 130)])
def test_a_signal_stops_the_run_and_it_can_continue(
    quadratic: Launcher, launched: Callable[..., Launched], number: signal.Signals, code: int
) -> None:
    run = launched("--set", "stop.horizon_s=3")
    run.process.send_signal(number)
    assert run.ended() == code, run.output
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.STOPPED
        before = recorded.status.updates
    told = quadratic.folder / "resumed.jsonl"
    with areabench.resume(quadratic.run_file, observers=[f"jsonl={told}"]) as recorded:
        assert recorded.status.state == State.DONE
        assert recorded.status.updates > before
        events, snapshots = len(recorded.events_array), len(recorded.snapshot_index)
    what = Counter(json.loads(line)["what"] for line in told.read_text().splitlines())
    assert 0 < what.pop("event") < events
    assert what == {"snapshot": snapshots, "end": 1}
    assert quadratic.replay() == 0


def test_a_client_that_is_killed(quadratic: Launcher, launched: Callable[..., Launched]) -> None:
    if not find_launcher(mpi4py_family()).survives:
        pytest.skip("this MPI cannot continue without a rank")
    run = launched("--set", "stop.horizon_s=2")
    os.kill(run.rank(2), signal.SIGKILL)
    assert run.ended() == 0, run.output
    with quadratic.recorded() as recorded:
        assert (recorded.status.state, recorded.status.lost) == (State.DONE, 1)
    assert quadratic.replay() == 0


def test_a_client_that_is_silent_stops_no_checkpoint(quadratic: Launcher, launched: Callable[..., Launched]) -> None:
    """It is lost when the run is resumed from there."""
    run = launched("--set", "stop.horizon_s=18")
    os.kill(run.rank(2), signal.SIGSTOP)
    written, end_s = Path(f"{quadratic.run_file}.checkpoint"), time.time() + 5.0
    wait_until(lambda: written.stat().st_mtime > end_s)
    first = written.stat().st_mtime_ns
    wait_until(lambda: written.stat().st_mtime_ns > first)  # what is said about the first one has been said by then
    for process in [run.rank(0), run.rank(2)]:  # both are found before the first one dies
        os.kill(process, signal.SIGKILL)
    assert run.ended() == 1
    assert "no answer from client 1 for 10 s: a checkpoint is written" in run.output
    with areabench.resume(quadratic.run_file) as recorded:
        assert (recorded.status.state, recorded.status.lost) == (State.DONE, 1)
    assert quadratic.replay() == 0


def test_a_client_that_is_killed_without_fault_tolerance(
    quadratic: Launcher, launched: Callable[..., Launched]
) -> None:
    run = launched(*LONG, "--fault-tolerant", "off")
    os.kill(run.rank(2), signal.SIGKILL)
    assert run.ended() != 0
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.FAILED
        if mpi4py_family() != Family.MPICH or "without a status" not in recorded.status.reason:  # Hydra may kill all
            assert recorded.status.reason == "client 1 lost", run.output
    assert quadratic.replay() == 0


@pytest.mark.parametrize("tolerance", ["auto", "off"])
def test_a_server_that_is_killed(quadratic: Launcher, launched: Callable[..., Launched], tolerance: str) -> None:
    run = launched("--set", "stop.horizon_s=3", "--fault-tolerant", tolerance)
    os.kill(run.rank(0), signal.SIGKILL)
    assert run.ended() != 0, run.output
    with quadratic.recorded() as recorded:
        assert recorded.status.state == State.FAILED
        assert recorded.status.reason.startswith("the server ended without a status, mpirun returned ")
    resumed = [sys.executable, "-m", "areabench", "resume", str(quadratic.run_file)]
    assert quadratic.start([*resumed, "--fault-tolerant", tolerance]).code == 0


def test_no_rank_outlives_a_launch_that_is_killed(launched: Callable[..., Launched]) -> None:
    run = launched(*LONG)
    run.process.kill()
    assert run.ended() == -signal.SIGKILL
