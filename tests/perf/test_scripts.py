"""The scripts of benchmarks/perf at their smallest setting, as a user starts them: exit codes, and what they write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).parents[2] / "benchmarks" / "perf"
PYTHON = Path(sys.executable)

pytestmark = [pytest.mark.slow, pytest.mark.long]
needs_mpirun = pytest.mark.skipif(not (PYTHON.parent / "mpirun").exists(), reason="no mpirun beside this Python")


def run_script(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run to the end in a folder; warnings are errors."""
    command = [sys.executable, "-W", "error", str(PERF / name), *arguments]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=110)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@needs_mpirun
def test_bench_mpi(tmp_path: Path) -> None:
    done = run_script(tmp_path, "bench_mpi.py", "--quick", "--output", "MPI.md", str(PYTHON))
    assert (done.returncode, "left out" in done.stderr) == (0, False), done.stderr
    page = (tmp_path / "MPI.md").read_text(encoding="utf-8")
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")] == [
        "clients", "-------", "1", "2", "message", "-------", "1 kB", "1 MB", "clients", "-------", "4", "8",
    ]  # fmt: skip


@needs_mpirun
def test_bench_peers(tmp_path: Path) -> None:
    own = ("areabench, simulator", "areabench, MPI")
    done = run_script(tmp_path, "bench_peers.py", "--quick", "--only", *own, "--output", "PEERS.md")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "PEERS.md").read_text(encoding="utf-8")
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| a")] == list(own)
    assert "What is missing" not in page


@needs_mpirun
def test_bench_launchers(tmp_path: Path) -> None:
    done = run_script(tmp_path, "bench_launchers.py", "--tries", "1", "--output", "launchers.md", str(PYTHON))
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "launchers.md").read_text(encoding="utf-8").splitlines()[4:]
    assert len(rows) == 2 * 6  # plainly and as `areabench launch` does it, each with all cases
    assert all(row.count("|") == 8 for row in rows)


@needs_mpirun
def test_bench_start(tmp_path: Path) -> None:
    done = run_script(tmp_path, "bench_start.py", "--ranks", "3")
    assert done.returncode == 0, done.stderr
    assert "\n3 ranks were ready after " in done.stdout
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    taken = [int(cells[2]) for cells in rows]
    assert len(taken) == 9 + 1
    assert abs(sum(taken[:-1]) - taken[-1]) <= 5  # milliseconds, each rounded


def test_bench_report(tmp_path: Path) -> None:
    done = run_script(tmp_path, "bench_report.py", "--trials", "1", "--output", "report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" MB")
    assert len(list((tmp_path / "report" / "runs").glob("*.h5"))) == 100
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000


@needs_mpirun
def test_soak_and_its_page_again(tmp_path: Path) -> None:
    words = ("--minutes", "0.05", "--clients", "2", "--rate", "40", "--folder", "soak")
    done = run_script(tmp_path, "soak.py", *words, "--ranks", "2")
    assert done.returncode in (0, 1), done.stderr  # 1: memory still grows in the first seconds
    page = tmp_path / "soak" / "SOAK.md"
    first = page.read_text(encoding="utf-8")
    assert "--minutes 0.05 --clients 2 --rate 40 --ranks 2" in first
    assert page.with_suffix(".png").exists()
    page.unlink()
    assert run_script(tmp_path, "soak.py", "--read", "--folder", "soak").returncode == done.returncode
    assert page.read_text(encoding="utf-8") == first


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["soak.py", "--read", "--folder", "nothing"], "error: nothing/soak.h5: "),
        (["bench_mpi.py", "--quick", "no/python"], "no mpirun beside it"),
    ],
)
def test_what_cannot_be_measured_is_told(words: list[str], told: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, *words)
    assert done.returncode == 2
    assert told in done.stderr
