"""Sweeps on MPI: one run after the other in real time, resumed and listed like those of the simulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from areabench.cli import main
from areabench.reading import open_run
from areabench.sweeps.reading import load_sweep, open_sweep

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

SWEEP = [sys.executable, "-m", "areabench", "sweep", "try.toml"]
GRID = """
[[sweep.grid]]
clients.count = [2, 2000]
method.step_size = [0.01, 0.02]
"""


@pytest.fixture
def sweep_file(quadratic: Launcher, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep in the current folder: two clients, 0.3 s; and two thousand, which are too many."""
    monkeypatch.chdir(quadratic.folder)
    path = Path("try.toml")
    path.write_text(quadratic.experiment.read_text().replace("horizon_s = 0.7", "horizon_s = 0.3") + GRID)
    return path


def ranks(sweep: int) -> list[Path]:
    """The processes that work for the file that a sweep writes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended meanwhile
            if f".{sweep}.part".encode() in (process / "cmdline").read_bytes():
                found.append(process)
    return found


@pytest.mark.slow
def test_a_sweep_in_real_time(sweep_file: Path, quadratic: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    ended = quadratic.start([*SWEEP, "--transport", "mpi"])
    assert (ended.code, ended.errors) == (1, "")
    summary, *failures, cost = ended.output.splitlines()
    assert summary == "runs/try-mpi: 4 runs: 2 done now, 0 done before, 0 of them diverged, 2 failed"
    assert cost.startswith("2 runs in ")
    assert len(failures) == 2
    assert all("2,001 ranks on one machine are more than 1,024" in line for line in failures)
    sweep = open_sweep("runs/try-mpi")
    assert sweep.transport == "mpi"
    assert [result.experiment for result in sweep.results] == [
        member.experiment for member in load_sweep(sweep_file).members[:2]
    ]
    for result in sweep.results:
        with open_run(result.path) as run:
            assert (run.provenance.transport, run.provenance.ranks) == ("mpi", 3)
            assert run.status.updates > 0
    assert sorted(path.suffix for path in Path("runs/try-mpi").iterdir()) == ["", ".csv", ".h5", ".h5", ".toml"]
    assert main(["sweep", str(sweep_file), "--transport", "mpi"]) == 1
    assert "0 done now, 2 done before" in capsys.readouterr().out
    assert main(["sweep", str(sweep_file), "-o", "runs/try-mpi"]) == 2
    assert "holds a sweep of the transport mpi, this one is of simulator" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_tells_why(sweep_file: Path, quadratic: Launcher) -> None:
    wrong = ["--set", "problem={name='logistic'}", "--set", "data={name='synthetic',train_samples=1}"]
    sweep_file.write_text(sweep_file.read_text().replace("[2, 2000]", "[2]").replace("[0.01, 0.02]", "[0.01]"))
    ended = quadratic.start([*SWEEP, "--transport", "mpi", *wrong])
    assert (ended.code, ended.errors) == (1, "")
    _, failure = ended.output.splitlines()
    assert ".h5: exit code 2: " in failure
    assert "2 clients" in failure


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
def test_an_interrupt_ends_the_ranks_and_leaves_results(finished: bool, sweep_file: Path, quadratic: Launcher) -> None:
    command = [*SWEEP, "--transport", "mpi", "--set", "stop.horizon_s=300"]
    before: dict[str, bytes] = {}
    if finished:  # something stands where the sweep writes, and it is asked to run that again
        command.append("--force")
        before = {member.file: b"finished" for member in load_sweep(sweep_file, ["stop.horizon_s=300"]).members}
        Path("runs/try-mpi").mkdir(parents=True)
        for name, content in before.items():
            (Path("runs/try-mpi") / name).write_bytes(content)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quadratic._environment()
    )
    limit_s = time.monotonic() + 60
    while not list(Path("runs/try-mpi").glob("*.h5.*.part")):
        assert process.poll() is None
        assert time.monotonic() < limit_s
        time.sleep(0.05)
    assert len(ranks(process.pid)) >= 3
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert errors.startswith("areabench: interrupted: 0 of 4 runs are done; ")
    assert not list(Path("runs/try-mpi").glob("*.part"))
    assert not ranks(process.pid)
    assert {path.name: path.read_bytes() for path in Path("runs/try-mpi").glob("*.h5")} == before
