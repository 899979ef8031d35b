"""Checkpoints, written and read back: values, bits and types, and what is left where one cannot be written."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from areabench.arrays import crc32
from areabench.engine.messages import Flag, Order
from areabench.engine.state import OpenOrder, RunState, ServerState, Tally
from areabench.errors import RunFileError, WriteFailure
from areabench.runfile.checkpoint import (
    NUMBERS,
    VERSION,
    Checkpoint,
    CheckpointWriter,
    Pending,
    _read_state,
    _write_state,
    discard_checkpoint,
    read_checkpoint,
    require_checkpoint,
    saved_memories,
    write_checkpoint,
)
from areabench.runfile.layout import ModelsInMemory, checkpoint_path


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
    order = Order(1, np.array([5.0, 6.0]), 0.25, 3, 17, Flag.REPLY, 22, np.array([15.0]), given=True)
    waiting = Order(1, np.array([3.0, 4.0]), 0.375, 2, 16, Flag.WAITS, 23, np.array([14.0]))
    tally = Tally.of([11, 3, 2, 4, 1, 1, 7, 5], [9, 2], [6, 0, 5], 1.5)
    written = RunState(
        1.75, ServerState(Kept(np.array([7.0, 8.0]), 9), 21, 3, 2, (np.array([1.0, 2.0]), 19)), {0: 6, 2: 5},
        {0: 24, 2: 25}, (OpenOrder(order, 4, 1.25),), (waiting,), {1: 2, 2: 1}, (0,), 1, 8, 1.5, 13, tally, 10,
    )  # fmt: skip
    checkpoint = Checkpoint("name = 'x'", written, {2: np.array([0.5, 0.75])}, [Pending(2.5, 30, 0.125, 1, 12)], 31)
    before = os.umask(0)
    write_checkpoint(tmp_path / "run.h5", checkpoint, 3)
    os.umask(before)
    assert checkpoint_path(tmp_path / "run.h5").stat().st_mode & 0o777 == 0o644
    found = read_checkpoint(tmp_path / "run.h5", Kept(np.zeros(2), 0), np.zeros(2))
    assert plain(found) == plain(checkpoint)


def plain(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything in it, arrays as lists."""
    run_state = checkpoint.run_state
    server, tally, (open_order,) = run_state.server, run_state.tally, run_state.open_orders
    assert server.mean is not None
    numbers = {name: getattr(run_state, name) for name in (*NUMBERS, "rounds", "local_steps", "refusals", "lost")}
    return numbers | {
        "experiment": checkpoint.experiment, "sequence": checkpoint.sequence, "heap": list(checkpoint.heap),
        "memories": {client: memory.tolist() for client, memory in checkpoint.memories.items()},
        "server": (server.state.model.tolist(), server.state.number, server.iteration, server.version),
        "step": (server.updates_since_step, server.mean[0].tolist(), server.mean[1]),
        "orders": [as_lists(order) for order in (open_order.order, *run_state.queued)], "opened": open_order[1:],
        "tally": (tally.kinds, tally.staleness.tolist(), tally.served(3).tolist(), tally.last_time_s),
    }  # fmt: skip


def as_lists(order: Order) -> list[Any]:
    """An order's fields, arrays as lists."""
    return [field.tolist() if isinstance(field, np.ndarray) else field for field in order]


# ------------------------------------------------------------------------------------------------ whole files


MEMORY = np.zeros(2)  # all memories here have this form


class Inner(NamedTuple):
    """A state in a state."""

    vector: np.ndarray
    number: int


class Rich(NamedTuple):
    """A state with everything that one may have."""

    model: np.ndarray
    inner: Inner
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    missing: np.ndarray | None
    there: np.ndarray | None


def rich(offset: float) -> Rich:
    inner = Inner(np.array([offset, 2.0]), 5 + int(offset))
    return Rich(np.array([3.0, offset]), inner, (1, 2, int(offset)), (0.5, 2.0), None, np.array([offset]))


