"""Which MPI a library, a launcher and an installed mpi4py are of; who has started a rank."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from areabench.errors import UserError
from areabench.launching import families as mpi_family
from areabench.launching.families import (
    Family,
    StartedBy,
    family_in,
    mpi4py_family,
    refuse_foreign_launcher,
    refuse_lone_ranks,
    started_by,
    version_in,
)

OPEN_MPI_RANK = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"}
MPICH_RANK = {"PMI_SIZE": "3", "PMI_RANK": "0", "PMI_FD": "9"}
SRUN_RANK = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "0", "PMI_SIZE": "3", "PMI_RANK": "0"}


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        ("Open MPI v5.0.11, package: Open MPI user@localhost", Family.OPEN_MPI, "5.0.11"),
        ("mpirun (Open MPI) 5.0.11\n", Family.OPEN_MPI, "5.0.11"),
        ("mpirun.openmpi (OpenRTE) 4.1.4\n", Family.OPEN_MPI, "4.1.4"),
        ("prterun (PRRTE) 3.0.8\n", Family.OPEN_MPI, "3.0.8"),
        ("MPICH Version:      5.0.2", Family.MPICH, "5.0.2"),
        ("HYDRA build details:\n    Version:     4.0.2\n", Family.MPICH, "4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 1", Family.MPICH, "2021.10"),
        ("site launcher", None, ""),
    ],
)
def test_families_and_versions(text: str, family: Family | None, version: str) -> None:
    assert (family_in(text), version_in(text)) == (family, version)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty mpi4py, and a Python with no library beside it."""
    folder = tmp_path / "mpi4py"
    folder.mkdir()
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(mpi_family, "mpi4py_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    ("library", "family"), [("libmpi.so.40", Family.OPEN_MPI), ("libmpi.so.12", Family.MPICH), ("libc.so", None)]
)
def test_a_wheel_takes_the_library_beside_python(package: Path, library: str, family: Family | None) -> None:
    for abi in ("mpich", "openmpi"):
        (package / f"MPI.{abi}.cpython-311-x86_64-linux-gnu.so").write_bytes(b"libmpi.so.40")
    (package.parent / "lib" / library).touch()
    assert mpi4py_family() == family


@pytest.mark.parametrize(
    ("content", "family"),
    [
        (b"\0libmpi.so.40\0", Family.OPEN_MPI),
        (b"\0libmpich.so.12\0", Family.MPICH),
        (b"\0libmpi.so.12\0", Family.MPICH),
        (b"\0libc.so.6\0", None),
    ],
)
def test_an_mpi4py_that_was_built_here_names_its_library(package: Path, content: bytes, family: Family | None) -> None:
    (package / "MPI.cpython-311-x86_64-linux-gnu.so").write_bytes(content)
    (package.parent / "lib" / "libmpi.so.40").touch()  # of a wheel that was installed beside: not what it is linked to
    assert mpi4py_family() == family


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_family, "find_spec", lambda name: None)
    assert mpi4py_family() is None


# ---------------------------------------------------------------------------------------------- who has started us


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, None),
        ({"PMI_SIZE": "many"}, None),
        ({"SLURM_NTASKS": "9", "SLURM_JOB_ID": "4"}, None),  # within a job, but not started by srun
        (OPEN_MPI_RANK, StartedBy("Open MPI's mpirun", Family.OPEN_MPI, "OMPI_COMM_WORLD_SIZE", 3, 0)),
        ({**OPEN_MPI_RANK, **SRUN_RANK}, StartedBy("Open MPI's mpirun", Family.OPEN_MPI, "OMPI_COMM_WORLD_SIZE", 3, 0)),
        (MPICH_RANK | {"PMI_RANK": "2"}, StartedBy("MPICH's mpirun", Family.MPICH, "PMI_SIZE", 3, 2)),
        (SRUN_RANK | {"SLURM_PROCID": "1"}, StartedBy("srun", None, "SLURM_STEP_NUM_TASKS", 3, 1)),
    ],
)
def test_launchers_are_known_by_their_variables(environment: dict[str, str], expected: StartedBy | None) -> None:
    assert started_by(environment) == expected


@pytest.mark.parametrize(
    ("environment", "family", "world_size", "why"),
    [
        ({}, Family.MPICH, 1, None),  # one rank started by hand is left to the run
        (OPEN_MPI_RANK, Family.OPEN_MPI, 3, None),
        (OPEN_MPI_RANK, None, 3, None),
        (MPICH_RANK, Family.MPICH, 3, None),
        (SRUN_RANK, Family.OPEN_MPI, 3, None),
        (SRUN_RANK, Family.MPICH, 3, None),
        (OPEN_MPI_RANK, Family.MPICH, 3, "but mpi4py uses MPICH: each of them would be alone"),
        (MPICH_RANK, Family.OPEN_MPI, 3, "but mpi4py uses Open MPI: each of them would be alone"),
        (OPEN_MPI_RANK, Family.OPEN_MPI, 1, "but each of them is alone: launcher and MPI do not know each other"),
        (MPICH_RANK, Family.MPICH, 1, "but each of them is alone"),
        (SRUN_RANK, None, 1, "but each of them is alone"),
    ],
)
def test_a_launcher_of_another_mpi_is_refused(
    environment: dict[str, str],
    family: Family | None,
    world_size: int,
    why: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("areabench.launching.mpirun.right_launcher", lambda: "use /right/mpirun")

    def check(started: StartedBy | None) -> None:
        refuse_foreign_launcher(started, family)
        refuse_lone_ranks(started, world_size)

    if why is None:
        check(started_by(environment))
        return
    with pytest.raises(UserError, match=rf"has started 3 ranks \(.* = 3\), {why}.*; use /right/mpirun; `areabench doc"):
        check(started_by(environment))
    second = {name: "1" if value == "0" else value for name, value in environment.items()}
    with pytest.raises(SystemExit, match="2"):  # only the first of them prints
        check(started_by(second))


@pytest.mark.parametrize(("value", "tolerant"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_a_fault_tolerant_mpirun_is_noticed(value: str, tolerant: bool) -> None:
    started = started_by({**OPEN_MPI_RANK, "OMPI_MCA_mpi_ft_enable": value})
    assert started is not None
    assert started.fault_tolerant is tolerant
