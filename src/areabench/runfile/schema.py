"""The run file: its HDF5 schema and the schema's version.

    /                  attributes: format, schema_version, experiment (TOML)
    /status            one record of fixed size: state, reason, end_s and counts
    /provenance        attributes: who ran what where
    /clients           one row a client
    /events            one row an event, in the order in which the server handled them
    /snapshots/model   one row a snapshot, or the last one only; /snapshots/index says when each was taken
    /snapshots/average the running mean of the server's models, in the same rows, where asked for
    /tally             staleness and served, where there is no event log
    /metrics           one row a snapshot, written after the clock has stopped
    /diagnosis/summary one row: whether a run on MPI kept its delays; /diagnosis/clients and /diagnosis/quantiles

All of them are there from the start, most without a row, because while a run writes nothing can be added to the file
but rows. docs/run-file.md documents every column with its unit.
"""

from __future__ import annotations

import numpy as np

FORMAT = "areabench-run"
SCHEMA_VERSION = 6

EVENT = np.dtype(
    [
        ("time_s", "<f8"), ("kind", "u1"), ("client", "<i4"), ("round", "<i8"), ("base_version", "<i8"),
        ("staleness", "<i8"), ("iteration", "<i8"), ("version", "<i8"), ("step_size", "<f8"), ("drawn_delay_s", "<f8"),
        ("realised_delay_s", "<f8"), ("reply_s", "<f8"), ("compute_s", "<f8"), ("queue_s", "<f8"), ("service_s", "<f8"),
        ("flags", "u1"), ("reason", "u1"), ("digest", "<u8"),
    ]
)  # fmt: skip
SNAPSHOT = np.dtype([("time_s", "f8"), ("version", "i8"), ("event", "i8"), ("digest", "u8")])
METRIC = np.dtype(
    [
        ("train_loss", "f8"), ("test_accuracy", "f8"), ("squared_distance", "f8"), ("score_gap", "f8"),
        ("average_loss", "f8"), ("average_accuracy", "f8"),
    ]
)  # fmt: skip
STATUS = np.dtype(
    [
        ("state", "S16"), ("reason", "S500"), ("end_s", "<f8"), ("updates", "<i8"), ("discarded", "<i8"),
        ("server_steps", "<i8"), ("drain_s", "<f8"), ("refused", "<i8"), ("lost", "<i8"),
    ]
)  # fmt: skip
