"""Whole runs: starts real ranks under mpirun, each launch with a hard time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import areabench
from areabench.cli import main as cli
from areabench.launching.families import ONE_MACHINE
from areabench.launching.mpirun import mpirun_command
from areabench.launching.watch import has_children
from areabench.runfile.read import Run, open_run

LIMIT_S = 90.0  # for one launch
LOOKS_WITHOUT_RANKS = 400  # twenty seconds: a busy machine may take some to end an mpirun
START_LIMIT_S = 40.0  # for a run file to be there, or the launch to end; areabench's own limit is longer
GRACE_S = 10.0  # for mpirun to end its ranks when told to

QUADRATIC = """
[problem]
name = "quadratic"
dimension = 6
noise = 0.1
"""
LOGISTIC = """
[problem]
name = "logistic"
[data]
name = "synthetic"
train_samples = 200
test_samples = 50
[split]
name = "iid"
"""
TORCH = """
[problem]
name = "torch"
module = "areabench.problems.examples:mlp"
[data]
name = "synthetic"
train_samples = 200
test_samples = 50
[split]
name = "iid"
"""
REST = """
[clients]
count = 2
[rates]
name = "uniform"
rate = 40.0
[method]
name = "area"
step_size = 0.02
[stop]
horizon_s = 0.7
"""
BROKEN = '''"""areabench with a defect on some ranks."""
from mpi4py import MPI

from areabench.cli import main as cli

rank = MPI.COMM_WORLD.rank
{defect}
if __name__ == "__main__":
    cli.entry()
'''


@dataclass(frozen=True)
class Ended:
    """How a launch ended."""

    code: int
    output: str
    errors: str
    wall_s: float


class Launcher:
    """Launches experiments from a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_file = folder / "run.h5"
        self.experiment = folder / "experiment.toml"

    def write(self, problem: str) -> None:
        """Write the experiment file."""
        self.experiment.write_text(problem + REST)

    def run(self, ranks: int, *overrides: str, defect: str = "") -> Ended:
        """Run the experiment on this many ranks; `defect` is Python that breaks something on `rank`."""
        command = mpirun_command(ranks, ["run", str(self.experiment), *self._options(overrides)])
        if defect:
            self.write_defect(defect)
            command = ["broken" if word == "areabench" else word for word in command]
        return self.start(command)

    def completed(self, ranks: int, *overrides: str, defect: str = "") -> Ended:
        """The same, of a run that ends well and has nothing to say."""
        ended = self.run(ranks, *overrides, defect=defect)
        assert (ended.code, ended.errors) == (0, "")
        return ended

    def areabench(self, *words: str) -> Ended:
        """Run a command of areabench to its end."""
        return self.start([sys.executable, "-m", "areabench", *words])

    def write_defect(self, defect: str) -> None:
        """Write `broken.py`, which is areabench with a defect."""
        (self.folder / "broken.py").write_text(BROKEN.format(defect=defect))

    def start(self, command: Sequence[str], *, again: bool = True) -> Ended:
        """Run a command to its end, or end it and fail; once more where MPI itself did not start in time."""
        output, errors = self.folder / "stdout", self.folder / "stderr"
        begun_s = time.perf_counter()
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=self._environment(), cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = _wait(process, self.folder)
            except subprocess.TimeoutExpired:
                _end(process)
                if again and not _has_begun(self.folder):
                    return self.start(command, again=False)
                pytest.fail(f"not ended after {LIMIT_S:g} s: {command}\n{output.read_text()}\n{errors.read_text()}")
        return Ended(code, output.read_text(), errors.read_text(), time.perf_counter() - begun_s)

    def recorded(self) -> Run:
        """The run file."""
        return open_run(self.run_file)

    def simulated(self, *overrides: str) -> Run:
        """The same experiment in virtual time."""
        path = self.folder / "simulated.h5"
        sets = [word for override in overrides for word in ("--set", override)]
        assert cli.main(["simulate", str(self.experiment), "--output", str(path), *sets]) == 0
        return open_run(path)

    def replay(self) -> int:
        """Replay the run file; 0 where all bits are equal."""
        return cli.main(["replay", str(self.run_file)])

    def _options(self, overrides: Sequence[str]) -> list[str]:
        sets = [word for override in overrides for word in ("--set", override)]
        return ["--output", str(self.run_file), *sets]

    def _environment(self) -> dict[str, str]:
        """This one, with this areabench and the folder's modules to import from.

        Debian's MPICH prints warnings among our output when a run fails with receives that wait: they are silenced.
        """
        package = Path(areabench.__file__).parents[1]
        paths = [str(self.folder), str(package), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", "UCX_LOG_LEVEL": "error"}
        return {**ONE_MACHINE, **os.environ, **own}


def _wait(process: subprocess.Popen[bytes], folder: Path) -> int:
    """The exit code; a launcher that stays without ranks, as Open MPI's now and then does, is ended as by `launch`."""
    began_s, looks = time.monotonic(), -1
    while (code := process.poll()) is None:
        looks = 0 if has_children(process.pid) else looks + (looks >= 0)
        if looks > LOOKS_WITHOUT_RANKS:
            process.kill()
        limit_s = LIMIT_S if _has_begun(folder) else START_LIMIT_S
        if time.monotonic() > began_s + limit_s:
            raise subprocess.TimeoutExpired(process.args, limit_s)
        time.sleep(0.05)
    return code


def _has_begun(folder: Path) -> bool:
    """Whether there is a run file, or the beginning of one."""
    return any(folder.rglob("*.h5*"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask mpirun to end its ranks, and end what it does not."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def quadratic(tmp_path: Path) -> Launcher:
    """Two clients with noisy quadratics, AREA, 0.7 s."""
    return _launcher(tmp_path, QUADRATIC)


@pytest.fixture
def logistic(tmp_path: Path) -> Launcher:
    """Two clients with logistic regression on synthetic data, AREA, 0.7 s."""
    return _launcher(tmp_path, LOGISTIC)


@pytest.fixture
def perceptron(tmp_path: Path) -> Launcher:
    """Two clients with a torch module on synthetic data, AREA, 0.7 s."""
    pytest.importorskip("torch")
    return _launcher(tmp_path, TORCH)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets are unpacked into the test's folder, not into the user's."""
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))


def _launcher(folder: Path, problem: str) -> Launcher:
    launcher = Launcher(folder)
    launcher.write(problem)
    return launcher
