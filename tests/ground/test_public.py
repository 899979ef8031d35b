"""The public names: what `areabench`, `areabench.theory` and `areabench.extend` export."""

from __future__ import annotations

import subprocess
import sys

import pytest

import areabench
from areabench import extend, theory


def test_every_exported_name_exists() -> None:
    assert {"figures", "open_run", "open_sweep", "theory"} <= set(areabench.__all__)
    for module in (areabench, theory, extend):
        assert all(hasattr(module, name) for name in module.__all__)


def test_theory_is_reached_through_the_package() -> None:
    constants = areabench.theory.Constants(mu=1.0, L=3.0, sigma=0.0, zeta=0.0)
    assert areabench.theory.step_limit(constants, 1).value == 0.5


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = areabench.no_such_name


@pytest.mark.parametrize("command", ["import areabench", "import areabench.extend", "from areabench import theory"])
def test_public_modules_load_nothing_large(command: str) -> None:
    large = ("h5py", "matplotlib", "mpi4py", "pandas", "psutil", "rich", "scipy", "torch")
    code = f"{command}; import sys; print([name for name in {large} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
