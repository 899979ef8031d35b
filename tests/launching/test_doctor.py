"""The doctor: what it finds on machines with a fault, each faked; it neither hangs nor raises."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from tests.support.answers import answer, complaint

from areabench.cli.doctor import doctor_text
from areabench.host import Process, is_alive, this_machine
from areabench.launching import doctor
from areabench.launching.doctor import Finding, Mark
from areabench.launching.families import Family

OPEN_MPI = "mpirun (Open MPI) 5.0.11"
ALONE = '{"rank": 0, "size": 1, "latency_us": 0.0, "library": "Open MPI"}'
FIRST = '{"rank": 0, "size": 2, "latency_us": 0.75, "library": "Open MPI"}'
SECOND = '{"rank": 1, "size": 2, "latency_us": 0.75, "library": "Open MPI"}'


def launcher(folder: Path, ranks: str, version: str = OPEN_MPI) -> Path:
    """An mpirun that prints its version, or else runs a few lines of shell in place of ranks."""
    folder.mkdir(exist_ok=True)
    path = folder / "mpirun"
    head = f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit 0; fi\n'
    path.write_text(head + ranks)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without launcher, whose mpi4py uses Open MPI; returns the folder on the path."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr("areabench.launching.mpirun.mpi4py_family", lambda: Family.OPEN_MPI)
    monkeypatch.setattr("areabench.launching.mpirun.find_spec", lambda name: object())
    return tmp_path / "path"


# ------------------------------------------------------------------------------------------------------ two ranks


@pytest.mark.parametrize(
    ("ranks", "mark", "text"),
    [
        (f"echo '{FIRST}'\necho '[1,1]: {SECOND}'", Mark.OK, "a message passes both ways, 0.8 us one way"),
        (f"echo '{ALONE}'\necho '{ALONE}'", Mark.FAIL, "starts 2 ranks that are each alone: it is of another MPI"),
        ("echo --- >&2\necho 'no slots here' >&2\nexit 7", Mark.FAIL, "ended with exit code 7: no slots here"),
        (
            "echo Traceback >&2\necho ' in x' >&2\necho 'RuntimeError: none' >&2\nexit 1",
            Mark.FAIL,
            "ended with exit code 1: RuntimeError: none",
        ),
        ("exit 0", Mark.FAIL, "ended with exit code 0: no message"),
    ],
)
def test_two_ranks(ranks: str, mark: Mark, text: str, bare: Path) -> None:
    launcher(bare, ranks)
    finding = doctor.check_two_ranks({}, 10.0)
    assert finding.mark == mark
    assert text in finding.text
    assert bool(finding.remedy) == (mark != Mark.OK)


def test_ranks_that_hang_are_ended_with_what_they_have_started(bare: Path) -> None:
    launcher(bare, f"/bin/sleep 100 &\necho $! > {bare}/started\nwait\n")
    finding = doctor.check_two_ranks({}, 0.5)
    assert (finding.mark, finding.text) == (Mark.FAIL, "no message within 0.5 s; the ranks were ended")
    sleeper = Process(this_machine(), int((bare / "started").read_text()), 0)
    while is_alive(sleeper):  # until the time limit of tests
        time.sleep(0.01)


@pytest.mark.usefixtures("bare")
def test_no_launcher_at_all() -> None:
    assert doctor.check_two_ranks({}).text == "not started: no mpirun found"
    finding = doctor.check_launcher(Family.OPEN_MPI)
    assert (finding.mark, finding.text) == (Mark.FAIL, "no mpirun found")
    assert finding.remedy.startswith("install one with `make install`")
    assert doctor.check_path(Family.OPEN_MPI).text == "no mpirun, mpiexec or srun"


def test_a_launcher_that_is_no_program(bare: Path) -> None:
    path = launcher(bare, "")
    path.write_bytes(b"\0\1\2")
    finding = doctor.check_launcher(Family.OPEN_MPI)
    assert (finding.mark, finding.text) == (Mark.FAIL, f"{path}: cannot be started: Exec format error")
    assert doctor.check_path(Family.OPEN_MPI).text == f"{path} (version not known)"
    assert doctor.check_path(Family.OPEN_MPI).mark == Mark.WARN
    assert doctor.check_two_ranks({}).text == f"not started: {path}: cannot be started: Exec format error"


# ------------------------------------------------------------------------------------------- library and launchers


def test_a_launcher_of_another_mpi(bare: Path) -> None:
    path = launcher(bare, "", "HYDRA build details:\n    Version: 4.0.2")
    finding = doctor.check_launcher(Family.OPEN_MPI)
    assert finding.mark == Mark.FAIL
    assert finding.text.startswith(f"mpi4py uses Open MPI, but {path} (MPICH 4.0.2) would start ranks of another MPI")
    finding = doctor.check_path(Family.OPEN_MPI)
    assert (finding.mark, finding.text) == (Mark.WARN, f"{path} (MPICH 4.0.2)")
    assert finding.remedy.startswith(f"not of the MPI that mpi4py uses (Open MPI): {path}; ")


def test_a_launcher_that_does_not_say_whose_it_is(bare: Path) -> None:
    launcher(bare, "", "site launcher")
    assert doctor.check_launcher(Family.OPEN_MPI).mark == Mark.WARN
    assert doctor.check_launcher(None).mark == Mark.WARN
    assert doctor.check_path(Family.OPEN_MPI) == Finding("", Mark.OK, f"{bare}/mpirun (site launcher)")


@pytest.mark.parametrize(
    ("python", "text"),
    [
        ("exec sleep 100", "not loaded within 0.5 s"),
        ("echo Traceback >&2\necho 'RuntimeError: no library' >&2", "cannot be loaded: RuntimeError: no library"),
        ("exit 1", "cannot be loaded: no message"),
        (None, "cannot be loaded: No such file or directory"),
    ],
)
def test_a_library_that_cannot_be_loaded(
    python: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "python3"
    if python is not None:
        path.write_text(f"#!/bin/sh\n{python}\n")
        path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr(doctor, "FACTS_LIMIT_S", 0.5)
    finding = doctor.check_library(doctor.find_library(os.environ))
    assert (finding.mark, finding.text) == (Mark.FAIL, text)
    assert finding.remedy


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "mpi4py_folder", lambda: None)
    finding = doctor.check_mpi4py()
    assert (finding.mark, finding.text) == (Mark.FAIL, "not installed")
    assert "make install" in finding.remedy


# --------------------------------------------------------------------------------------------------------- machine

BESIDE = f"{Path(sys.prefix).resolve()}/lib/libmpi.so.40"
SLURM = {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "9"}


@pytest.mark.parametrize(
    ("check", "mark", "words"),
    [
        (
            lambda: doctor.check_library(doctor.Library("Open MPI v5.0.11, package", BESIDE)),
            Mark.OK,
            f"Open MPI 5.0.11, from a wheel beside this Python: {BESIDE}",
        ),
        (
            lambda: doctor.check_library(doctor.Library("MPICH Version:\t4.0.2", "/usr/lib/libmpich.so.12")),
            Mark.OK,
            "MPICH 4.0.2, the system's: /usr/lib/libmpich.so.12",
        ),
        (lambda: doctor.check_scheduler({}), Mark.OK, "none: this is no job of Slurm or PBS"),
        (lambda: doctor.check_scheduler(SLURM), Mark.OK, "Slurm, job 42: 2 nodes, 9 tasks"),
        (
            lambda: doctor.check_scheduler({"PBS_JOBID": "7.site", "PBS_NODEFILE": "/var/nodes"}),
            Mark.OK,
            "PBS, job 7.site: nodes in /var/nodes",
        ),
        (lambda: doctor.check_cores(2, 2), Mark.OK, "2 usable for 2 ranks"),
        (lambda: doctor.check_cores(2, 129), Mark.WARN, "2 usable for 129 ranks: 64.5 ranks per core"),
        (lambda: doctor.check_threads({"OMP_NUM_THREADS": "1"}, 8, 100), Mark.OK, ""),
        (lambda: doctor.check_threads({"OMP_NUM_THREADS": "4"}, 8, 2), Mark.OK, ""),
        (lambda: doctor.check_threads({"OMP_NUM_THREADS": "4"}, 8, 3), Mark.WARN, "3 ranks x 4 threads on 8 cores"),
        (
            lambda: doctor.check_threads({"OMP_NUM_THREADS": "many"}, 8, 1),
            Mark.WARN,
            "OMP_NUM_THREADS is not a whole number",
        ),
        (lambda: doctor.check_home("/home/me", given=True), Mark.OK, "/home/me"),
        (lambda: doctor.check_home("/home/me", given=False), Mark.WARN, "HOME is not set; /home/me is used"),
        # /proc/self takes no file, not even root's.
        (lambda: doctor.check_cache(Path("/proc/self")), Mark.FAIL, "/proc/self: not writable"),
        (lambda: doctor.check_hdf5(Path("/proc/self")), Mark.FAIL, "no file can be written in /proc/self"),
        (lambda: doctor.check_temporary({"TMPDIR": "/proc/self"}), Mark.FAIL, "/proc/self: not writable"),
    ],
)
def test_findings(check: Callable[[], Finding], mark: Mark, words: str) -> None:
    finding = check()
    assert finding.mark == mark
    assert words in f"{finding.text}; {finding.remedy}"
    assert bool(finding.remedy) == (mark != Mark.OK)


def test_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.pycache_prefix", None)
    missing = doctor.check_bytecode(["alone", "no_such_package"])
    assert missing.mark == Mark.WARN
    assert missing.remedy.endswith(f" -m compileall -q {tmp_path / 'alone'}`")
    subprocess.run(shlex.split(missing.remedy.strip("`")), check=True, env={})
    assert doctor.check_bytecode(["alone"]) == Finding("", Mark.OK, "kept for alone")


def test_a_timer_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.accumulate(itertools.repeat(0.005))
    monkeypatch.setattr(doctor, "time", SimpleNamespace(perf_counter=lambda: next(seconds), sleep=lambda _: None))
    finding = doctor.check_sleep()
    assert finding.mark == Mark.WARN
    assert finding.text == "1 ms of sleep is 4.00 ms late (median of 50), 4.00 ms at worst"


def test_looking_at_folders_leaves_nothing(tmp_path: Path) -> None:
    assert doctor.check_cache(tmp_path / "new" / "cache").mark == Mark.OK
    finding = doctor.check_hdf5(tmp_path / "runs")
    assert finding.mark == Mark.OK
    assert "HDF5" in finding.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free", "disc", "temporary"),
    [
        (5e9, Mark.OK, Mark.OK),
        (1e9, Mark.WARN, Mark.OK),
        (64e6, Mark.WARN, Mark.WARN),
        (16e6, Mark.FAIL, Mark.FAIL),
    ],
)
def test_room(free: float, disc: Mark, temporary: Mark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=int(free))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert doctor.check_disc(tmp_path).mark == disc
    finding = doctor.check_temporary({"TMPDIR": str(tmp_path)}, shared=tmp_path)
    assert finding.mark == temporary
    assert ("--shm-size=1g" in finding.remedy) == (temporary != Mark.OK)


@pytest.mark.parametrize(("allowed", "mark"), [(20, Mark.FAIL), (32, Mark.WARN), (1024, Mark.OK)])
def test_open_files(allowed: int, mark: Mark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    finding = doctor.check_open_files(2)
    assert (finding.mark, bool(finding.remedy)) == (mark, mark != Mark.OK)
    assert finding.text.startswith(f"{allowed:,} ")


def test_little_memory_for_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_024_000_000))
    assert doctor.check_memory(16) == Finding("", Mark.OK, "1.02 GB free")
    assert doctor.check_memory(18).mark == Mark.FAIL


# ---------------------------------------------------------------------------------------------------- page and command

SICK = [
    Finding("areabench", Mark.OK, "0.2.0"),
    Finding("cores", Mark.WARN, "2 usable for 3 ranks", "use fewer ranks"),
    Finding("two ranks", Mark.FAIL, "no message within 60 s", "look for a firewall"),
]


def test_the_page_is_aligned_and_has_a_remedy_for_all_that_is_not_ok() -> None:
    assert doctor_text(SICK) == (
        "ok    areabench   0.2.0\n"
        "warn  cores       2 usable for 3 ranks\n"
        "                  -> use fewer ranks\n"
        "FAIL  two ranks   no message within 60 s\n"
        "                  -> look for a firewall\n"
        "to fix: two ranks; to look at: cores\n"
    )
    assert doctor_text(SICK[:1]).endswith("\nnothing to fix\n")


def test_findings_as_json_and_a_check_that_fails_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(runs: Path) -> Finding:
        raise ValueError("no such device")

    monkeypatch.setattr(doctor, "check_two_ranks", lambda _: Finding("", Mark.OK, "not asked here"))
    monkeypatch.setattr(doctor, "check_disc", fail)
    printed = json.loads(answer("doctor --json", code=1).out)
    assert printed["ok"] is False
    (found,) = (each for each in printed["findings"] if each["name"] == "disc")
    assert (found["mark"], found["text"]) == ("FAIL", "cannot be checked: ValueError: no such device")


def test_a_machine_without_mpi(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("areabench.launching.mpirun.find_spec", lambda name: None)
    monkeypatch.setattr("areabench.launching.families.find_spec", lambda name: None)
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))
    printed = answer("doctor --runs", bare.parent / "runs", code=1)
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[-1].startswith("to fix: mpi4py, MPI library, launcher, two ranks")
    assert "Traceback" not in printed.out
    assert all(line.startswith(("ok  ", "warn", "FAIL", " " * 18)) for line in lines[:-1])


def test_a_doctor_on_every_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    assert "Open MPI's mpirun has started 3 doctors" in complaint("doctor")
