"""Which mpirun is started, and with which flags; a script replaces it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.texts import quadratic

from areabench.cli.main import main
from areabench.errors import UserError
from areabench.launching.families import Family
from areabench.launching.mpirun import (
    FaultTolerance,
    ask_launcher,
    find_mpirun,
    mpirun_command,
    right_launcher,
    tolerance_flags,
)

EXPERIMENT = quadratic("horizon_s = 1.0", name="experiment")
OPEN_MPI = "mpirun (Open MPI) 5.0.10"
MPICH = "HYDRA build details:\\n    Version: 4.3.0"


def stand_in(folder: Path, version: str, name: str = "mpirun", exit_code: int = 0) -> Path:
    """A script that prints its version, or else records its arguments."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then printf "{version}\\n"; exit 0; fi\n'
        f'printf "%s\\n" "$@" > "{folder}/arguments"\nexit {exit_code}\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two cores, an ordinary user, and no mpirun yet; Python's own folder is `python`.

    Which MPI mpi4py uses is not known, unless a test says so with `uses`.
    """
    (tmp_path / "python").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    uses(monkeypatch, None)
    return tmp_path


def uses(monkeypatch: pytest.MonkeyPatch, family: Family | None) -> None:
    """Make mpi4py one of a family."""
    monkeypatch.setattr("areabench.launching.mpirun.mpi4py_family", lambda: family)


def test_the_mpirun_beside_python_comes_first(machine: Path) -> None:
    stand_in(machine / "path", OPEN_MPI)
    beside = stand_in(machine / "python", OPEN_MPI)
    assert find_mpirun() == str(beside)


def test_an_mpirun_on_the_path(machine: Path) -> None:
    found = stand_in(machine / "path", OPEN_MPI)
    stand_in(machine / "path", OPEN_MPI, "mpiexec")
    assert find_mpirun() == str(found)


def test_an_mpiexec_on_the_path(machine: Path) -> None:
    found = stand_in(machine / "path", MPICH, "mpiexec")
    assert find_mpirun() == str(found)


@pytest.mark.usefixtures("machine")
def test_no_mpirun_at_all() -> None:
    with pytest.raises(UserError, match="no mpirun found; install one with `make install`"):
        find_mpirun()


def test_an_mpirun_that_does_not_start(machine: Path) -> None:
    path = stand_in(machine / "path", OPEN_MPI)
    path.write_bytes(b"\0\1\2 no program")
    with pytest.raises(UserError, match=f"{path}: cannot be started: Exec format error"):
        mpirun_command(2, [])


def test_an_mpirun_that_is_no_program(machine: Path) -> None:
    path = stand_in(machine / "python", OPEN_MPI)  # beside Python, so that the path is not asked
    path.chmod(0o644)
    with pytest.raises(UserError, match=f"{path}: cannot be started: Permission denied; install MPI again"):
        mpirun_command(2, [])


def test_an_mpirun_that_does_not_answer(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stand_in(machine / "path", OPEN_MPI)
    path.write_text("#!/bin/sh\nexec /bin/sleep 100\n", encoding="utf-8")
    monkeypatch.setattr("areabench.launching.mpirun._VERSION_LIMIT_S", 0.1)
    with pytest.raises(UserError, match=r"mpirun --version: no answer within 0.1 s; install MPI again"):
        mpirun_command(2, [])


def test_the_mpirun_of_the_mpi_that_mpi4py_uses(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(machine / "path", OPEN_MPI)
    stand_in(machine / "path", "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun.openmpi")
    own = stand_in(machine / "path", MPICH, "mpirun.mpich")
    uses(monkeypatch, Family.MPICH)
    assert find_mpirun() == str(own)
    assert right_launcher() == f"use {own}"


def test_one_on_the_path_comes_before_a_foreign_one_beside_python(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(machine / "python", OPEN_MPI)
    own = stand_in(machine / "path", MPICH)
    uses(monkeypatch, Family.MPICH)
    assert find_mpirun() == str(own)


def test_only_an_mpirun_of_another_mpi(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(machine / "path", MPICH)
    uses(monkeypatch, Family.OPEN_MPI)
    expected = f"mpi4py uses Open MPI, but {machine}/path/mpirun \\(MPICH 4.3.0\\) would start ranks of another MPI"
    with pytest.raises(UserError, match=expected):
        mpirun_command(2, [])
    assert right_launcher().startswith("mpi4py uses Open MPI, but ")


def test_an_mpirun_that_does_not_say_of_which_mpi_it_is(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stand_in(machine / "path", "site launcher 7")
    uses(monkeypatch, Family.OPEN_MPI)
    assert mpirun_command(2, [])[:3] == [str(own), "-n", "2"]


def test_more_ranks_than_a_machine_takes() -> None:
    with pytest.raises(UserError, match="1,025 ranks on one machine are more than 1,024; share them out with --ranks"):
        mpirun_command(1025, [])


def test_no_mpi4py(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(machine / "path", OPEN_MPI)
    monkeypatch.setattr("areabench.launching.mpirun.find_spec", lambda name: None)
    with pytest.raises(UserError, match="mpi4py is not installed; install it with"):
        mpirun_command(2, [])


@pytest.mark.parametrize(
    ("version", "user", "ranks", "flags"),
    [
        (OPEN_MPI, 1000, 2, ["--oversubscribe", "--bind-to", "none"]),  # its slots are cores, not hardware threads
        (OPEN_MPI, 0, 3, ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]),
        (MPICH, 0, 3, []),
        (MPICH, 1000, 2, []),
    ],
)
def test_flags(
    version: str, user: int, ranks: int, flags: list[str], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    mpirun = stand_in(machine / "path", version)
    expected = [str(mpirun), *flags, "-n", str(ranks), sys.executable, "-P", "-m", "areabench", "run", "a b.toml"]
    assert mpirun_command(ranks, ["run", "a b.toml"]) == expected


@pytest.mark.parametrize(
    ("version", "wish", "flags"),
    [
        (OPEN_MPI, "auto", ["--with-ft", "ulfm"]),
        (OPEN_MPI, "on", ["--with-ft", "ulfm"]),
        (OPEN_MPI, "off", []),
        ("mpirun (Open MPI) 4.1.4", "auto", []),
        (MPICH, "auto", ["-disable-auto-cleanup"]),  # not to continue, but for the server to report why it ends
        (MPICH, "off", ["-disable-auto-cleanup"]),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "auto", []),
    ],
)
def test_flags_for_the_death_of_a_rank(version: str, wish: str, flags: list[str], machine: Path) -> None:
    launcher = ask_launcher(str(stand_in(machine / "path", version)))
    assert tolerance_flags(launcher, FaultTolerance(wish)) == flags


@pytest.mark.parametrize("version", ["mpirun (Open MPI) 4.1.4", MPICH])
def test_an_mpi_that_cannot_continue_without_a_rank(version: str, machine: Path) -> None:
    launcher = ask_launcher(str(stand_in(machine / "path", version)))
    with pytest.raises(UserError, match="--fault-tolerant on: .* cannot continue .*; use Open MPI 5 or newer"):
        tolerance_flags(launcher, FaultTolerance.ON)


def launched(machine: Path, *options: str, exit_code: int = 0) -> tuple[int, list[str]]:
    """The exit code of `areabench launch`, and the arguments of mpirun."""
    experiment = machine / "try it.toml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    stand_in(machine / "path", MPICH, exit_code=exit_code)
    code = main(["launch", str(experiment), *options])
    return code, (machine / "path" / "arguments").read_text(encoding="utf-8").splitlines()


def test_launch_starts_a_rank_for_the_server_and_one_for_each_client(machine: Path) -> None:
    code, told = launched(machine)
    assert code == 0
    assert told == [
        "-disable-auto-cleanup", "-n", "3", sys.executable, "-P", "-m", "areabench", "run",
        str(machine / "try it.toml"), "--output", "runs/experiment-area-0.h5", "--progress", "never",
        "--checkpoint-every", "60",
    ]  # fmt: skip


def test_launch_passes_the_options_on(machine: Path) -> None:
    options = ["--set", "clients.count=5", "--set", "name=a", "--force", "-o", "out put.h5"]
    _, told = launched(machine, *options)
    assert told[1:3] == ["-n", "6"]
    assert told[9:] == [
        "--output", "out put.h5", "--force", "--set", "clients.count=5", "--set", "name=a", "--progress", "never",
        "--checkpoint-every", "60",
    ]  # fmt: skip


def test_launch_with_a_live_line_asks_for_marked_ones(machine: Path) -> None:
    _, told = launched(machine, "--progress", "always")
    assert told[told.index("--progress") + 1] == "marked"


def test_launch_returns_the_exit_code_of_the_run(machine: Path) -> None:
    assert launched(machine, exit_code=3)[0] == 3


def test_launch_refuses_on_mpich_what_only_open_mpi_can_do(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(machine / "path", MPICH)
    experiment = machine / "try.toml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    assert main(["launch", str(experiment), "--fault-tolerant", "on"]) == 2
    assert capsys.readouterr().err.startswith("areabench: --fault-tolerant on: ")


def test_launch_without_mpi(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = machine / "try.toml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    assert main(["launch", str(experiment)]) == 2
    assert capsys.readouterr().err.startswith("areabench: no mpirun found; install one with")
