"""Sweeps on MPI: one run after the other in one launch, resumed and listed like those of the simulator."""

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

from areabench.cli.main import main
from areabench.launching.mpirun import mpirun_command
from areabench.runfile.read import open_run
from areabench.sweeps.plan import load_sweep
from areabench.sweeps.read import open_sweep

if TYPE_CHECKING:
    from tests.launched.conftest import Launcher

SWEEP = [sys.executable, "-m", "areabench", "sweep", "try.toml"]
GRID = """
[[sweep.grid]]
clients.count = [2, 3]
method.step_size = [0.01, 0.02]
"""


@pytest.fixture
def sweep_file(quadratic: Launcher, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep in the current folder: two clients and three, two step sizes, 0.3 s."""
    monkeypatch.chdir(quadratic.folder)
    path = Path("try.toml")
    path.write_text(quadratic.experiment.read_text().replace("horizon_s = 0.7", "horizon_s = 0.3") + GRID)
    return path


def ranks(sweep: int) -> list[Path]:
    """The processes that work for the file that a sweep writes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended since
            if f".{sweep}.part".encode() in (process / "cmdline").read_bytes():
                found.append(process)
    return found


@pytest.mark.slow
def test_a_sweep_in_real_time(sweep_file: Path, quadratic: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    ended = quadratic.start([*SWEEP, "--transport", "mpi"])
    assert (ended.code, ended.errors) == (0, "")
    summary, verdicts, cost = ended.output.splitlines()
    assert "bound" in verdicts or "wake-ups" in verdicts
    assert summary == "runs/try-mpi: 4 runs: 4 done now, 0 done before, 0 of them diverged, 0 failed"
    assert cost.startswith("4 runs in ")
    check_results(sweep_file)
    assert main(["sweep", str(sweep_file), "--transport", "mpi"]) == 0
    assert "0 done now, 4 done before" in capsys.readouterr().out
    assert main(["sweep", str(sweep_file), "-o", "runs/try-mpi"]) == 2
    assert "holds a sweep of the transport mpi, this one is of simulator" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("on_ranks", [False, True])
def test_a_tuned_sweep_in_real_time(on_ranks: bool, sweep_file: Path, quadratic: Launcher) -> None:
    text = sweep_file.read_text().replace(GRID, "[sweep]\ntrials = 2\n")
    sweep_file.write_text(
        f'{text}[tune]\nbudget = 2\ntrials = 1\nmetric = "loss"\n[tune.keys]\nmethod.step_size = [0.01, 0.02]\n'
    )
    arguments = ["sweep", str(sweep_file), "--transport", "mpi"]
    ended = quadratic.start(mpirun_command(3, [*arguments, "--on-ranks"]) if on_ranks else [*SWEEP, *arguments[2:]])
    assert (ended.code, ended.errors) == (0, "")
    tuning, test, verdicts, _cost = ended.output.splitlines()
    assert tuning.startswith("runs/try-mpi, tuning: 2 runs: 2 done now")
    assert test.startswith("runs/try-mpi, test: 2 runs: 2 done now")
    assert verdicts.strip().startswith("4 ") or "," in verdicts
    sweep = open_sweep("runs/try-mpi")
    assert sweep.tuning is not None
    assert [one.experiment.seed for one in sweep.tuning.results] == [2, 2]
    assert [one.experiment.seed for one in sweep.results] == [0, 1]


@pytest.mark.slow
def test_a_sweep_on_the_ranks_of_a_launch(sweep_file: Path, quadratic: Launcher) -> None:
    ended = quadratic.start(mpirun_command(4, ["sweep", str(sweep_file), "--transport", "mpi", "--on-ranks"]))
    assert (ended.code, ended.errors) == (0, "")
    assert ended.output.splitlines()[0].startswith("runs/try-mpi: 4 runs: 4 done now, ")
    check_results(sweep_file)


def check_results(sweep_file: Path) -> None:
    """All four runs are there, on as many ranks as they can use, and no other file."""
    sweep = open_sweep("runs/try-mpi")
    assert sweep.transport == "mpi"
    assert [result.experiment for result in sweep.results] == [
        member.experiment for member in load_sweep(sweep_file).members
    ]
    for result in sweep.results:
        with open_run(result.path) as run:
            count = run.experiment.clients.count
            assert (run.provenance.transport, run.provenance.ranks) == ("mpi", count + 1)
            assert run.status.updates > 0
            assert "sweep" in run.provenance.command
        assert main(["replay", str(result.path)]) == 0
    assert sorted(path.suffix for path in Path("runs/try-mpi").iterdir()) == ["", ".csv", *[".h5"] * 4, ".toml"]


@pytest.mark.slow
@pytest.mark.parametrize("on_ranks", [False, True])
def test_a_run_that_fails_gives_its_reason_and_the_next_one_runs(
    on_ranks: bool, sweep_file: Path, quadratic: Launcher
) -> None:
    """Three clients cannot share two samples."""
    data = ["--set", "problem={name='logistic'}", "--set", "data={name='synthetic',train_samples=2}"]
    arguments = ["sweep", str(sweep_file), "--transport", "mpi", *data]
    sweep_file.write_text(sweep_file.read_text().replace("[2, 3]", "[3, 2]"))
    ended = quadratic.start(mpirun_command(4, [*arguments, "--on-ranks"]) if on_ranks else [*SWEEP, *arguments[2:]])
    assert ended.code == 1
    assert "Traceback" not in ended.errors
    summary, *failures, _verdicts, _cost = ended.output.splitlines()
    assert summary.endswith("4 runs: 2 done now, 0 done before, 0 of them diverged, 2 failed")
    assert len(failures) == 2
    assert all("3 clients" in failure for failure in failures)


@pytest.mark.slow
def test_a_rank_that_dies_fails_its_run_and_the_others_run_in_another_launch(
    sweep_file: Path, quadratic: Launcher
) -> None:
    defect = """
import os

from areabench.problems.quadratic import LocalQuadratic

descend = LocalQuadratic.descend

def die(self, model, step_size, *given, **named):
    if rank == 2 and step_size == 0.02:
        os._exit(9)
    return descend(self, model, step_size, *given, **named)

LocalQuadratic.descend = die
"""
    quadratic.write_defect(defect)
    patch = "import areabench.launching.mpirun as l, sys; f = l.mpirun_command\n"
    patch += "import areabench.sweeps.mpi as m\n"
    patch += "m.mpirun_command = lambda *a: ['broken' if w == 'areabench' else w for w in f(*a)]\n"
    patch += "from areabench.cli import main as cli; sys.exit(cli.main(sys.argv[1:]))"
    ended = quadratic.start([sys.executable, "-c", patch, "sweep", "try.toml", "--transport", "mpi"])
    assert (ended.code, ended.errors) == (1, "")
    summary, *failures, _verdicts, _cost = ended.output.splitlines()
    assert summary.endswith("4 runs: 2 done now, 0 done before, 0 of them diverged, 2 failed")
    assert len(failures) == 2
    assert all("the launch broke down: " in failure for failure in failures)
    assert not list(Path("runs/try-mpi").glob("*.part"))


def test_too_many_ranks_are_reported_before_anything_is_started(
    sweep_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_file.write_text(sweep_file.read_text().replace("[2, 3]", "[2, 2000]"))
    assert main(["sweep", str(sweep_file), "--transport", "mpi"]) == 2
    assert "share them out with --ranks" in capsys.readouterr().err


def test_options_of_mpi_are_refused_in_virtual_time(sweep_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(sweep_file), "--ranks", "3"]) == 2
    assert "add --transport mpi" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
def test_an_interrupt_ends_the_ranks_and_leaves_results(finished: bool, sweep_file: Path, quadratic: Launcher) -> None:
    command = [*SWEEP, "--transport", "mpi", "--set", "stop.horizon_s=300"]
    before: dict[str, bytes] = {}
    if finished:  # a folder is where the sweep writes, and the run is to be repeated
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


@pytest.mark.slow
def test_ranks_that_no_longer_listen_end_a_sweep_on_the_ranks_of_a_launch(
    sweep_file: Path, quadratic: Launcher
) -> None:
    """All are ended, instead of waiting for each other forever."""
    quadratic.write_defect("""
import time

from areabench.problems.quadratic import LocalQuadratic
from areabench.transports import server_loop as serve

serve._STOP_LIMIT_S = 0.5

def sleep(self, *given, **named):
    time.sleep(1000)

if rank == 2:
    LocalQuadratic.descend = sleep
""")
    arguments = ["sweep", str(sweep_file), "--transport", "mpi", "--on-ranks"]
    command = ["broken" if word == "areabench" else word for word in mpirun_command(3, arguments)]
    ended = quadratic.start(command)
    assert ended.code != 0
    assert "did not stop within 0.5 s; all ranks are ended" in ended.errors


def test_a_launch_that_never_comes_up_is_tried_once(
    sweep_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('no such library')"]
    monkeypatch.setattr("areabench.sweeps.mpi.mpirun_command", lambda _ranks, _arguments: broken)
    assert main(["sweep", str(sweep_file), "--transport", "mpi"]) == 1
    output = capsys.readouterr()
    assert "0 done now, 0 done before, 0 of them diverged, 1 failed" in output.out
    assert "stopped early: the launch broke down: no such library; 3 runs not attempted" in output.err


def test_one_rank_is_too_few_for_a_sweep_on_the_ranks_of_a_launch(sweep_file: Path, quadratic: Launcher) -> None:
    ended = quadratic.start([*SWEEP, "--transport", "mpi", "--on-ranks"])
    assert (ended.code, ended.output) == (2, "")
    assert "--on-ranks: 1 rank, which is the server's, leaves none for the clients" in ended.errors
    assert not Path("runs").exists()