def a_checkpoint(offset: float = 1.0, **changes: Any) -> Checkpoint:
    """Three open orders, two of which carry one model, and what three clients remember."""
    models = [np.array([version, offset]) for version in (4.0, 5.0)]
    orders = tuple(
        OpenOrder(Order(client, models[version - 4], 0.5, version, 8 + client), client, 0.25 * client)
        for client, version in ((0, 4), (1, 5), (2, 4))
    )
    run_state = RunState(
        1.0, ServerState(rich(offset), 9, 5, 1, None), {0: 1}, {0: 2}, orders, (), {}, (), 0, 2, 0.5, 0, Tally(), 3
    )
    memories = {2: np.array([2.0, offset]), 0: np.array([0.0, offset]), 1: np.array([1.0, offset])}
    return replace(Checkpoint("name = 'x'", run_state, memories), **changes)


def test_every_part_of_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    held = ModelsInMemory([np.array([1.0, 2.0])], [np.array([3.0, 4.0]), np.array([5.0, 6.0])])
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(held=held), 3)
    found = read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY)
    state = found.run_state.server.state
    assert (state.model.tolist(), state.inner.vector.tolist(), state.inner.number) == ([3.0, 1.0], [1.0, 2.0], 6)
    assert (state.counts, state.shares, state.missing) == ((1, 2, 1), (0.5, 2.0), None)
    assert [type(entry) for entry in (*state.counts, *state.shares)] == [int, int, int, float, float]
    assert state.there.tolist() == [1.0]
    assert found.run_state.server.mean is None
    assert [vector.tolist() for vector in found.held.models] == [[1.0, 2.0]]
    assert [vector.tolist() for vector in found.held.averages] == [[3.0, 4.0], [5.0, 6.0]]
    assert {client: memory.tolist() for client, memory in found.memories.items()} == {
        2: [2.0, 1.0], 0: [0.0, 1.0], 1: [1.0, 1.0],
    }  # fmt: skip
    orders = [(order.client, order.model.tolist(), order.version) for order, _, _ in found.run_state.open_orders]
    assert orders == [(0, [4.0, 1.0], 4), (1, [5.0, 1.0], 5), (2, [4.0, 1.0], 4)]


def test_orders_of_one_version_share_a_model(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    with h5py.File(checkpoint_path(tmp_path / "run.h5"), "r") as file:
        assert file["models"][:].tolist() == [[4.0, 1.0], [5.0, 1.0]]
        assert file["flights"]["model"].tolist() == [0, 1, 0]


def test_a_checkpoint_without_orders_memories_or_models(tmp_path: Path) -> None:
    empty = a_checkpoint(memories={})
    empty = replace(empty, run_state=replace(empty.run_state, open_orders=()))
    write_checkpoint(tmp_path / "run.h5", empty, 3)
    found = read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY)
    assert (found.run_state.open_orders, found.memories, found.held) == ((), {}, ModelsInMemory([], []))


@pytest.mark.parametrize("at_once", [1, 100, 2**24])
def test_the_checksum_of_a_long_checkpoint_is_made_in_pieces(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    path = checkpoint_path(tmp_path / "run.h5")
    monkeypatch.setattr("areabench.runfile.checkpoint._BYTES_AT_ONCE", at_once)
    assert len(read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).memories) == 3
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunFileError, match=r"run.h5.checkpoint: is damaged \(it does not have its checksum\); run"):
        read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY)


def test_a_checkpoint_is_written_in_as_many_pieces_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, content: real(file, content[:1000]))
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    monkeypatch.undo()
    assert len(read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).memories) == 3


@pytest.mark.parametrize(("name", "value"), [("format", "another"), ("version", VERSION + 1), ("version", 0)])
def test_a_checkpoint_of_another_format_is_refused(name: str, value: object, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(memories={}), 3)
    with h5py.File(checkpoint_path(tmp_path / "run.h5"), "r+") as file:
        file.attrs[name] = value
    path = checkpoint_path(tmp_path / "run.h5")
    content = path.read_bytes()
    path.write_bytes(content + crc32(content).to_bytes(4, "little"))
    with pytest.raises(
        RunFileError, match="is no checkpoint of this version of areabench; resume with the version that wrote it$"
    ):
        read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY)


