"""Runs in the simulator, recorded and opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from areabench.experiment.records import Experiment
from areabench.progress import Style
from areabench.runfile.read import Run, open_run
from areabench.transports.options import Surroundings
from areabench.transports.session import simulate


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[[Experiment], Run]]:
    """Simulates an experiment into a file of its own and opens it."""
    with ExitStack() as stack:
        paths = (tmp_path / f"{number}.h5" for number in range(10**6))

        def simulated(experiment: Experiment) -> Run:
            path = next(paths)
            simulate(experiment, Surroundings(path, tmp_path / "cache", "a test", "1", False, Style.NONE))
            return stack.enter_context(open_run(path))

        yield simulated
