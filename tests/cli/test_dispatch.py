"""From a command's name to its function, and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import simulated
from tests.support.texts import QUADRATIC

from areabench.cli.parser import COMMANDS

HEAVY = ("numpy", "h5py", "scipy", "torch", "mpi4py", "matplotlib", "pandas", "rich", "argcomplete", "psutil")
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "benchmarks" / "experiments" / "demo" / "demo.toml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run."""
    return simulated(tmp_path_factory.mktemp("runs") / "run.h5", QUADRATIC)


def loaded(*arguments: str) -> set[str]:
    """All modules that are loaded when a command ends."""
    script = (
        "import atexit, sys\natexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))\n"
        "from areabench.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


def test_help_loads_the_files_of_the_commands_only() -> None:
    modules = loaded("--help")
    assert not modules.intersection(HEAVY)
    assert {name for name in modules if name.startswith("areabench") and not name.startswith("areabench.cli")} == {
        "areabench", "areabench.errors",
    }  # fmt: skip


def test_a_command_loads_no_other_one(run: Path) -> None:
    modules = loaded("show", str(run))
    assert {name for name in COMMANDS if f"areabench.cli.{name}" in modules} == {"show"}


@pytest.mark.parametrize("options", [[], ["--mpi", "openmpi"]], ids=["MPI of this machine", "MPI that is given"])
def test_job_loads_only_the_parts_that_its_experiment_names(options: list[str]) -> None:
    modules = loaded("job", str(DEMO), "--scheduler", "slurm", "--transport", "simulator", *options)
    assert not modules.intersection(HEAVY) - {"numpy"}
    assert not {name for name in modules if name.startswith(("areabench.methods.fed", "areabench.transports"))}
    assert not modules & {"areabench.sweeps.run", "areabench.sweeps.pool", "areabench.engine.scenario"}


@pytest.mark.parametrize("command", ["show", "summary"])
def test_a_run_is_printed_without_what_other_commands_need(command: str, run: Path) -> None:
    """Numpy and h5py take half of the processor time of `show`; nothing large may join them."""
    modules = loaded(command, str(run))
    assert {"numpy", "h5py"} <= modules
    assert not modules & ({*HEAVY, "numpy.ma", "threadpoolctl", "difflib"} - {"numpy", "h5py"})
    assert not {name for name in modules if name.startswith(("areabench.results", "areabench.launching"))}
    assert not modules & {"areabench.views.json", "areabench.engine.state", "areabench.progress"}


@pytest.mark.parametrize("command", ["show", "summary", "diagnose"])
def test_reading_a_run_loads_only_the_parts_that_it_names(command: str, run: Path) -> None:
    modules = loaded(command, str(run))
    assert "areabench.runfile.read" in modules
    unwanted = ("areabench.methods.fed", "areabench.theory", "areabench.transports", "areabench.engine.scenario")
    assert not {name for name in modules if name.startswith(unwanted)}
