"""States of methods, written to a checkpoint's group and read back: values, bits and types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from areabench.runfile.checkpoint import _read_state, _write_state


class Kept(NamedTuple):
    """A state with a number."""

    model: np.ndarray
    number: Any


def read_back(path: Path, written: Any, form: Any) -> Any:
    """A number as a checkpoint gives it back for a state that began with `form`."""
    model = np.zeros(2)
    with h5py.File(path / "checkpoint.h5", "w") as file:
        _write_state(file.create_group("state"), Kept(model, written))
        return _read_state(file["state"], Kept(model, form)).number


@pytest.mark.parametrize("form", [0, False, 0.0, True, 7, 1e300])
@pytest.mark.parametrize("written", [0, 3, -(2**63), 0.75, 0.1 + 0.2, float("inf"), True, False])
def test_a_number_has_the_type_it_was_written_with(written: Any, form: Any, tmp_path: Path) -> None:
    found = read_back(tmp_path, written, form)
    assert (found, type(found)) == (written, type(written))


def test_a_number_of_numpy_stays_one(tmp_path: Path) -> None:
    found = read_back(tmp_path, np.float64(0.75), np.float64(0.0))
    assert (found, type(found)) == (0.75, np.float64)
