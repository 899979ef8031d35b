"""Portable bits on MPI: every rank takes the kernels that the experiment asks for, whoever has started it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.ground.test_kernels import ASKED_FOR, WITH_AVX2
from tests.launched.conftest import Launcher

from areabench.runfile.read import open_run

ONE_ORDER = ("bits=portable", "clients.count=1")  # of one client: only one order of events is possible


@WITH_AVX2
@ASKED_FOR
@pytest.mark.parametrize("command", ["run", "launch"])
def test_all_ranks_have_portable_bits(logistic: Launcher, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    if command == "run":
        assert logistic.run(2, *ONE_ORDER).code == 0
    else:
        words = [sys.executable, "-P", "-m", "areabench", "launch", str(logistic.experiment)]
        assert logistic.start([*words, *logistic._options(ONE_ORDER)]).code == 0
    replayed = logistic.start([sys.executable, "-P", "-m", "areabench", "replay", str(logistic.run_file)])
    assert (replayed.code, "bit for bit" in replayed.output) == (0, True)
    simulated = logistic.folder / "simulated.h5"
    words = [sys.executable, "-P", "-m", "areabench", "simulate", str(logistic.experiment), "-o", str(simulated)]
    sets = [word for override in ONE_ORDER for word in ("--set", override)]
    subprocess.run([*words, *sets], check=True, env=logistic._environment(), timeout=60)
    with logistic.recorded() as run, open_run(simulated) as other:
        assert run.provenance.blas_kernel == other.provenance.blas_kernel == "Haswell"
        count = min(len(run.events_array), len(other.events_array))
        assert count > 20
        assert np.array_equal(run.events_array["digest"][:count], other.events_array["digest"][:count])


@WITH_AVX2
@ASKED_FOR
def test_ranks_without_portable_bits_refuse_them(logistic: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a rank does not see the experiment file: it did not start itself again."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    defect = "from areabench import kernels; kernels.require_bits = lambda bits: None"
    ended = logistic.run(2, "bits=portable", defect=defect)
    assert ended.code == 2
    assert 'bits = "portable" cannot be had' in ended.errors
