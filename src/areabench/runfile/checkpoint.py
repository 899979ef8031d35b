"""Checkpoints: the state of a run in a file beside the run file, from which `areabench resume` continues.

A checkpoint is written under another name and renamed when it is complete, so there is always a good one. It holds
numbers and one text, the experiment; nothing in it is executed.

    /            attributes: format, version, experiment (TOML), and the numbers of `RunState`
    /clients     rounds that each client has ended, local steps that these took, refusals in a row
    /flights     open orders, one row each, and behind them those in queues; `model` is a row of /models
    /models      the models that they carry; /attached what goes with the model of each order, where something does
    /state       the server's state as its method has it; /mean the sum of its models, where it is kept
    /tally       counts so far
    /heap        the simulator's arrivals to come
    /held        models and averages of snapshots that the run file does not keep

Behind all this follow the memories, vectors of one type, then the clients that they belong to and their number, in 64
bits each. The last four bytes of the file are the CRC-32 of all others.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from areabench.arrays import Vector, crc32
from areabench.engine.messages import Flag, Order
from areabench.engine.state import OpenOrder, RunState, ServerState, Tally
from areabench.errors import RunFileError, WriteFailure
from areabench.runfile.layout import ModelsInMemory, checkpoint_path

FORMAT = "areabench-checkpoint"
VERSION = 1
_CHECKSUM_BYTES = 4
_CLIENT_BYTES = 8
_BYTES_AT_ONCE = 2**24  # that are read to be verified
_CLIENT = np.dtype([("client", "<i8"), ("rounds", "<i8"), ("local_steps", "<i8"), ("refusals", "<i8")])
_OPEN_ORDER = np.dtype(
    [
        ("client", "<i8"), ("model", "<i8"), ("step_size", "<f8"), ("version", "<i8"), ("iteration", "<i8"),
        ("flags", "<i8"), ("round", "<i8"), ("since_s", "<f8"), ("local_steps", "<i8"), ("given", "<i8"),
    ]
)  # fmt: skip
_PENDING = np.dtype(
    [("time_s", "<f8"), ("sequence", "<i8"), ("delay_s", "<f8"), ("client", "<i8"), ("local_steps", "<i8")]
)
_QUEUED = -1  # in place of a round: the order waits
NUMBERS = ("time_s", "removed", "grid_number", "shown_s", "timers_passed", "snapshots")


class Pending(NamedTuple):
    """A future arrival, in the simulator, of the update to an open order."""

    time_s: float
    sequence: int
    delay_s: float
    client: int
    local_steps: int  # that the update is made of


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run and what its clients remember; one that has ended no round remembers the start."""

    experiment: str
    run_state: RunState
    memories: Mapping[int, Vector] = field(default_factory=dict)
    heap: Sequence[Pending] = ()
    sequence: int = 0  # of the simulator's last arrival
    held: ModelsInMemory = ModelsInMemory()


def discard_checkpoint(run_file: Path) -> None:
    """Remove the checkpoint: the run has ended, or another one replaces it."""
    path = checkpoint_path(run_file)
    for each in (path, _new(path)):
        with suppress(OSError):
            each.unlink(missing_ok=True)


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")


# ---------------------------------------------------------------------------------------------------- writing


