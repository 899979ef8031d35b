"""Which mpirun is started, and with which flags; a script replaces it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.answers import answer, complaint
from tests.support.texts import quadratic

from areabench.errors import UserError
from areabench.launching.families import Family
from areabench.launching.mpirun import (
    FaultTolerance,
    ask_launcher,
    find_launcher,
    mpirun_command,
    right_launcher,
    tolerance_flags,
)

OPEN_MPI = "mpirun (Open MPI) 5.0.10"
OLD_OPEN_MPI = "mpirun.openmpi (OpenRTE) 4.1.4"
MPICH = "HYDRA build details:\\n    Version: 4.3.0"


def stand_in(path: Path, version: str, exit_code: int = 0) -> Path:
    """A script that prints its version, or else records its arguments."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then printf "{version}\\n"; exit 0; fi\n'
        f'printf "%s\\n" "$@" > "{path.parent}/arguments"\nexit {exit_code}\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two cores, an ordinary user, and no mpirun yet; Python's own folder is `python`.

    Which MPI mpi4py uses is not known, unless a test says so with `uses`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    uses(monkeypatch, None)
    Path("try it.toml").write_text(quadratic("horizon_s = 1.0", name="experiment"), encoding="utf-8")
    return tmp_path


def uses(monkeypatch: pytest.MonkeyPatch, family: Family | None) -> None:
    """Make mpi4py one of a family."""
    monkeypatch.setattr("areabench.launching.mpirun.mpi4py_family", lambda: family)


@pytest.mark.parametrize(
    ("there", "family", "found"),
    [
        ({"path/mpirun": OPEN_MPI, "python/mpirun": OPEN_MPI}, None, "python/mpirun"),
        ({"path/mpirun": OPEN_MPI, "path/mpiexec": OPEN_MPI}, None, "path/mpirun"),
        ({"path/mpiexec": MPICH}, None, "path/mpiexec"),
        ({"path/mpirun": OPEN_MPI, "path/mpirun.mpich": MPICH}, Family.MPICH, "path/mpirun.mpich"),
        ({"python/mpirun": OPEN_MPI, "path/mpirun": MPICH}, Family.MPICH, "path/mpirun"),
        ({"path/mpirun": "site launcher 7"}, Family.OPEN_MPI, "path/mpirun"),  # it does not say of which MPI it is
    ],
)
def test_the_mpirun_of_the_mpi_that_mpi4py_uses(
    there: dict[str, str], family: Family | None, found: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in there.items():
        stand_in(machine / name, version)
    assert find_launcher(family).path == str(machine / found)
    uses(monkeypatch, family)
    assert right_launcher() == f"use {machine / found}"


def test_only_an_mpirun_of_another_mpi(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stand_in(machine / "path/mpirun", MPICH)
    uses(monkeypatch, Family.OPEN_MPI)
    expected = f"mpi4py uses Open MPI, but {found} \\(MPICH 4.3.0\\) would start ranks of another MPI"
    with pytest.raises(UserError, match=expected):
        mpirun_command(2, [])
    assert right_launcher().startswith("mpi4py uses Open MPI, but ")


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("\0\1\2 no program", 0o755, "cannot be started: Exec format error"),
        ("", 0o644, "cannot be started: Permission denied; install MPI again"),
        ("#!/bin/sh\nexec /bin/sleep 100\n", 0o755, "--version: no answer within 0.1 s; install MPI again"),
    ],
)
def test_an_mpirun_that_does_not_work(
    content: str, mode: int, words: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stand_in(machine / "python/mpirun", OPEN_MPI)  # beside Python, so that the path is not asked
    path.write_text(content)
    path.chmod(mode)
    monkeypatch.setattr("areabench.launching.mpirun._VERSION_LIMIT_S", 0.1)
    with pytest.raises(UserError, match=f"{path}:? {words}"):
        mpirun_command(2, [])


def test_more_ranks_than_a_machine_takes() -> None:
    with pytest.raises(UserError, match="1,025 ranks on one machine are more than 1,024; share them out with --ranks"):
        mpirun_command(1025, [])


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areabench.launching.mpirun.find_spec", lambda name: None)
    with pytest.raises(UserError, match="mpi4py is not installed; install it with"):
        mpirun_command(2, [])


@pytest.mark.parametrize(
    ("version", "user", "flags"),
    [
        (OPEN_MPI, 1000, ["--oversubscribe", "--bind-to", "none"]),  # its slots are cores, not hardware threads
        (OPEN_MPI, 0, ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]),
        (MPICH, 0, []),
        ("site launcher 7", 1000, []),
    ],
)
def test_flags(version: str, user: int, flags: list[str], machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    mpirun = stand_in(machine / "path/mpirun", version)
    expected = [str(mpirun), *flags, "-n", "3", sys.executable, "-P", "-m", "areabench", "run", "a b.toml"]
    assert mpirun_command(3, ["run", "a b.toml"]) == expected


@pytest.mark.parametrize(
    ("version", "wish", "flags"),
    [
        (OPEN_MPI, "auto", ["--with-ft", "ulfm"]),
        (OPEN_MPI, "on", ["--with-ft", "ulfm"]),
        (OPEN_MPI, "off", []),
        (OLD_OPEN_MPI, "auto", []),
        (OLD_OPEN_MPI, "on", None),
        (MPICH, "auto", ["-disable-auto-cleanup"]),  # not to continue, but for the server to report why it ends
        (MPICH, "off", ["-disable-auto-cleanup"]),
        (MPICH, "on", None),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "auto", []),
    ],
)
def test_flags_for_the_death_of_a_rank(version: str, wish: str, flags: list[str] | None, machine: Path) -> None:
    launcher = ask_launcher(str(stand_in(machine / "path/mpirun", version)))
    if flags is not None:
        assert tolerance_flags(launcher, FaultTolerance(wish)) == flags
        return
    with pytest.raises(UserError, match="--fault-tolerant on: .* cannot continue .*; use Open MPI 5 or newer"):
        tolerance_flags(launcher, FaultTolerance(wish))


# ---------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "-disable-auto-cleanup -n 3"),  # the server and two clients
        ("", "areabench run {file} --output runs/experiment-area-0.h5 --progress never --checkpoint-every 60"),
        ("--set clients.count=5 --set name=a", "-n 6"),
        (
            "--set clients.count=5 --set name=a --force -o out.h5",
            "--output out.h5 --force --set clients.count=5 --set name=a --progress never --checkpoint-every 60",
        ),
        ("--progress always", "--progress marked"),  # for the live line
    ],
)
def test_what_launch_tells_mpirun(options: str, told: str, machine: Path) -> None:
    stand_in(machine / "path/mpirun", MPICH)
    answer(f"launch 'try it.toml' {options}")
    words = Path("path/arguments").read_text(encoding="utf-8").splitlines()
    assert told.format(file="try it.toml") in " ".join(words)


def test_launch_returns_the_exit_code_of_the_run(machine: Path) -> None:
    stand_in(machine / "path/mpirun", MPICH, exit_code=3)
    answer("launch 'try it.toml'", code=3)


def test_launch_refuses_what_is_not_there(machine: Path) -> None:
    assert complaint("launch 'try it.toml'").startswith("areabench: no mpirun found; install one with `make install`")
    stand_in(machine / "path/mpirun", MPICH)  # only Open MPI can continue without a rank
    assert complaint("launch 'try it.toml' --fault-tolerant on").startswith("areabench: --fault-tolerant on: ")
