"""One mutant tried: the tests that reach its line, on a copy of the source that has this change."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.mutants.mutations import Mutant
from benchmarks.mutants.reach import PYTEST, environment

TEST_LIMIT_S = 20.0  # of one test: none of those that are run takes five seconds
MEMORY = 2**33  # bytes that a mutant may ask for
FILE = 2**30  # bytes that it may write to one file


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; the digests say which source and which tests this is about."""

    key: str
    state: str  # killed, survived, timeout, not reached
    by: str  # the test that failed
    seconds: float
    source: str
    tests: str

    @property
    def noticed(self) -> bool:
        """Whether a test failed, or did not end."""
        return self.state in ("killed", "timeout")


def read_log(path: Path) -> dict[str, Verdict]:
    """The last verdict on each mutant."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {verdict.key: verdict for verdict in (Verdict(**json.loads(line)) for line in lines)}


def append_log(path: Path, verdict: Verdict) -> None:
    """Add a verdict."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(verdict)) + "\n")


@dataclass(frozen=True)
class Bench:
    """Where mutants are tried."""

    root: Path  # of the repository
    source: Path  # the copy of src
    folder: Path
    seconds: Mapping[str, float]  # of each test

    def tried(self, mutant: Mutant, tests: Sequence[str]) -> tuple[str, str]:
        """What becomes of a mutant, and the test that fails."""
        if not tests:
            return "not reached", ""
        path = self.source / "areabench" / mutant.path
        content = path.read_bytes()
        path.write_bytes(mutant.apply(content))
        try:
            for batch in batches(tests, mutant.path.split("/")[0]):
                found = self.judged(batch)
                if found[0] != "survived":
                    break
            return found
        finally:
            path.write_bytes(content)

    def judged(self, tests: Sequence[str]) -> tuple[str, str]:
        """How tests end on the copy as it is."""
        limit_s = 60 + 10 * sum(self.seconds[test] for test in tests)
        options = ["-x", "--tb=line", f"--timeout={TEST_LIMIT_S:g}", f"--basetemp={self.folder / 'tmp'}"]
        command = [sys.executable, "-m", "pytest", *PYTEST, *options, *tests]
        process = subprocess.Popen(
            command, cwd=self.root, env=environment(self.source), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, preexec_fn=_limit,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "timeout", ""
        finally:
            _end(process)
        if process.returncode == 0:
            return "survived", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        by = failed[1] if failed else "the import"
        return ("timeout" if "from pytest-timeout" in said else "killed"), by


def batches(tests: Sequence[str], room: str) -> list[list[str]]:
    """Tests in two parts, in their order: importing all of their files takes longer than most mutants live.

    The first part is those of the file with the most of them, in the mutant's own room where that has any.
    """
    own = [test for test in tests if test.startswith(f"tests/{room}/")] or tests
    (file, _), *_ = Counter(test.split("::")[0] for test in own).most_common(1)
    first = [test for test in tests if test.startswith(f"{file}::")]
    return [part for part in (first, [test for test in tests if test not in first]) if part]


def _limit() -> None:
    """Mutants may loop: limit what they take."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _end(process: subprocess.Popen[str]) -> None:
    """End the tests and what they have started, if something is left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
