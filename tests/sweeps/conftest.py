"""Where the tests of sweeps run, the command as they call it, and workers that need no process."""

from __future__ import annotations

from multiprocessing import Pipe
from pathlib import Path

import pytest
from tests.support.answers import Answer, answer

from areabench.sweeps import pool
from areabench.sweeps.passes import Pass, PassOutcome
from areabench.transports.options import RunOptions

WORKER = pool._Worker


def sweep(file: str | Path, *options: str, code: int = 0) -> Answer:
    """`areabench sweep` on a text, which is written to try.toml, or on a file; it must end with this exit code."""
    return answer("sweep", file if isinstance(file, Path) else written(file), *options, code=code)


def written(text: str, name: str = "try.toml") -> Path:
    """A file in the current folder."""
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


class SameProcess:
    """A worker that simulates its pass in this process, when it is asked for the result."""

    def __init__(self, options: RunOptions) -> None:
        self.connection, self._other = Pipe()
        self._pass: Pass | None = None
        self._options = options

    @property
    def busy(self) -> bool:
        """Whether it has a pass."""
        return self._pass is not None

    def start(self, attempted: Pass) -> bool:
        """Take a pass."""
        self._pass = attempted
        self._other.send("done")
        return True

    def result(self) -> PassOutcome:
        """How the pass ended."""
        assert self._pass is not None
        self.connection.recv()
        attempted = self._pass
        self._pass = None
        return pool._attempt(attempted, self._options)

    def end(self) -> None:
        """Close the connection."""
        self.connection.close()
        self._other.close()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps are run in the test's folder, and in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREABENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pool, "_Worker", SameProcess)


@pytest.fixture
def worker_processes(own_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are processes, as for a user."""
    monkeypatch.setattr(pool, "_Worker", WORKER)
