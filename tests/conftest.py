"""What holds for all tests.

Each process has one thread, so that tests do not depend on the number of cores. Caches and settings of libraries lie in
build/, so that tests write nothing into the user's home. Hypothesis tries the same random examples each time, unless
`--hypothesis-profile=long` asks for more. Tests marked `system` change the machine for a while (network namespaces,
mounts, daemons) or need what Debian has; those marked `long` take minutes together. Both run where
AREABENCH_SYSTEM_TESTS=1 (`make test SYSTEM=1`).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
for _name in ("FORCE_COLOR", "NO_COLOR"):  # what is printed does not depend on the user's shell
    os.environ.pop(_name, None)
os.environ.setdefault("GIT_CONFIG_GLOBAL", str(Path.home() / ".gitconfig"))  # git may need it to trust the clone
os.environ |= {"HOME": str(ROOT / "build" / "home"), "XDG_CACHE_HOME": str(ROOT / "build" / "cache")}
for _name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "AREABENCH_CACHE", "AREABENCH_CLIENT_SECRET"):
    os.environ.pop(_name, None)
Path.home().mkdir(parents=True, exist_ok=True)

from hypothesis import settings  # noqa: E402 - not before the threads are set

settings.register_profile("short", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("long", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("short")


from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import ExitStack  # noqa: E402

import pytest  # noqa: E402

from areabench.experiment.experiment import Experiment  # noqa: E402
from areabench.progress import Style  # noqa: E402
from areabench.runfile.read import Run, open_run  # noqa: E402
from areabench.transports.options import RunOptions  # noqa: E402
from areabench.transports.session import simulate_run  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what changes the machine or takes minutes, unless that is asked for."""
    if os.environ.get("AREABENCH_SYSTEM_TESTS") == "1":
        return
    reasons = {
        "system": "changes the machine for a while, or needs a browser",
        "long": "takes minutes with others",
    }
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{reason}; make test SYSTEM=1 runs it"))


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two mpiruns that start at the same time do not share a folder, where one removes what the other has just made."""
    tmp_path_factory.getbasetemp()  # stays where it is
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="areabench-tests-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        yield
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[[Experiment], Run]]:
    """Simulates an experiment into a file of its own and opens it."""
    with ExitStack() as stack:
        paths = (tmp_path / f"{number}.h5" for number in range(10**6))

        def simulated(experiment: Experiment) -> Run:
            path = next(paths)
            simulate_run(experiment, RunOptions(path, tmp_path / "cache", "a test", False, Style.NONE))
            return stack.enter_context(open_run(path))

        yield simulated