class CheckpointWriter:
    """Writes one checkpoint: everything but the memories at once, these one by one, and renames it in the end.

    The first part is made in memory, because HDF5 crashes if the disk is full. The memories follow it in the file, as
    they come.
    """

    def __init__(self, run_file: Path, checkpoint: Checkpoint, clients: int) -> None:
        self.path = checkpoint_path(run_file)
        self._remembering: list[int] = []  # clients whose memories were written
        image = _image(checkpoint, clients)
        self._file, self._checksum = -1, 0
        with self._writing():
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            self._file = os.open(_new(self.path), flags, 0o644)
            self._write(memoryview(image))
        for client, memory in checkpoint.memories.items():
            self.memory(client, memory)

    def memory(self, client: int, memory: Vector) -> None:
        """What a client remembered then."""
        self._remembering.append(client)
        with self._writing():
            self._write(np.ascontiguousarray(memory).data.cast("B"))

    def close(self) -> None:
        """It is complete: replace the last one."""
        with self._writing():
            self._write(np.array([*self._remembering, len(self._remembering)], "<i8").data.cast("B"))
            self._write(memoryview(self._checksum.to_bytes(_CHECKSUM_BYTES, "little")))
            self._release()
            _new(self.path).replace(self.path)

    def abandon(self) -> None:
        """Give it up; the last one stays."""
        self._release()
        with suppress(OSError):
            _new(self.path).unlink(missing_ok=True)

    def _write(self, content: memoryview) -> None:
        self._checksum = crc32(content, self._checksum)
        while content:
            content = content[os.write(self._file, content) :]

    def _release(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk ends the run with one line; the last checkpoint stays."""
        try:
            yield
        except OSError as error:
            self.abandon()
            raise WriteFailure(f"{self.path}: cannot be written: {error.strerror or error}; make room") from error


def _image(checkpoint: Checkpoint, clients: int) -> bytes:
    """Everything but the memories, as the beginning of a file."""
    run_state = checkpoint.run_state
    server = run_state.server
    with h5py.File("checkpoint", "w", driver="core", backing_store=False) as file:
        file.attrs.update({"format": FORMAT, "version": VERSION, "experiment": checkpoint.experiment})
        file.attrs.update({name: getattr(run_state, name) for name in NUMBERS})
        file.attrs.update({"iteration": server.iteration, "model_version": server.version})
        file.attrs.update({"updates_since_step": server.updates_since_step, "sequence": checkpoint.sequence})
        counts = (run_state.rounds, run_state.local_steps, run_state.refusals)
        file["clients"] = np.array(
            [(each, *(count.get(each, 0) for count in counts)) for each in range(clients)], _CLIENT
        )
        file["lost"] = np.array(run_state.lost, np.int64)
        tally = file.create_group("tally")
        tally["kinds"] = run_state.tally.kinds
        tally["staleness"] = run_state.tally.staleness
        tally["served"] = run_state.tally.served(clients)
        tally.attrs["last_time_s"] = run_state.tally.last_time_s
        waiting = [OpenOrder(order, _QUEUED, 0.0) for order in run_state.queued]
        _write_open_orders(file, [*run_state.open_orders, *waiting])
        _write_state(file.create_group("state"), server.state)
        if server.mean is not None:
            file["mean"], file.attrs["mean_since"] = server.mean
        file["heap"] = np.array([tuple(each) for each in checkpoint.heap], _PENDING)
        for name, vectors in (("models", checkpoint.held.models), ("averages", checkpoint.held.averages)):
            if vectors:
                file[f"held/{name}"] = np.stack(vectors)
        file.flush()
        image: bytes = file.id.get_file_image()
        return image


def write_checkpoint(run_file: Path, checkpoint: Checkpoint, clients: int) -> None:
    """Write a checkpoint whose memories are all known."""
    CheckpointWriter(run_file, checkpoint, clients).close()


def _write_open_orders(file: h5py.File, open_orders: Sequence[OpenOrder]) -> None:
    """Orders may carry the same model, which is written once."""
    rows = []
    models: list[Vector] = []
    places: dict[int, int] = {}
    for order, number, since_s in open_orders:
        row = places.setdefault(id(order.model), len(models))
        if row == len(models):
            models.append(order.model)
        numbers = (order.step_size, order.version, order.iteration, int(order.flags), number, since_s)
        rows.append((order.client, row, *numbers, order.local_steps, order.given))
    file["flights"] = np.array(rows, _OPEN_ORDER)
    if models:
        file["models"] = np.stack(models)
    attached = [order.attached for order, _, _ in open_orders if order.attached is not None]
    if attached:
        file["attached"] = np.stack(attached)


def _write_state(group: h5py.Group, state: Any) -> None:
    """A named tuple of vectors, numbers, tuples of numbers and other such; what is None is left out."""
    for name, value in state._asdict().items():
        if hasattr(value, "_asdict"):
            _write_state(group.create_group(name), value)
        elif isinstance(value, tuple):
            group[name] = np.array(value, np.float64 if any(type(entry) is float for entry in value) else np.int64)
        elif isinstance(value, np.ndarray):
            group[name] = value
        elif value is not None:
            group.attrs[name] = value


# ---------------------------------------------------------------------------------------------------- reading


_DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, IndexError)


def require_checkpoint(run_file: Path) -> Path:
    """The path of a run file's checkpoint; a UserError where there is none."""
    path = checkpoint_path(run_file)
    if not path.is_file():
        raise RunFileError(
            f"{run_file}: has no checkpoint ({path.name}) to resume from; run the experiment again, with a shorter "
            "--checkpoint-every"
        )
    return path


def read_checkpoint(run_file: Path, state: Any, memory: Vector | None) -> Checkpoint:
    """The checkpoint of a run file; `state` and `memory` are any of its method: their form defines what to read."""
    path = require_checkpoint(run_file)
    try:
        _verify(path)  # before HDF5 sees it, which may never return from a damaged file of this format
        with h5py.File(path, "r") as file:
            if file.attrs["format"] != FORMAT or file.attrs["version"] != VERSION:
                raise RunFileError(
                    f"{path}: is no checkpoint of this version of areabench; resume with the version that wrote it"
                )
            return _read(file, state, _read_memories(path, memory))
    except _DAMAGE as error:
        raise RunFileError(f"{path}: is damaged ({error}); run the experiment again") from error


def saved_memories(run_file: Path, memory: Vector, clients: Container[int]) -> dict[int, Vector]:
    """What these clients remember according to the checkpoint of a run file; nothing where that is damaged or gone."""
    path = checkpoint_path(run_file)
    with suppress(*_DAMAGE):
        _verify(path)
        return _read_memories(path, memory, clients)
    return {}


def _read(file: h5py.File, state: Any, memories: Mapping[int, Vector]) -> Checkpoint:
    attributes = dict(file.attrs)
    clients = file["clients"][:].tolist()
    open_orders = _read_open_orders(file)
    tally = file["tally"]
    kinds, staleness, served = (tally[name][:].tolist() for name in ("kinds", "staleness", "served"))
    run_state = RunState(
        server=ServerState(
            _read_state(file["state"], state),
            iteration=int(attributes["iteration"]),
            version=int(attributes["model_version"]),
            updates_since_step=int(attributes["updates_since_step"]),
            mean=(file["mean"][:], int(attributes["mean_since"])) if "mean" in file else None,
        ),
        rounds={client: rounds for client, rounds, _, _ in clients if rounds},
        local_steps={client: steps for client, rounds, steps, _ in clients if rounds},
        open_orders=tuple(each for each in open_orders if each.round != _QUEUED),
        queued=tuple(each.order for each in open_orders if each.round == _QUEUED),
        refusals={client: refusals for client, _, _, refusals in clients if refusals},
        lost=tuple(file["lost"][:].tolist()),
        tally=Tally.of(kinds, staleness, served, float(tally.attrs["last_time_s"])),
        **{name: attributes[name].item() for name in NUMBERS},
    )
    return Checkpoint(
        experiment=str(attributes["experiment"]),
        run_state=run_state,
        memories=memories,
        heap=tuple(Pending(*row) for row in file["heap"][:].tolist()),
        sequence=int(attributes["sequence"]),
        held=ModelsInMemory(_vectors(file, "held/models"), _vectors(file, "held/averages")),
    )


def _read_state(group: h5py.Group, form: Any) -> Any:
    values = {}
    for name, value in form._asdict().items():
        if hasattr(value, "_asdict"):
            values[name] = _read_state(group[name], value)
        elif isinstance(value, tuple):
            values[name] = tuple(group[name][:].tolist())
        elif isinstance(value, int | float):
            stored = group.attrs[name]  # of the type it was written with: what began as 0 may be 0.75 by now
            values[name] = stored if type(stored) is type(value) else stored.item()
        else:
            values[name] = group[name][:] if name in group else None
    return type(form)(**values)


def _read_open_orders(file: h5py.File) -> tuple[OpenOrder, ...]:
    models, attached = _vectors(file, "models"), _vectors(file, "attached")
    rows = file["flights"][:].tolist()
    found = []
    for place, (client, row, step_size, version, iteration, flags, number, since_s, steps, given) in enumerate(rows):
        with_it = attached[place] if attached else None
        order = Order(client, models[row], step_size, version, iteration, Flag(flags), steps, with_it, bool(given))
        found.append(OpenOrder(order, number, since_s))
    return tuple(found)


def _verify(path: Path) -> None:
    """A ValueError unless the file ends with the checksum of all that stands before."""
    checksum, left = 0, path.stat().st_size - _CHECKSUM_BYTES
    with path.open("rb") as file:
        while left > 0:
            piece = file.read(min(left, _BYTES_AT_ONCE))
            checksum, left = crc32(piece, checksum), left - len(piece)
        if file.read() != checksum.to_bytes(_CHECKSUM_BYTES, "little"):
            raise ValueError("it does not have its checksum")


def _read_memories(path: Path, memory: Vector | None, wanted: Container[int] | None = None) -> dict[int, Vector]:
    """What stands at the end of the file, before its checksum: arrays like `memory` of the clients that are wanted."""
    if memory is None:
        return {}
    found = {}
    with path.open("rb") as file:
        end = file.seek(-_CHECKSUM_BYTES - _CLIENT_BYTES, os.SEEK_END)
        (count,) = np.frombuffer(file.read(_CLIENT_BYTES), "<i8").tolist()
        end = file.seek(end - count * _CLIENT_BYTES)
        clients = np.frombuffer(file.read(count * _CLIENT_BYTES), "<i8").tolist()
        for place, client in enumerate(clients):
            if wanted is None or client in wanted:
                file.seek(end + (place - count) * memory.nbytes)
                found[client] = np.frombuffer(file.read(memory.nbytes), memory.dtype).reshape(memory.shape)
    return found


def _vectors(file: h5py.File, name: str) -> list[Vector]:
    return list(file[name][:]) if name in file else []