def test_a_run_without_a_checkpoint_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"run.h5: has no checkpoint \(run.h5.checkpoint\) to resume from; run"):
        require_checkpoint(tmp_path / "run.h5")


def test_a_discarded_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    half = CheckpointWriter(tmp_path / "run.h5", a_checkpoint(), 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.h5.checkpoint", "run.h5.checkpoint.new"]
    discard_checkpoint(tmp_path / "run.h5")
    assert list(tmp_path.iterdir()) == []
    half.abandon()
    discard_checkpoint(tmp_path / "none" / "run.h5")


# --------------------------------------------------------------------------------------------------- writing


@pytest.fixture
def closings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that are closed."""
    found, real = list[int](), os.close

    def close(descriptor: int) -> None:
        found.append(descriptor)
        if descriptor > 2:
            real(descriptor)

    monkeypatch.setattr(os, "close", close)
    return found


def test_a_checkpoint_replaces_the_last_one_when_it_is_complete(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(1.0), 3)
    writer = CheckpointWriter(tmp_path / "run.h5", a_checkpoint(2.0, memories={}), 3)
    writer.memory(1, np.array([7.0, 8.0]))
    assert read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).run_state.server.state.counts == (1, 2, 1)
    writer.memory(0, np.array([9.0, 10.0]))
    writer.close()
    found = read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY)
    assert found.run_state.server.state.counts == (1, 2, 2)
    assert {client: memory.tolist() for client, memory in found.memories.items()} == {1: [7.0, 8.0], 0: [9.0, 10.0]}
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5.checkpoint"]


def test_single_memories_are_read_of_a_checkpoint_that_is_whole(tmp_path: Path) -> None:
    run_file = tmp_path / "run.h5"
    write_checkpoint(run_file, a_checkpoint(), 3)
    found = saved_memories(run_file, MEMORY, {0, 1, 7})
    assert {client: memory.tolist() for client, memory in found.items()} == {0: [0.0, 1.0], 1: [1.0, 1.0]}
    content = bytearray(checkpoint_path(run_file).read_bytes())
    content[100] ^= 1
    checkpoint_path(run_file).write_bytes(content)
    assert saved_memories(run_file, MEMORY, {0, 1}) == {}
    checkpoint_path(run_file).unlink()
    assert saved_memories(run_file, MEMORY, {0, 1}) == {}


def test_a_checkpoint_that_is_given_up_leaves_the_last_one(tmp_path: Path, closings: list[int]) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(1.0), 3)
    writer = CheckpointWriter(tmp_path / "run.h5", a_checkpoint(2.0, memories={}), 3)
    descriptor = writer._file
    closings.clear()
    writer.abandon()
    writer.abandon()
    assert closings == [descriptor]  # once, and nobody else's
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5.checkpoint"]
    assert read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).run_state.server.state.counts == (1, 2, 1)


def test_a_checkpoint_that_cannot_be_opened_closes_nothing(tmp_path: Path, closings: list[int]) -> None:
    with pytest.raises(WriteFailure, match=r"run.h5.checkpoint: cannot be written: No such file or directory; make"):
        write_checkpoint(tmp_path / "none" / "run.h5", a_checkpoint(), 3)
    assert closings == []


def test_a_link_in_the_place_of_a_new_checkpoint_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run.h5.checkpoint.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteFailure, match="cannot be written: Too many levels of symbolic links; make room"):
        write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disc_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(1.0), 3)

    def full(_file: int, _content: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(WriteFailure, match="cannot be written: No space left on device; make room"):
            write_checkpoint(tmp_path / "run.h5", a_checkpoint(2.0), 3)
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5.checkpoint"]
    assert read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).run_state.server.state.counts == (1, 2, 1)


def test_what_was_left_of_a_longer_checkpoint_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "run.h5.checkpoint.new").write_bytes(bytes(10**5))
    write_checkpoint(tmp_path / "run.h5", a_checkpoint(), 3)
    assert checkpoint_path(tmp_path / "run.h5").stat().st_size < 10**5
    assert len(read_checkpoint(tmp_path / "run.h5", rich(0.0), MEMORY).memories) == 3
