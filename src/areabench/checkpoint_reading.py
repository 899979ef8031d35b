"""Reading checkpoints: everything that `checkpoint` writes, or an error that says what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from areabench.checkpoint import FORMAT, NUMBERS, VERSION, Checkpoint, Held, Pending, checkpoint_path
from areabench.errors import RunFileError
from areabench.flights import Flight
from areabench.messages import Flag, Order
from areabench.problems.base import Vector
from areabench.server import ServerStanding
from areabench.standing import Standing
from areabench.tally import Tally

_DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, IndexError)


def require_checkpoint(run_file: Path) -> Path:
    """The path of a run file's checkpoint; a UserError where there is none."""
    path = checkpoint_path(run_file)
    if not path.is_file():
        raise RunFileError(
            f"{run_file}: has no checkpoint ({path.name}) to go on from; run the experiment again, with a shorter "
            "--checkpoint-every"
        )
    return path


def read_checkpoint(run_file: Path, state: Any) -> Checkpoint:
    """The checkpoint of a run file; `state` is any state of its method, whose form tells what to read."""
    path = require_checkpoint(run_file)
    try:
        with h5py.File(path, "r") as file:
            if file.attrs["format"] != FORMAT or file.attrs["version"] != VERSION:
                raise RunFileError(f"{path}: is no checkpoint of this areabench; use the one that wrote it")
            memories = _read_memories(path, file["remembering"][:].tolist(), state.model)
            return _read(file, state, memories)
    except _DAMAGE as error:
        raise RunFileError(f"{path}: is damaged ({error}); run the experiment again") from error


def _read(file: h5py.File, state: Any, memories: Mapping[int, Vector]) -> Checkpoint:
    attributes, clients = dict(file.attrs), file["clients"][:].tolist()
    numbers = {name: attributes[name].item() for name in NUMBERS}
    mean = (file["mean"][:], int(attributes["mean_since"])) if "mean" in file else None
    counts = [int(attributes[name]) for name in ("iteration", "model_version", "updates_since_step")]
    standing = Standing(
        server=ServerStanding(_read_state(file["state"], state), counts[0], counts[1], counts[2], mean),
        rounds={client: rounds for client, rounds, _ in clients if rounds},
        flights=_read_flights(file),
        refusals={client: refusals for client, _, refusals in clients if refusals},
        lost=tuple(file["lost"][:].tolist()),
        tally=_read_tally(file["tally"]),
        **numbers,
    )
    heap = tuple(Pending(*row) for row in file["heap"][:].tolist())
    return Checkpoint(
        str(attributes["experiment"]), standing, memories, heap, int(attributes["sequence"]),
        Held(_vectors(file, "held/models"), _vectors(file, "held/averages")),
    )  # fmt: skip


def _read_state(group: h5py.Group, form: Any) -> Any:
    values = {}
    for name, value in form._asdict().items():
        if hasattr(value, "_asdict"):
            values[name] = _read_state(group[name], value)
        elif isinstance(value, tuple):
            values[name] = tuple(group[name][:].tolist())
        elif isinstance(value, int | float):
            values[name] = _number(group.attrs[name], value)
        else:
            values[name] = group[name][:] if name in group else None
    return type(form)(**values)


def _number(stored: Any, form: Any) -> Any:
    """A number of the type it was written with: what began as 0 may be 0.75 by now."""
    return stored if type(stored) is type(form) else stored.item()


def _read_flights(file: h5py.File) -> tuple[Flight, ...]:
    models = _vectors(file, "models")
    return tuple(
        Flight(Order(client, models[row], step_size, version, iteration, Flag(flags)), number, since_s)
        for client, row, step_size, version, iteration, flags, number, since_s in file["flights"][:].tolist()
    )


def _read_tally(group: h5py.Group) -> Tally:
    kinds, staleness, served = (group[name][:].tolist() for name in ("kinds", "staleness", "served"))
    return Tally.of(kinds, staleness, served, float(group.attrs["last_time_s"]))


def _read_memories(path: Path, clients: Sequence[int], model: Vector) -> dict[int, Vector]:
    """What stands at the end of the file: a vector like `model` for each of these clients."""
    size = len(clients) * model.nbytes
    with path.open("rb") as file:
        file.seek(-size, os.SEEK_END)
        rows = np.frombuffer(file.read(), model.dtype).reshape(len(clients), len(model))
    return dict(zip(clients, rows, strict=True))


def _vectors(file: h5py.File, name: str) -> list[Vector]:
    return list(file[name][:]) if name in file else []
