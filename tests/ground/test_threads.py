"""The threads of BLAS, OpenMP and torch: limited while areabench works, and as the caller had them afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import simulated
from tests.support.texts import QUADRATIC
from threadpoolctl import threadpool_info, threadpool_limits

from areabench.engine.client import Client
from areabench.engine.scenario import Scenario
from areabench.errors import UserError
from areabench.runfile.read import open_run
from areabench.threads import VARIABLES, limit_of, limited_threads, set_before_numpy, threads_in_force

BY_AREABENCH = "openblas 1 (areabench), openmp 1 (areabench), mkl 1 (areabench)"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable says how many threads there may be."""
    for name in (*VARIABLES.values(), "AREABENCH_DEFAULTED"):
        monkeypatch.delenv(name, raising=False)


def numbers() -> set[int]:
    """The threads of every BLAS that is loaded."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_a_run_takes_one_thread_and_leaves_the_callers_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    client = Scenario.client

    def observed(scenario: Scenario, *arguments: Any) -> Client:
        seen.append(numbers())
        return client(scenario, *arguments)

    monkeypatch.setattr(Scenario, "client", observed)
    with threadpool_limits(3):
        path = simulated(tmp_path / "run.h5", QUADRATIC)
        assert numbers() == {3}
    assert seen == [{1}, {1}]
    with open_run(path) as run:
        assert run.provenance.threads == BY_AREABENCH


def test_what_the_user_has_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with threadpool_limits(3), limited_threads():
        assert numbers() == {2}
        assert threads_in_force({"OPENBLAS_NUM_THREADS": "2"}).startswith(
            "openblas 2 (OPENBLAS_NUM_THREADS), openmp 1 ("
        )


def test_what_other_code_has_set_is_named() -> None:
    with limited_threads(), threadpool_limits(4):
        assert threads_in_force({}).startswith("openblas 4 (other code), ")


def test_a_limit_inside_another_ends_with_the_outer_one() -> None:
    with threadpool_limits(3):
        with limited_threads():
            with limited_threads():
                pass
            assert numbers() == {1}
        assert numbers() == {3}


@pytest.mark.parametrize("text", ["many", "0", "-1"])
def test_a_number_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match=rf"OMP_NUM_THREADS = '{text}' is not a whole number >= 1; correct or unset it"):
        limit_of("openmp", {"OMP_NUM_THREADS": text})


def test_openmp_takes_a_number_per_level() -> None:
    assert limit_of("openmp", {"OMP_NUM_THREADS": "4,2"}) == 4


def test_variables_are_set_too_late_where_numpy_is_loaded() -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    set_before_numpy(environment)
    assert environment == {"OMP_NUM_THREADS": "2"}


def in_a_new_process(code: str) -> str:
    """What code prints that begins without numpy."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_libraries_that_are_loaded_meanwhile() -> None:
    """Numpy and scipy have each a BLAS of its own."""
    code = """
import os, numpy
from threadpoolctl import ThreadpoolController, threadpool_limits
from areabench.threads import limited_threads

def numbers():
    return sorted(library.num_threads for library in ThreadpoolController().select(user_api="blas").lib_controllers)

before = dict(os.environ)
with threadpool_limits(3):
    with limited_threads():
        import scipy.linalg
        print(numbers())
    print(numbers(), dict(os.environ) == before)
"""
    assert in_a_new_process(code).splitlines() in (["[1, 1]", "[3, 3] True"], ["[1]", "[3] True"])


def test_a_command_sets_variables_instead() -> None:
    """So that no rank has to load threadpoolctl."""
    code = """
import os, sys
from areabench.threads import limited_threads, set_before_numpy, threads_in_force
set_before_numpy(os.environ)
import numpy
with limited_threads():
    assert "threadpoolctl" not in sys.modules
    print(threads_in_force(os.environ))
"""
    assert in_a_new_process(code) == BY_AREABENCH


def test_torch_is_limited_and_restored() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with limited_threads():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
