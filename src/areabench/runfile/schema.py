"""The run file: its HDF5 schema and the schema's version.

    /                  attributes: format, schema_version, experiment (TOML)
    /status            one record of fixed size: state, reason, end_s and counts
    /provenance        attributes: who ran what where
    /clients           one row per client
    /events            one row per event, in the order in which the server handled them
    /snapshots/model   one row per snapshot, or the last one only; /snapshots/index says when each was taken
    /snapshots/average the running mean of the server's models, in the same rows, if asked for
    /tally             staleness and served, if there is no event log
    /metrics           one row per snapshot, written after the clock has stopped
    /diagnosis/summary one row: whether a run on MPI kept its delays; /diagnosis/clients and /diagnosis/quantiles
    /checksums         one row per block of rows in any of these, see checksums.py

All of them exist from the start, most without a row, because only rows can be added to the file while a run writes it.
docs/run-file.md documents every column with its unit. CLIENT is in engine/events.py and the tables of the diagnosis are
in engine/diagnosis.py, where they are filled.

Who changes the schema raises SCHEMA_VERSION; files of any other version are refused.
"""

from __future__ import annotations

import numpy as np

FORMAT = "areabench-run"
SCHEMA_VERSION = 11

EVENT = np.dtype(
    [
        ("time_s", "<f8"), ("kind", "u1"), ("client", "<i4"), ("round", "<i8"), ("base_version", "<i8"),
        ("staleness", "<i8"), ("iteration", "<i8"), ("version", "<i8"), ("step_size", "<f8"), ("drawn_delay_s", "<f8"),
        ("realised_delay_s", "<f8"), ("reply_s", "<f8"), ("compute_s", "<f8"), ("queue_s", "<f8"), ("service_s", "<f8"),
        ("flags", "u1"), ("reason", "u1"), ("local_steps", "<i4"), ("digest", "<u8"),
    ]
)  # fmt: skip
SNAPSHOT = np.dtype([("time_s", "f8"), ("version", "i8"), ("event", "i8"), ("digest", "u8")])
METRIC = np.dtype(
    [
        ("train_loss", "f8"), ("test_accuracy", "f8"), ("squared_distance", "f8"), ("average_loss", "f8"),
        ("average_accuracy", "f8"),
    ]
)  # fmt: skip
STATUS = np.dtype(
    [
        ("state", "S16"), ("reason", "S500"), ("end_s", "<f8"), ("updates", "<i8"), ("discarded", "<i8"),
        ("server_steps", "<i8"), ("drain_s", "<f8"), ("refused", "<i8"), ("lost", "<i8"), ("checksum", "<u4"),
    ]
)  # fmt: skip
