"""Before numpy is imported: one thread a process, so that tests do not depend on the number of cores.

And how many random examples hypothesis tries: always the same, unless `--hypothesis-profile=long` asks for more.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
for _name in ("FORCE_COLOR", "NO_COLOR"):  # what is printed does not depend on the user's shell
    os.environ.pop(_name, None)

from hypothesis import settings  # noqa: E402 - not before the threads are set

settings.register_profile("short", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("long", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("short")


from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import ExitStack  # noqa: E402
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402

from areabench.experiment.records import Experiment  # noqa: E402
from areabench.progress import Style  # noqa: E402
from areabench.runfile.read import Run, open_run  # noqa: E402
from areabench.transports.options import RunOptions  # noqa: E402
from areabench.transports.session import simulate  # noqa: E402


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[[Experiment], Run]]:
    """Simulates an experiment into a file of its own and opens it."""
    with ExitStack() as stack:
        paths = (tmp_path / f"{number}.h5" for number in range(10**6))

        def simulated(experiment: Experiment) -> Run:
            path = next(paths)
            simulate(experiment, RunOptions(path, tmp_path / "cache", "a test", "1", False, Style.NONE))
            return stack.enter_context(open_run(path))

        yield simulated
