"""States of methods, written to a checkpoint's group and read back: values, bits and types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from areabench.engine.messages import Flag, Order
from areabench.engine.state import OpenOrder, RunState, ServerState, Tally
from areabench.runfile.checkpoint import (
    NUMBERS,
    Checkpoint,
    Pending,
    _read_state,
    _write_state,
    read_checkpoint,
    write_checkpoint,
)
from areabench.runfile.layout import checkpoint_path


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


def test_a_run_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every number has another value, so that none can stand for another."""
    order = Order(1, np.array([5.0, 6.0]), 0.25, 3, 17, Flag.REPLY)
    tally = Tally.of([11, 3, 2, 4, 1, 1], [9, 2], [6, 0, 5], 1.5)
    written = RunState(
        1.75, ServerState(Kept(np.array([7.0, 8.0]), 9), 21, 3, 2, (np.array([1.0, 2.0]), 19)), {0: 6, 2: 5},
        (OpenOrder(order, 4, 1.25),), {1: 2, 2: 1}, (0,), 1, 2, 8, 1.5, 13, tally, 10,
    )  # fmt: skip
    checkpoint = Checkpoint("name = 'x'", written, {2: np.array([0.5, 0.75])}, [Pending(2.5, 30, 0.125, 1)], 31)
    before = os.umask(0)
    write_checkpoint(tmp_path / "run.h5", checkpoint, 3)
    os.umask(before)
    assert checkpoint_path(tmp_path / "run.h5").stat().st_mode & 0o777 == 0o644
    found = read_checkpoint(tmp_path / "run.h5", Kept(np.zeros(2), 0))
    assert plain(found) == plain(checkpoint)


def plain(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything in it, arrays as lists."""
    run_state = checkpoint.run_state
    server, tally, (open_order,) = run_state.server, run_state.tally, run_state.open_orders
    assert server.mean is not None
    numbers = {name: getattr(run_state, name) for name in (*NUMBERS, "rounds", "refusals", "lost")}
    return numbers | {
        "experiment": checkpoint.experiment, "sequence": checkpoint.sequence, "heap": list(checkpoint.heap),
        "memories": {client: memory.tolist() for client, memory in checkpoint.memories.items()},
        "server": (server.state.model.tolist(), server.state.number, server.iteration, server.version),
        "step": (server.updates_since_step, server.mean[0].tolist(), server.mean[1]),
        "order": open_order.order._replace(model=open_order.order.model.tolist()), "opened": open_order[1:],
        "tally": (tally.kinds, tally.staleness.tolist(), tally.served(3).tolist(), tally.last_time_s),
    }  # fmt: skip
