"""The objects of a run file, made all at once: when HDF5 has begun to write so that others can read, only rows come."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from areabench.attributes import write_attributes
from areabench.diagnosis import Diagnosis
from areabench.experiment import Record
from areabench.model_rows import ModelRows, create_models
from areabench.problems.base import Metrics
from areabench.schema import DIAGNOSIS_CLIENT, EVENT, FORMAT, METRIC, QUANTILE, SCHEMA_VERSION, SNAPSHOT, Provenance
from areabench.status_record import create_status, cut

EVENTS_A_BLOCK = 256
_VERSIONS = ("v110", "v110")  # the oldest format that can be read at any moment
_CACHE_BYTES = 2**20  # a dataset: rows are written once and not read again, so that a larger cache only fills memory
_TEXT, _ROWS = {"verdict": "S32", "advice": "S1000"}, ("clients", "quantiles")
_TYPES = {"int": "<i8", "float": "<f8"}
_SINGLE = [item for item in fields(Diagnosis) if item.name not in _ROWS]
DIAGNOSIS = np.dtype([(item.name, _TEXT.get(item.name) or _TYPES[str(item.type)]) for item in _SINGLE])


@dataclass(frozen=True)
class Opening:
    """What is known of a run before it begins; `size` is the number of parameters and their type."""

    experiment: str  # TOML
    size: tuple[int, np.dtype[Any]]
    record: Record


@dataclass(frozen=True)
class Layout:
    """The parts of a run file that rows go to while the run goes on."""

    events: h5py.Dataset
    index: h5py.Dataset
    models: ModelRows
    averages: ModelRows | None


def first_content(opening: Opening, provenance: Provenance, clients: NDArray[Any]) -> tuple[bytes, int]:
    """A whole run file without rows, and where in it the status goes.

    It is made in memory, because HDF5 does not survive a disc that has no room for it.
    """
    with h5py.File("content", "w", driver="core", backing_store=False, libver=_VERSIONS) as file:
        _create(file, opening)
        write_attributes(file.create_group("provenance").attrs, asdict(provenance))
        file.create_dataset("clients", data=clients)
        status_at = create_status(file)
        file.flush()
        return file.id.get_file_image(), status_at


def _create(file: h5py.File, opening: Opening) -> None:
    """All objects that rows go to."""
    about: dict[str, str | int] = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "experiment": opening.experiment}
    write_attributes(file.attrs, about)
    number = np.dtype("<i8")
    for name, dtype, chunk in (
        ("events", EVENT, EVENTS_A_BLOCK * 4), ("snapshots/index", SNAPSHOT, EVENTS_A_BLOCK), ("metrics", METRIC, 64),
        ("tally/staleness", number, 64), ("tally/served", number, 64), ("diagnosis/summary", DIAGNOSIS, 1),
        ("diagnosis/clients", DIAGNOSIS_CLIENT, 64), ("diagnosis/quantiles", QUANTILE, 64),
    ):  # fmt: skip
        file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(chunk,))
    last_only = opening.record.models == "last"
    for name in ("model", "average") if opening.record.average else ("model",):
        create_models(file, f"snapshots/{name}", opening.size, last_only=last_only)


def open_to_append(path: Path) -> h5py.File:
    """The file, open in such a way that others can read it at any moment; the lock is ours, see `claim.py`."""
    file = h5py.File(path, "r+", libver=_VERSIONS, locking=False, rdcc_nbytes=_CACHE_BYTES)
    file.swmr_mode = True
    return file


def layout_of(file: h5py.File, record: Record) -> Layout:
    """The parts of a file that is open to append."""
    last_only = record.models == "last"
    return Layout(
        events=file["events"],
        index=file["snapshots/index"],
        models=ModelRows(file["snapshots/model"], last_only=last_only),
        averages=ModelRows(file["snapshots/average"], last_only=last_only) if record.average else None,
    )


def forget(file: h5py.File) -> None:
    """Close a file that cannot be written: HDF5 keeps trying and crashes in the end unless its writes go nowhere."""
    if file.id.valid:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), file.id.get_vfd_handle())
        with suppress(OSError, RuntimeError):
            file.close()


def cause_of(error: OSError | RuntimeError) -> str:
    """Why a file cannot be written, in the words of the system where they are to be found amid those of HDF5."""
    if said := re.search(r"error message = '([^']*)'", str(error)):
        return said[1]
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told.partition("\n")[0]


def metric_rows(blocks: Sequence[Metrics], averages: Sequence[Metrics]) -> NDArray[Any]:
    """Rows of METRIC, one a snapshot."""
    table = np.full(sum(len(block.train_loss) for block in blocks), np.nan, METRIC)
    for item in fields(Metrics):
        table[item.name] = np.concatenate([getattr(block, item.name) for block in blocks])
    if averages:
        table["average_loss"] = np.concatenate([block.train_loss for block in averages])
        table["average_accuracy"] = np.concatenate([block.test_accuracy for block in averages])
    return table


def diagnosis_row(diagnosis: Diagnosis) -> NDArray[Any]:
    """A diagnosis as one row of DIAGNOSIS; its tables have datasets of their own."""
    row = np.zeros(1, DIAGNOSIS)
    for name in DIAGNOSIS.names or ():
        value = getattr(diagnosis, name)
        row[name] = cut(value, DIAGNOSIS[name].itemsize) if isinstance(value, str) else value
    return row


def read_diagnosis(row: np.void, clients: NDArray[Any], quantiles: NDArray[Any]) -> Diagnosis:
    """A diagnosis from its row and tables."""
    values = {name: row[name].item() for name in row.dtype.names or ()}
    texts = {name: value.decode() for name, value in values.items() if isinstance(value, bytes)}
    return Diagnosis(**{**values, **texts}, clients=clients, quantiles=quantiles)
