"""The run file: its HDF5 schema, and the schema's version.

All objects exist from the start, most without a row, because only rows can be added to a file while a run writes it.
Three tables are declared where they are filled: CLIENT in engine/events.py, those of the diagnosis in
engine/diagnosis.py. The page docs/run-file.md is made from the columns here and there: `make docs-reference`.

Who changes the schema raises SCHEMA_VERSION; files of any other version are refused.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from areabench.arrays import Columns, row_type
from areabench.engine.diagnosis import DIAGNOSIS_CLIENT, QUANTILE, Diagnosis
from areabench.engine.events import CLIENT, EVENT

FORMAT = "areabench-run"
SCHEMA_VERSION = 1

ATTRIBUTES: Columns = {
    "format": ("text", f"`{FORMAT}`"),
    "schema_version": ("i8", f"{SCHEMA_VERSION}; a file of another version is refused"),
    "experiment": ("text", "the [experiment](experiment-file.md) with all defaults, as TOML; paths as they were given"),
    "folder": ("text", "the folder that relative paths in the experiment start from, absolute; empty if none is"),
    "folder_from_here": ("text", "the same folder, relative to that of the run file"),
}
SNAPSHOT_COLUMNS: Columns = {
    "time_s": ("<f8", "the model after all events up to and including this time"),
    "version": ("<i8", "server steps that led to the model"),
    "event": ("<i8", "events before the snapshot: rows 0 to `event` - 1 of `/events`"),
    "digest": ("<u8", "CRC-32 of the model's bytes"),
}
METRIC_COLUMNS: Columns = {
    "train_loss": (
        "<f8",
        "loss over all training data, regularisation included; on every `record.loss_every`-th snapshot and the last, "
        "else NaN",
    ),
    "test_accuracy": ("<f8", "% of the test data classified correctly; NaN if there are no classes"),
    "squared_distance": ("<f8", "squared distance to the minimiser; NaN if it is not known"),
    "average_loss": ("<f8", "loss of the average beside the snapshot; NaN without `record.average`"),
    "average_accuracy": ("<f8", "its accuracy, %"),
}
STATUS_COLUMNS: Columns = {
    "state": ("S16", "see below"),
    "reason": ("S500", "why, in words"),
    "end_s": ("<f8", "when the run ended; in a failed run the time of the last event"),
    "updates": ("<i8", "updates used"),
    "discarded": ("<i8", "updates that arrived after the end"),
    "server_steps": ("<i8", "server steps"),
    "drain_s": ("<f8", "on MPI, from the end until the last client had stopped"),
    "refused": ("<i8", "[refused updates](faults.md#updates-that-cannot-be-used)"),
    "lost": ("<i8", "clients lost before the end"),
    "checksum": ("<u4", "CRC-32 of the bytes before it"),
}
CHECKSUM_COLUMNS: Columns = {
    "part": ("S32", "name of the dataset, without the first slash"),
    "first": ("<i8", "first row of the block"),
    "count": ("<i8", "rows in it"),
    "content": ("<u4", "CRC-32 of their bytes"),
    "own": ("<u4", "CRC-32 of the other columns of this row"),
}
SNAPSHOT = row_type(SNAPSHOT_COLUMNS)
METRIC = row_type(METRIC_COLUMNS)
STATUS = row_type(STATUS_COLUMNS)
CHECKSUM = row_type(CHECKSUM_COLUMNS)
STATUS_CONTENT = STATUS.itemsize - 4  # bytes of a status before its checksum


def _diagnosis_columns() -> Columns:
    """A column for each number and text of a diagnosis, with the meaning that it is annotated with."""
    kinds = {int: ["<i8"], float: ["<f8"]}
    hints = get_type_hints(Diagnosis, include_extras=True)
    columns = {}
    for item in fields(Diagnosis):
        hint = hints[item.name]
        if hasattr(hint, "__metadata__"):
            *kind, meaning = hint.__metadata__  # a text also says how long it may be
            columns[item.name] = ((kind or kinds[hint.__origin__])[0], meaning)
    return columns


DIAGNOSIS_COLUMNS = _diagnosis_columns()
DIAGNOSIS = row_type(DIAGNOSIS_COLUMNS)


class StoredRows(NamedTuple):
    """A dataset whose rows have checksums; without `row` its rows are vectors of the problem's type."""

    row: np.dtype[Any] | None
    chunk: int  # rows that HDF5 stores together; 0: all, as the dataset does not grow, or as many as fit
    meaning: str


INTEGER = np.dtype("<i8")
DATASETS = {
    "clients": StoredRows(CLIENT, 0, "one row per client, in the order of their numbers"),
    "events": StoredRows(EVENT, 1024, "one row per event, in the order in which the server handled them"),
    "snapshots/index": StoredRows(SNAPSHOT, 256, "one row per snapshot: when it was taken"),
    "snapshots/model": StoredRows(None, 0, "one row per snapshot, or the last one only: the model"),
    "snapshots/average": StoredRows(None, 0, "in the same rows the running mean of the models, if asked for"),
    "metrics": StoredRows(METRIC, 64, "one row per snapshot, written after the clock has stopped"),
    "tally/staleness": StoredRows(INTEGER, 64, "without event log: number of updates of staleness 0, 1, 2, ..."),
    "tally/served": StoredRows(INTEGER, 64, "without event log: number of used updates of each client"),
    "diagnosis/summary": StoredRows(DIAGNOSIS, 1, "of a run on MPI that has ended: one row"),
    "diagnosis/clients": StoredRows(DIAGNOSIS_CLIENT, 64, "of such a run: one row per client"),
    "diagnosis/quantiles": StoredRows(QUANTILE, 64, "of such a run: one row per share of the updates"),
}
