"""The status in a run file: one record of fixed size at a fixed place, to be written when all else fails."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np

from areabench.claim import lock
from areabench.errors import RunFileError
from areabench.opening import DAMAGE, damaged, open_for_reading
from areabench.schema import STATUS, State, Status

_STATES = {state.text: state for state in State}
_NAME = "status"


def create_status(file: h5py.File) -> int:
    """Make room for the status, at once and in one piece; where in the file, in bytes from its start."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple((1,))
    return int(h5py.h5d.create(file.id, _NAME.encode(), h5py.h5t.py_create(STATUS), space, settings).get_offset())


def pack_status(status: Status) -> bytes:
    """A status as the bytes of a record of STATUS."""
    values = {item.name: getattr(status, item.name) for item in fields(status)}
    values |= {"state": status.state.text.encode(), "reason": cut(status.reason, STATUS["reason"].itemsize)}
    return np.array(tuple(values[name] for name in STATUS.names or ()), STATUS).tobytes()


def status_of(file: h5py.File) -> Status:
    """The status as the file has it; a KeyError and the like where it is damaged."""
    row = file[_NAME][0]
    if row.dtype != STATUS:
        raise TypeError(f"/status has columns {row.dtype.names}, expected {STATUS.names}")
    values = dict(zip(row.dtype.names, row.tolist(), strict=True))
    state, reason = values.pop("state").decode(), values.pop("reason").decode()
    return Status(_STATES[state], reason, **values)


def cut(text: str, size: int) -> bytes:
    """A text in at most `size` bytes of UTF-8, cut between characters."""
    return text.encode(errors="replace")[:size].decode(errors="ignore").encode()


def mark(path: Path, status: Status) -> bool:
    """Set the status of a run file whose run was killed; False where the run had said itself how it ended.

    A RunFileError where a run is still writing it.
    """
    try:
        with open_for_reading(path) as file:
            offset, now = file[_NAME].id.get_offset(), status_of(file)
        descriptor = lock(path)
    except BlockingIOError as error:
        raise RunFileError(f"{path}: {error}; wait until it has ended") from error
    except DAMAGE as error:
        raise damaged(path, str(error)) from error
    try:
        if now.state == State.RUNNING:
            os.pwrite(descriptor, pack_status(status), offset)
    finally:
        os.close(descriptor)
    return now.state == State.RUNNING
