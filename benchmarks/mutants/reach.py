"""Which test reaches which line, and how long it takes: measured once, by all tests of the rooms on the copy.

Coverage notes the running test as its context. Processes that a test starts are not measured; what only they reach
counts as not reached.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from benchmarks.mutants.mutations import Mutant
from coverage import CoverageData

MOST_S = 30.0  # that the tests of one mutant may take together, as they were measured
IMPORT = ""  # the context of what runs before the first test
ROOMS = ("methods", "engine", "transports", "runfile")
PYTEST = ("-q", "--no-header", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not mpi")


@dataclass(frozen=True)
class Reach:
    """Tests by file and line, and what each test takes in seconds."""

    lines: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, the fastest first, as many as MOST_S allows.

        A mutant that the import alone reaches may be noticed by any test.
        """
        lines = self.lines.get(mutant.path, {})
        found = set(lines.get(mutant.line, ())) or set(lines.get(mutant.statement, ()))
        if IMPORT in found:
            found = set(self.seconds)
        ordered = sorted(found - {IMPORT}, key=lambda test: (self.seconds[test], test))
        taken_s = accumulate(self.seconds[test] for test in ordered)
        return [test for test, until_s in zip(ordered, taken_s, strict=True) if until_s <= MOST_S or test is ordered[0]]


def measure(root: Path, source: Path, folder: Path) -> Reach:
    """Run the tests of the rooms on the package in `source`, those that have changed; what fails is left out."""
    every = [path for room in ROOMS for path in sorted((root / "tests" / room).glob("test_*.py"))]
    shared = digest([*source.rglob("*.py"), *(root / "tests" / "support").glob("*.py"), root / "tests" / "conftest.py"])
    now = {str(path.relative_to(root)): shared + digest([path]) for path in every}
    before: dict[str, str] = _read(folder / "measured.json")
    if not any(stamp.startswith(shared) for stamp in before.values()):
        (folder / "coverage").unlink(missing_ok=True)
        before = {}
    changed = [name for name, stamp in now.items() if before.get(name) != stamp]
    if changed:
        print(f"measuring which lines the tests of {len(changed)} files reach", flush=True)
        command = [sys.executable, "-m", "benchmarks.mutants.reach", str(source), str(folder), *changed]
        said = subprocess.run(command, cwd=root, env=environment(source), capture_output=True, text=True).stdout
        print(
            "".join(f"left out: {line}\n" for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), end=""
        )
        (folder / "measured.json").write_text(json.dumps(now), encoding="utf-8")
    return _reach(source / "areabench", folder)


def _reach(package: Path, folder: Path) -> Reach:
    """What is in the folder."""
    seconds: dict[str, float] = _read(folder / "seconds.json")
    data = CoverageData(str(folder / "coverage"))
    data.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        lines[str(Path(file).relative_to(package))] = {
            line: sorted({context.split("|")[0] for context in contexts} & (seconds.keys() | {IMPORT}))
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    return Reach(lines, seconds)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def digest(paths: Iterable[Path]) -> str:
    """Of the contents of files."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def environment(source: Path) -> dict[str, str]:
    """Variables with which Python finds the package in `source` first, also in the processes that a test starts."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return os.environ | threads | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


class Durations:
    """Notes what each test that passes takes, its fixtures included."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def passed(self) -> dict[str, float]:
        """The tests that passed."""
        return {test: round(taken_s, 3) for test, taken_s in self.seconds.items() if test not in self.failed}


def _run(source: Path, folder: Path, files: Sequence[str]) -> None:
    """Run these files and add what they reach and take to the folder."""
    durations = Durations()
    os.environ["COVERAGE_FILE"] = str(folder / "coverage")
    measured = [f"--cov={source / 'areabench'}", "--cov-context=test", "--cov-append", "--cov-report="]
    pytest.main([*PYTEST, f"--basetemp={folder / 'tmp'}", *measured, *files], plugins=[durations])
    kept = {
        test: taken_s for test, taken_s in _read(folder / "seconds.json").items() if test.split("::")[0] not in files
    }
    (folder / "seconds.json").write_text(json.dumps(kept | durations.passed()), encoding="utf-8")


if __name__ == "__main__":
    _run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
